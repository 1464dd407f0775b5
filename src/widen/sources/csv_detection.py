"""How CSV files are written, found from their first lines, where no option says it.

What a sample leaves open is not guessed: the file keeps the default, or an error names the option that decides.

Source: docs/evolution-rules.md#d16, docs/guide/files.md#csv
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from widen.errors import CorruptFile, SourceContentError
from widen.evolution.plan import ReadAs
from widen.json.document import BOM
from widen.model.display import name_file
from widen.model.value_classes import dataclass
from widen.sources.csv_dialect import CsvDialect, fold_name, guess_encoding, is_utf8, to_utf8
from widen.sources.file_ranges import open_file
from widen.sources.listing import SourceFile, guess_wide_encoding

_T = TypeVar("_T")

SAMPLE_BYTES, _SAMPLE_ROWS = 2**16, 200
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_MOST_OTHERS = 0.1
"""The maximum share of rows with another number of fields than the first one."""


@dataclass(frozen=True, slots=True)
class CsvDialects:
    """How the files of a source are written.

    Args:
        others: The dialects of files that are written otherwise, by their URIs.
    """

    default: CsvDialect
    others: Mapping[str, CsvDialect]

    def of(self, uri: str) -> CsvDialect:
        """Return the dialect of a file."""
        return self.others.get(uri, self.default)

    def group(self, files: Sequence[_T], uri_of: Callable[[_T], str]) -> Iterator[tuple[CsvDialect, list[_T]]]:
        found: dict[CsvDialect, list[_T]] = {}
        for file in files:
            found.setdefault(self.of(uri_of(file)), []).append(file)
        yield from found.items()


def find_dialects(files: Sequence[SourceFile], default: CsvDialect, given: Collection[str]) -> CsvDialects:
    """Return how files are written, which this process can read.

    Args:
        given: The properties of the dialect that the options say.
    """
    others = {}
    for file in files:
        if not file.size_bytes:
            continue
        try:
            with open_file(file.uri) as content:
                head = content.read(SAMPLE_BYTES)
        except CorruptFile:
            continue  # who reads the file says so
        found = find_dialect(head, default, given, file.path)
        if found != default:
            others[file.uri] = found
    return CsvDialects(default, others)


def find_dialect(head: bytes, default: CsvDialect, given: Collection[str], path: str = "") -> CsvDialect:
    r"""Return how a file is written.

    Args:
        given: The properties of the dialect that the options say.

    Example:
        >>> describe_dialect(find_dialect(b"id;price\n1;2,5\n2;3,25\n", CsvDialect(detects="x"), ()))
        '; with header, decimal comma'
    """
    dialect = default if "encoding" in given else replace(default, encoding=_find_encoding(head, default))
    text = _decode(head, dialect)
    if text is None:
        return dialect
    named = _SEPARATOR_LINE.match(text)
    if named is not None:
        dialect, text = replace(dialect, has_separator_line=True), text[named.end() :]
        if "separator" not in given:
            dialect, given = replace(dialect, separator=named[1]), {*given, "separator"}
    if "quote" not in given and dialect.quote == '"' and dialect.escape is None and _has_single_quotes(text):
        dialect = replace(dialect, quote="'")
    if "separator" not in given:
        dialect = replace(dialect, separator=_find_separator(text, dialect, path))
    rows = _rows(text, dialect)
    if "header" not in given and not _has_header(rows, dialect, path):
        dialect = replace(dialect, header=False)
    if "decimal" not in given and dialect.detects and dialect.separator != ",":
        dialect = replace(dialect, decimal="," if _has_decimal_commas(rows, dialect) else ".")
    return dialect


_SEPARATOR_LINE = re.compile(r'[\r\n]*"?sep=([^\w\s"\']|\t)"?(?:\r\n|\r|\n|$)', re.IGNORECASE)
"""The line that Excel writes and reads, e.g. ``sep=;``."""


def describe_dialect(dialect: CsvDialect) -> str:
    """Return a dialect in a few words."""
    separator = _SEPARATORS.get(dialect.separator, "") if dialect.separator == "\t" else dialect.separator
    parts = [f"{separator} {'with' if dialect.header else 'without'} header"]
    if codecs.lookup(dialect.encoding).name not in ("utf-8", "utf-8-sig"):
        parts.append(_ENCODINGS.get(dialect.encoding, dialect.encoding))
    parts += ["single quotes"] if dialect.quote == "'" else []
    parts += ["a line sep="] if dialect.has_separator_line else []
    parts += ["decimal comma"] if dialect.decimal == "," else []
    return ", ".join(parts)


_ENCODINGS = {"windows-1252": "Latin-1 (windows-1252)", "utf-16": "UTF-16", "utf-32": "UTF-32"}


def to_read_as(dialects: CsvDialects, files: Sequence[SourceFile]) -> tuple[ReadAs, ...]:
    """Return what was found that is not the default, for each dialect."""
    others = [file for file in files if file.uri in dialects.others]
    found = []
    for dialect, some in dialects.group(others, lambda file: file.uri):
        options = {
            option: str(value).lower() if isinstance(value, bool) else str(value)
            for option, key in _OPTIONS.items()
            if (value := getattr(dialect, key)) != getattr(dialects.default, key)
        }
        found.append(ReadAs(describe_dialect(dialect), options, tuple(name_file(file.path) for file in some)))
    return tuple(found)


_OPTIONS = {"sep": "separator", "header": "header", "encoding": "encoding", "quote": "quote", "decimal": "decimal"}


# ---- the encoding ----------------------------------------------------------------------------------


def _find_encoding(head: bytes, default: CsvDialect) -> str:
    if codecs.lookup(default.encoding).name != "utf-8":
        return default.encoding
    wide = guess_wide_encoding(head)
    if wide is not None:
        return wide.lower()
    lines = _whole_lines(head)
    return default.encoding if is_utf8(lines) else guess_encoding(lines) or default.encoding


def _whole_lines(head: bytes) -> bytes:
    """Return a long beginning of a file without its last line, which may be cut."""
    return head if len(head) < SAMPLE_BYTES else head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1] or head


def _decode(head: bytes, dialect: CsvDialect) -> str | None:
    if len("\n".encode(dialect.encoding)) > 1:
        # Two or four bytes are one character, and the last one may be cut.
        return codecs.getincrementaldecoder(dialect.encoding)("replace").decode(head[: len(head) // 4 * 4])
    text = to_utf8(_whole_lines(head), dialect)
    return None if text is None else text.removeprefix(BOM).decode(errors="replace")


# ---- quotes and separators -------------------------------------------------------------------------


def _rows(text: str, dialect: CsvDialect, *, quote: str | None = "", separator: str = "") -> list[list[str]]:
    """Return the first rows that are not blank, as Python cuts them."""
    quote = dialect.quote if quote == "" else quote
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(
        text.replace("\0", "").splitlines(keepends=True),
        delimiter=separator or dialect.separator,
        quoting=csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
        quotechar=quote,
        escapechar=None if dialect.escape == quote else dialect.escape,
        doublequote=dialect.escape in (None, quote),
    )
    rows: list[list[str]] = []
    for row in reader:
        if len(rows) == _SAMPLE_ROWS:
            break
        if row:
            rows.append(row)
    return rows


_SINGLE = re.compile(r"(?:^|[,;|\t])'(?:[^'\r\n]|'')*'(?=[,;|\t]|$)", re.MULTILINE)


def _has_single_quotes(text: str) -> bool:
    """Return whether fields are in single quotes: no double quote, and every single one begins or ends a field."""
    if '"' in text or "'" not in text:
        return False
    return "'" not in _SINGLE.sub("", text)


def _find_separator(text: str, dialect: CsvDialect, path: str) -> str:
    """Return what separates the fields.

    A separator fits if the first row has it outside of quotes, and nearly all rows have as many fields as the first.

    Raises:
        SourceContentError: several separators fit.
    """
    first = text.lstrip("\r\n").splitlines()[:1]
    there = [each for each in dict.fromkeys([dialect.separator, *_SEPARATORS]) if first and each in first[0]]
    if there in ([], [dialect.separator]):
        return dialect.separator
    fitting = [each for each in there if _fits(_rows(text, dialect, separator=each))]
    if len(fitting) > 1 and dialect.known:
        named = [each for each in fitting if _names_field(_rows(text, dialect, separator=each)[0], dialect)]
        fitting = named if len(named) == 1 else fitting
    if len(fitting) > 1:
        names = " or a ".join(_SEPARATORS.get(each, each) for each in fitting)
        reason = f"its fields may be separated by a {names}"
        raise SourceContentError(source=path, reason=reason, fix="Set the option sep, e.g. sep=';'.")
    return fitting[0] if fitting else dialect.separator


def _fits(rows: Sequence[Sequence[str]]) -> bool:
    width = len(rows[0]) if rows else 0
    others = sum(len(row) != width for row in rows[1:])
    return width > 1 and len(rows) > 1 and others <= _MOST_OTHERS * (len(rows) - 1)


def _names_field(row: Sequence[str], dialect: CsvDialect) -> bool:
    return not dialect.known.isdisjoint(map(fold_name, row))


# ---- the header and numbers ------------------------------------------------------------------------

_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|[.,]\d+)(?:[eE][-+]?\d+)?%?")
_MOMENT = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./-]\d\d?[./-]\d{2,4}.*")
_YEAR = re.compile(r"(?:19|20)\d\d")


def _has_header(rows: Sequence[Sequence[str]], dialect: CsvDialect, path: str) -> bool:
    """Return whether the first row has names.

    It has none if a number or a date is among its fields, and each field looks like those below it. A row without
    numbers and dates counts as a header.

    Raises:
        SourceContentError: it may have names that are years.
    """
    if not dialect.header or len(rows) < 2 or (dialect.known and "c0" not in dialect.known):
        return dialect.header
    first, width = rows[0], len(rows[0])
    if _names_field(first, dialect) or not any(_is_value(text) for text in first):
        return True
    below = [[row[at] for row in rows[1:] if len(row) == width and row[at]] for at in range(width)]
    if not all(_is_alike(text, texts) for text, texts in zip(first, below, strict=True)):
        return True
    values = [text for text in first if _is_value(text)]
    if len(values) > 1 and all(map(_YEAR.fullmatch, values)) and len(set(values)) == len(values):
        reason = "its first line may be years as names, or a record"
        raise SourceContentError(source=path, reason=reason, fix="Set the option header to true or false.")
    return False


def _is_value(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text) or _MOMENT.fullmatch(text))


def _is_alike(text: str, below: Sequence[str]) -> bool:
    """Return whether a field of the first row is of a kind that those below it have."""
    if not text or not below:
        return True
    kinds = {_kind(each) for each in below}
    return _kind(text) in kinds if _is_value(text) else kinds == {"text"}


def _kind(text: str) -> str:
    return "number" if _NUMBER.fullmatch(text) else "moment" if _MOMENT.fullmatch(text) else "text"


_COMMA, _POINT = re.compile(r"-?(\d+),(\d+)"), re.compile(r"-?\d+\.\d+")


def _has_decimal_commas(rows: Sequence[Sequence[str]], dialect: CsvDialect) -> bool:
    """Return whether numbers have a comma before their fraction.

    They do if some fields have one, no field has a point, and one of the commas cannot separate thousands.
    """
    texts = [text for row in rows[int(dialect.header) :] for text in row]
    if any(map(_POINT.fullmatch, texts)):
        return False
    numbers = [match for match in map(_COMMA.fullmatch, texts) if match is not None]
    return any(len(match[2]) != 3 or len(match[1]) > 3 or match[1] == "0" for match in numbers)
