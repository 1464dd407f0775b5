"""How CSV files are written: the dialect, the header, and rows that span lines.

Source: RFC 4180; docs/evolution-rules.md#d16
"""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from widen.errors import CorruptFile, InvalidOption, SourceContentError
from widen.json.document import BOM, MAX_RECORD_BYTES, not_a_record
from widen.model.native_kernel import find_kernel
from widen.model.value_classes import dataclass
from widen.sources.file_ranges import RefusedTexts, TextGroup, as_raw_records, record_too_long, size_limit_text
from widen.spark.errors import CLOSE_QUOTE, RESTORE_FILE, SET_ENCODING

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How the rows of CSV files are written.

    Args:
        quote: Character around quoted fields; None for no quoting.
        escape: Character before a quote inside a field; None if the quote is doubled.
        header: Whether the first line of every file has the names; else the names are ``_c0``, ``_c1``, ...
        null: Unquoted text of null.
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
        known: The fields that the table has, as `fold_name` returns them: one of them is in each header. Empty if a
            header may have any names.
        multi_line: Whether quoted fields may take several lines; None if they may, unless they look damaged.
        max_record_bytes: Maximum size of a row.
        decimal: What begins the fraction of a number, if texts become numbers.
        has_separator_line: Whether the first line names the separator, as Excel writes it.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    detects: str = ""
    known: frozenset[str] = frozenset()
    multi_line: bool | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    decimal: str = "."
    has_separator_line: bool = False


def fold_name(name: str) -> str:
    """Return the letters and digits of a name in one case: its column may be spelled otherwise."""
    return "".join(filter(str.isalnum, name)).casefold()


def parse_dialect(
    options: Mapping[str, str],
    *,
    detects: str = "",
    is_tabbed: bool = False,
    known: Iterable[str] = (),
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> CsvDialect:
    """Return the dialect of options with the names that Spark has for them, in any case.

    Args:
        options: For example ``{"sep": ";", "header": "false"}``.
        is_tabbed: Whether the default separator is a tab.
        known: The fields that the table has. They are not compared if the options say whether there is a header.

    Raises:
        InvalidOption: an option is unknown or has an invalid value.
    """
    fields: dict[str, Any] = {"separator": "\t"} if is_tabbed else {}
    for name, value in options.items():
        key = _OPTIONS.get(name.lower())
        if key is None:
            raise InvalidOption(option="CSV option", value=name, expected=f"Must be one of: {', '.join(_OPTIONS)}.")
        fields[key] = value
    for key in ("separator", "quote", "escape"):
        if len(fields.get(key) or " ") != 1:
            raise InvalidOption(option=key, value=fields[key], expected="Must be a single character.")
    shared = () if "header" in fields else known
    for key, option in (("header", "header"), ("multi_line", "multiLine")):
        if key in fields:
            if fields[key].lower() not in _BOOLEANS:
                raise InvalidOption(option=option, value=fields[key], expected="Must be true or false.")
            fields[key] = _BOOLEANS[fields[key].lower()]
    _ensure_encoding(fields.get("encoding", "utf-8"))
    if fields.get("decimal", ".") not in (".", ","):
        raise InvalidOption(option="decimal", value=fields["decimal"], expected="Must be . or a comma.")
    if "decimal" in fields and not detects:
        expected = "It needs detect_types=True (--detect-types): otherwise fields are strings."
        raise InvalidOption(option="decimal", value=fields["decimal"], expected=expected)
    fields |= {"quote": fields.get("quote", '"') or None, "escape": fields.get("escape") or None, "detects": detects}
    names = frozenset(map(fold_name, shared)) - {""}
    return CsvDialect(**fields, known=names, max_record_bytes=max_record_bytes)


_OPTIONS = {
    **dict.fromkeys(("sep", "delimiter"), "separator"),
    **dict.fromkeys(("encoding", "charset"), "encoding"),
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "nullvalue": "null",
    "multiline": "multi_line",
    "decimal": "decimal",
}


def named_properties(options: Mapping[str, str]) -> frozenset[str]:
    """Return the properties of a dialect that options say."""
    return frozenset(_OPTIONS[name.lower()] for name in options)


def _ensure_encoding(name: str) -> None:
    try:
        # Python also finds codecs that are not for texts, such as base64; only a use of the codec shows it.
        "\n".encode(name)
    except (LookupError, ValueError) as error:
        raise InvalidOption(
            option="encoding", value=name, expected="Must be an encoding that Python supports."
        ) from error


def is_splittable(dialect: CsvDialect) -> bool:
    """Return whether a line break is a single byte in the encoding, so that a file can be read in blocks."""
    return "\n".encode(dialect.encoding) == b"\n"


def ensure_splittable(path: str, dialect: CsvDialect) -> None:
    """Check that a large file can be read in parts.

    Raises:
        SourceContentError: a line break is not a single byte in its encoding.
    """
    if not is_splittable(dialect):
        reason = f"the file is too large to be read in {dialect.encoding}"
        raise SourceContentError(source=path, reason=reason, fix="Convert it to UTF-8, or split it.")


def to_utf8(data: bytes, dialect: CsvDialect) -> bytes | None:
    """Return texts in UTF-8. Bytes that the encoding does not have become surrogates; None if it cannot do that."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig"):
        return data
    try:
        return data.decode(dialect.encoding, "surrogateescape").encode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None


def to_source_encoding(text: bytes, dialect: CsvDialect) -> bytes:
    """Return a text from `to_utf8` unchanged if it is UTF-8, else with the bytes that the file has."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig") or is_utf8(text):
        return text
    decoded = text.decode(errors="surrogatepass")
    try:
        return decoded.encode(dialect.encoding, "surrogateescape")
    except UnicodeEncodeError:  # UTF-16 cannot take one byte of its two
        return decoded.encode(dialect.encoding, "surrogatepass")


def is_utf8(text: bytes) -> bool:
    """Return whether a text is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# Where the rows of CSV begin and end, and which lines are not rows: a quote that is not closed swallows lines.
#
# A quoted field over several lines is damaged if text follows its closing quote, or if each of its lines looks like
# a row: it has as many fields as the header, and each field begins with a digit, a letter, a space or nothing, as
# that column does in the first 1,000 lines. A quote that is open at the end of the file makes the whole file
# unreadable.
#
# Source: RFC 4180; docs/evolution-rules.md#d16


LINE_END = re.compile(rb"\r\n|\r|\n")

STYLE_LINES, STYLE_BYTES = 1_000, 2**20
"""Maximum number of lines, and of their bytes, that are read to learn what rows look like."""


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A line that is not a row, or a part of one.

    Args:
        line: Its number, from 1, as an editor shows it.
        text: The line as the file has it, without its end.
    """

    line: int
    text: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class RowStyle:
    """How the rows of a file look.

    Args:
        kinds: How the values of each column begin; see `_kind`.
    """

    width: int
    kinds: tuple[frozenset[bytes], ...] = ()

    def is_row(self, line: bytes, dialect: CsvDialect) -> bool:
        """Return whether a line looks like a row by itself."""
        fields = _naive_fields(line, dialect)
        # Any line fits a file of one column: every line has one field.
        return 1 < self.width == len(fields) == len(self.kinds) and all(
            _kind(text) in kinds for text, kinds in zip(fields, self.kinds, strict=True)
        )


def learn_style(rows: bytes, width: int, dialect: CsvDialect) -> RowStyle:
    """Return what the first rows of a file look like, without its header. Rows over several lines do not count."""
    head = b"".join(rows[:STYLE_BYTES].splitlines(keepends=True)[:STYLE_LINES])
    kinds: list[set[bytes]] = [set() for _ in range(width)]
    at = 0
    spans = (
        [] if dialect.quote is None else [span for span in _find_spans(head, dialect, is_end=True) if span.has_break]
    )
    for start, end in [*((span.start, span.end) for span in spans), (len(head), len(head))]:
        for line in head[at:start].splitlines():
            fields = _naive_fields(line, dialect)
            if len(fields) == width:
                for each, text in zip(kinds, fields, strict=True):
                    each.add(_kind(text))
        at = end
    return RowStyle(width, tuple(map(frozenset, kinds)))


def _naive_fields(line: bytes, dialect: CsvDialect) -> list[bytes]:
    """Return the fields of a line as if it had no quotes."""
    quote = (dialect.quote or "\0").encode()
    return [text.removeprefix(quote) for text in line.split(dialect.separator.encode())]


def _kind(text: bytes) -> bytes:
    first = text[:1]
    return (
        b"0" if first.isdigit() or first in (b"-", b"+", b".") else b" " if first.isspace() else b"a" if first else b""
    )


@dataclass(slots=True)
class ScannedRows:
    """Complete rows of a file.

    Args:
        rows: The rows, with `marker` instead of each refused row.
        line: The line of the first row.
        refused: The lines of the row that each marker replaces.
        spans: The rows that take several lines or are refused, as offsets in ``data``.
    """

    rows: bytes
    line: int
    marker: bytes = b""
    refused: list[list[RefusedLine]] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    data: bytes = b""

    def row_lines(self, count: int) -> Sequence[int]:
        """Return the line of each row that is not blank.

        Args:
            count: Number of such rows; a marker counts as one.
        """
        data = self.data or self.rows
        if not self.spans and count_lines(data) == count:
            return range(self.line, self.line + count)
        lines, at, line = [], 0, self.line
        for start, end in [*self.spans, (len(data), len(data))]:
            for number, text in enumerate(data[at:start].splitlines(), line):
                if text:
                    lines.append(number)
            line += count_lines(data[at:start])
            if start < end:
                lines.append(line)
                line += count_lines(data[start:end])
            at = end
        return lines


def count_lines(data: bytes) -> int:
    """Return the number of lines; the last one may lack its end."""
    breaks = data.count(b"\n")
    if b"\r" in data:
        breaks += data.count(b"\r") - data.count(b"\r\n")
    return breaks + bool(data and not data.endswith((b"\n", b"\r")))


class RowScanner:
    """Finds the rows in the blocks of a file, one after the other.

    Args:
        path: URI of the file, for errors.
        line: The line where the first block begins.
    """

    def __init__(self, dialect: CsvDialect, style: RowStyle, path: str, line: int = 1) -> None:
        self._dialect, self._style, self._path, self._line = dialect, style, path, line
        self._pending, self._enough = b"", 0

    def scan(self, data: bytes, *, is_end: bool) -> ScannedRows:
        """Return the rows that are complete with another block. The rest waits for the next one."""
        data = self._pending + data
        # Check an incomplete row again only once it has doubled, so that the cost of a long row is not quadratic.
        if not is_end and len(data) < self._enough:
            self._pending = data
            return ScannedRows(b"", self._line)
        spans = self._find_spans(data, is_end=is_end)
        last = spans[-1] if spans else None
        if last is not None and last.is_open:
            if is_end:
                raise self._unreadable(data, last, "is not closed")
            complete = last.start
            spans.pop()
        elif is_end:
            complete = len(data)
        else:
            after = last.end if last else 0
            complete = after + _complete_bytes(data[after:])
        if len(data) - complete > self._dialect.max_record_bytes:
            if last is not None and last.is_open:
                raise self._unreadable(
                    data, last, f"is not closed within {size_limit_text(self._dialect.max_record_bytes)}"
                )
            raise record_too_long(self._path, None, self._dialect.max_record_bytes, line=self._line_at(data, complete))
        self._pending, rows = data[complete:], data[:complete]
        self._enough = 2 * len(self._pending)
        scanned = self._replace_refused(rows, spans)
        self._line += count_lines(rows)
        return scanned

    def _find_spans(self, data: bytes, *, is_end: bool) -> list[RowSpan]:
        quote = self._dialect.quote
        if quote is None or has_plain_quotes(data, self._dialect):
            return []
        return list(_find_spans(data, self._dialect, is_end=is_end))

    def _replace_refused(self, rows: bytes, spans: list[RowSpan]) -> ScannedRows:
        special: list[tuple[int, int, str]] = []  # where a row stands, and why it is not a row
        lines, at = self._line, 0
        for span in spans:
            lines += count_lines(rows[at : span.start])
            special.append((span.start, span.end, self._reason(rows, span, lines)))
            lines += count_lines(rows[span.start : span.end])
            at = span.end
        if not is_utf8(rows):
            special = list(self._with_undecodable(rows, special))
        if not special:
            return ScannedRows(rows, self._line)
        marker = new_marker(self._dialect, self._style.width)
        parts, refused, lines, at = [], [], self._line, 0
        for start, end, reason in special:
            lines += count_lines(rows[at:start])
            parts.append(rows[at:start])
            texts = rows[start:end].splitlines()
            if reason:
                parts.append(marker + b"\n")
                encoded = (
                    (number, to_source_encoding(text, self._dialect)) for number, text in enumerate(texts, lines)
                )
                refused.append([RefusedLine(number, text, not_a_record("CSV", reason)) for number, text in encoded])
            else:
                parts.append(rows[start:end])
            lines, at = lines + len(texts), end
        parts.append(rows[at:])
        places = [(start, end) for start, end, _ in special]
        return ScannedRows(b"".join(parts), self._line, marker, refused, places, rows)

    def _reason(self, data: bytes, span: RowSpan, line: int) -> str:
        """Return why a row is not one; empty if it is."""
        if span.defect is None:
            rows = data[span.start : span.end].splitlines()
            if self._dialect.multi_line or not all(self._style.is_row(each, self._dialect) for each in rows):
                return ""
            place = self._place(data, span, span.first_break, line)
            return f"the quote at {place} opens a field whose {len(rows)} lines look like rows"
        place = self._place(data, span, span.defect, line)
        if span.is_unclosed:
            return f"the quote at {place} is not closed"
        return f"the quote at {place} has text after its closing quote"

    def _place(self, data: bytes, span: RowSpan, at: int, line: int) -> str:
        before = data[span.start : at]
        column = len(before.splitlines()[-1].decode(errors="replace")) if before and not _ends_line(before) else 0
        return f"line {line + count_lines(before) - bool(column)}, column {column + 1}"

    def _with_undecodable(self, rows: bytes, special: list[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
        """Yield also the rows that are not UTF-8."""
        reason, at = f"it is not {self._dialect.encoding.upper()}", 0
        for start, end, own in [*special, (len(rows), len(rows), "")]:
            for line in rows[at:start].splitlines(keepends=True):
                if not is_utf8(line):
                    yield at, at + len(line), reason
                at += len(line)
            if start < end:
                yield start, end, own or ("" if is_utf8(rows[start:end]) else reason)
            at = end

    def _line_at(self, data: bytes, at: int) -> int:
        return self._line + count_lines(data[:at])

    def _unreadable(self, data: bytes, span: RowSpan, what: str) -> CorruptFile:
        assert span.defect is not None
        place = self._place(data, span, span.defect, self._line_at(data, span.start))
        return CorruptFile(path=self._path, reason=f"the quote at {place} {what}", fix=CLOSE_QUOTE)


def new_marker(dialect: CsvDialect, width: int) -> bytes:
    """Return a row that no file has, with another number of fields than the rows."""
    special = {dialect.separator, dialect.quote, dialect.escape}
    zero, one = [sign for sign in "\x03\x04\x05\x06\x0e" if sign not in special][:2]
    token = "".join(one if bit == "1" else zero for bit in f"{int.from_bytes(os.urandom(8), 'big'):064b}")
    return (token if width > 1 else token + dialect.separator).encode()


# ---- the header ------------------------------------------------------------------------------------


class Header(NamedTuple):
    """The first row of a file.

    Args:
        names: The names of the fields; empty if there is no row.
        rows: The text after it.
        line: The line where this text begins.
    """

    names: list[str]
    rows: bytes
    line: int


def read_header(data: bytes, dialect: CsvDialect, path: str) -> Header:
    """Return the names of the fields, and the rows without the header line. Blank lines before it are skipped.

    Raises:
        SourceContentError: the table does not have any of the fields, so the line is probably a record of a file
            without header.
        CorruptFile: a quote of the header is not closed, the header is not in the encoding, or it has only NULs.
    """
    data = data.removeprefix(BOM)
    start = _find_start(data, dialect)
    line = 1 + count_lines(data[:start])
    data = data[start:]
    line_end = _find_header_end(data, dialect, path, line)
    first = data if line_end is None else data[: line_end.start()]
    if len(first) > dialect.max_record_bytes:
        raise record_too_long(path, 0, dialect.max_record_bytes)
    # With replaced bytes, two names could become one, and their fields would merge.
    if dialect.header and not is_utf8(first):
        raise CorruptFile(path=path, reason=_explain_encoding(first, line, dialect), fix=SET_ENCODING)
    # Python's reader has a limit of its own, and needs the line breaks of a name.
    csv.field_size_limit(max(csv.field_size_limit(), len(first) + 1))
    # Without a header, only the number of fields counts; the row itself is then refused.
    text = first.decode(errors="replace").replace("\0", "")
    if first and not text:
        raise CorruptFile(path=path, reason="its first line has only NULs", fix=RESTORE_FILE)
    reader = csv.reader(
        [text],
        delimiter=dialect.separator,
        quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
        quotechar=dialect.quote,
        escapechar=None if dialect.escape == dialect.quote else dialect.escape,
        doublequote=dialect.escape in (None, dialect.quote),
    )
    fields = next(reader, [])
    if not dialect.header:
        return Header([f"_c{at}" for at in range(len(fields))], data, line)
    if dialect.known and fields and dialect.known.isdisjoint(map(fold_name, fields)):
        reason = "the table has none of the fields in its first line"
        raise SourceContentError(source=path, reason=reason, fix=_HEADER_FIX)
    rest = b"" if line_end is None else data[line_end.end() :]
    return Header(unique_names(fields), rest, line + count_lines(data[: len(data) - len(rest)]))


def _find_start(data: bytes, dialect: CsvDialect) -> int:
    """Return where the header begins: after blank lines, and the line that names the separator."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    if not dialect.has_separator_line:
        return start
    named = LINE_END.search(data, start)
    end = len(data) if named is None else named.end()
    return len(data) - len(data[end:].lstrip(b"\r\n"))


def read_head(data: bytes, dialect: CsvDialect, path: str) -> tuple[Header, RowStyle]:
    """Return the header of a file, and what its first rows look like."""
    data = _complete_lines(data)
    return look_at_head(to_utf8(data, dialect) or data, dialect, path)


def look_at_head(text: bytes, dialect: CsvDialect, path: str) -> tuple[Header, RowStyle]:
    """Return what `read_head` does."""
    header = read_header(_complete_lines(text), dialect, path)
    return header, learn_style(header.rows, len(header.names), dialect)


def _complete_lines(data: bytes) -> bytes:
    """Return a long beginning of a file without its last line, which may be cut."""
    return data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1] or data if len(data) > STYLE_BYTES // 2 else data


def _explain_encoding(header: bytes, line: int, dialect: CsvDialect) -> str:
    reason = f"the header in line {line} is not {dialect.encoding.upper()}"
    guess = guess_encoding(to_source_encoding(header, dialect))
    return reason if guess is None else f"{reason}; it is {guess}: set encoding={guess}"


_WORD = re.compile(rb"[A-Za-z\x80-\xff]+")


def guess_encoding(text: bytes) -> str | None:
    """Return the encoding of a text that is not UTF-8, where its bytes leave no doubt; else None.

    There is no doubt where words of ASCII letters have a few letters in between that all encodings of Europe with these
    letters share. A word without ASCII letters may be of any script.
    """
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    is_latin = all(2 * sum(byte > 127 for byte in word) < len(word) for word in words)
    try:
        readings = {text.decode(name) for name in ("windows-1252", "iso-8859-15", "windows-1250")}
    except UnicodeDecodeError:
        return None
    others = [sign for reading in readings for sign in reading if sign > "\x7f"]
    is_sure = bool(words) and is_latin and len(readings) == 1 and all(map(str.isalpha, others))
    return "windows-1252" if is_sure else None


_HEADER_FIX = (
    "If the file lacks its header, add the line with the names. If it has a different separator, set the option sep. "
    "If all its fields are new, set the option header=true."
)


def unique_names(fields: Iterable[str]) -> list[str]:
    """Return names without duplicates: a later one gets the first free number from 2 as a suffix."""
    names: list[str] = []
    for each in fields:
        numbered = (f"{each}_{number}" for number in count(2))
        names.append(each if each not in names else next(name for name in numbered if name not in names))
    return names


# ---- quoted fields ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowSpan:
    """A row with a quoted field that is not plain.

    Args:
        start: Where its first line begins.
        end: Where the line after it begins.
        defect: Where the field begins that makes it no row; None if its fields are well-formed.
        first_break: Where its first field over several lines begins.
        is_unclosed: Whether the field of the defect has no closing quote.
        is_open: Whether more text may belong to the row: the data ends within it.
    """

    start: int
    end: int
    defect: int | None = None
    first_break: int = -1
    is_unclosed: bool = False
    is_open: bool = False

    @property
    def has_break(self) -> bool:
        """Whether it takes several lines."""
        return self.first_break >= 0


_BLANKS = re.compile(rb" *")
"""Some writers pad fields, so spaces may follow a closing quote."""


@lru_cache(maxsize=16)
def _patterns(dialect: CsvDialect) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of a well-formed field on one line, and of any quoted field; it ends with its quote."""
    quote, separator = re.escape((dialect.quote or "\0").encode()), re.escape(dialect.separator.encode())
    # A field begins and ends beside a separator, a line break, or the end of the data. The quote is the first part of
    # the pattern, so that the search jumps from quote to quote; to look behind each byte takes five times as long.
    begin, end = rb"%b(?<![^%b\r\n]%b)" % (quote, separator, quote), rb"(?![^%b\r\n])" % separator
    escape = dialect.escape

    def inside(breaks: bytes) -> bytes:
        if escape is None or escape == dialect.quote:
            return rb"[^%b%b]*(?:%b%b[^%b%b]*)*" % (quote, breaks, quote, quote, quote, breaks)
        sign = re.escape(escape.encode())
        return rb"[^%b%b%b]*(?:%b[^%b][^%b%b%b]*)*" % (
            quote,
            sign,
            breaks,
            sign,
            breaks or rb"\x00",
            quote,
            sign,
            breaks,
        )

    plain = re.compile(begin + inside(rb"\r\n") + quote + end, re.DOTALL)
    any_field = begin + inside(rb"\r\n" if dialect.multi_line is False else b"") + b"(" + quote + b"?)"
    return plain, re.compile(any_field, re.DOTALL)


def _find_spans(data: bytes, dialect: CsvDialect, *, is_end: bool) -> Iterator[RowSpan]:
    """Yield the rows with a quoted field that has a line break, or that is not well-formed."""
    separator, row = dialect.separator.encode(), None
    for match in _patterns(dialect)[1].finditer(data):
        start, end = match.span()
        has_break = data.find(b"\n", start, end) >= 0 or data.find(b"\r", start, end) >= 0
        is_open = not match[1] and dialect.multi_line is not False
        after = _BLANKS.match(data, end).end()  # type: ignore[union-attr]
        is_defect = not match[1] or data[after : after + 1] not in (b"", b"\n", b"\r", separator)
        if row is not None and start >= row.end:
            yield row
            row = None
        if not (has_break or is_defect):
            continue
        if row is None:
            begin = max(data.rfind(b"\n", 0, start), data.rfind(b"\r", 0, start)) + 1
            row = RowSpan(begin, begin)
        if is_defect and row.defect is None:
            row = replace(row, defect=start, is_unclosed=not match[1])
        if has_break and not row.has_break:
            row = replace(row, first_break=start)
        if is_open:
            yield replace(row, defect=start, end=len(data), is_open=True)
            return
        line_end = LINE_END.search(data, end)
        is_cut = line_end is None or (line_end[0] == b"\r" and line_end.end() == len(data))
        if is_cut and not is_end:
            yield replace(row, end=len(data), is_open=True, defect=row.defect if row.defect is not None else start)
            return
        row = replace(row, end=len(data) if line_end is None else line_end.end())
    if row is not None:
        yield row


def _find_header_end(data: bytes, dialect: CsvDialect, path: str, line: int) -> re.Match[bytes] | None:
    """Return the end of the first row; None if the data has only one.

    Raises:
        CorruptFile: a quote of the row is not closed.
    """
    at = 0
    while True:
        line_end = LINE_END.search(data, at)
        quoted = None if dialect.quote is None else _patterns(dialect)[1].search(data, at)
        if quoted is None or (line_end is not None and line_end.start() <= quoted.start()):
            return line_end
        if not quoted[1]:
            place = line - 1 + count_lines(data[: quoted.start()] + b"x")
            raise CorruptFile(path=path, reason=f"a quote in line {place}, the header, is not closed", fix=CLOSE_QUOTE)
        at = quoted.end()


def has_plain_quotes(data: bytes, dialect: CsvDialect) -> bool:
    """Return whether every quote belongs to a well-formed field on one line, as in most blocks."""
    quote, separator = (dialect.quote or "").encode(), dialect.separator.encode()
    if quote not in data:
        return True
    scan = getattr(find_kernel(), "has_plain_quotes", None)
    if scan is not None and len(quote) == len(separator) == 1 and dialect.escape in (None, dialect.quote):
        return bool(scan(data, quote[0], separator[0]))
    return quote not in _patterns(dialect)[0].sub(b"", data)


def has_breaks(data: bytes, dialect: CsvDialect) -> bool:
    """Return whether a quoted field in lines may go on in another line."""
    if dialect.quote is None or dialect.multi_line is False or has_plain_quotes(data, dialect):
        return False
    return any(span.has_break or span.is_open for span in _find_spans(data, dialect, is_end=True))


def _ends_line(data: bytes) -> bool:
    return data.endswith((b"\n", b"\r"))


def _complete_bytes(data: bytes) -> int:
    r"""Return the end of the last complete line. A ``\r`` at the end may be half of a ``\r\n``."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


# Rows of CSV as columns of texts, parsed by Arrow, and as JSON texts.
#
# An empty field is null, and a quoted empty field is the empty string. A row with another number of fields than the
# first line is not a record and is kept as a whole.
#
# Source: RFC 4180; docs/evolution-rules.md#d11, #d16


FRACTION_PATTERN = r"-?(?:0|[1-9][0-9]{0,9})\.[0-9]{0,4}[1-9]"
"""Fractions that are short enough for an exact double, without trailing zeros."""

NUMBER_PATTERN = rf"0|-?[1-9][0-9]{{0,37}}|{FRACTION_PATTERN}"
"""Texts that a JSON number restores exactly."""

EXACT_VALUES = rf"true|false|{NUMBER_PATTERN}"
"""Texts of numbers and booleans that every column for them restores exactly."""

WRITTEN_VALUES = rf"{EXACT_VALUES}|-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?"
"""Also the fractions that only a decimal gives back as they are, such as 12.50, and all other fractions of JSON."""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Adjacent records of one file as columns of texts.

    Args:
        part: The byte where the split of a large file begins.
        columns: The texts of each field; null for a missing value.
        lines: The line of each record in the file, or in its part.
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
    """

    file: str
    part: int
    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    lines: Sequence[int]
    refused: tuple[RefusedLine, ...]
    detects: str

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.columns[0])

    def take(self, indexes: pa.Array) -> FieldGroup:
        """Return the records at some indexes, without refused lines."""
        columns, lines = tuple(column.take(indexes) for column in self.columns), self.lines
        return replace(self, columns=columns, lines=[lines[at] for at in indexes.to_pylist()], refused=())

    def slice(self, start: int, length: int) -> FieldGroup:
        """Return some adjacent records, without refused lines."""
        columns = tuple(column.slice(start, length) for column in self.columns)
        return replace(self, columns=columns, lines=self.lines[start : start + length], refused=())

    def to_json_texts(self) -> list[bytes]:
        """Return the JSON text of each record."""
        rows = zip(*(column.to_pylist() for column in self.columns), strict=True)
        return [to_json_record(dict(zip(self.names, row, strict=True)), detects=self.detects) for row in rows]

    def to_text_groups(self) -> Iterator[TextGroup]:
        """Yield the records as JSON texts, and the refused lines."""
        if self.records:
            yield TextGroup(self.file, self.part, False, self.to_json_texts(), self.lines)
        if self.refused:
            texts, lines = [each.text for each in self.refused], [each.line for each in self.refused]
            yield TextGroup(self.file, self.part, False, texts, lines, [each.reason for each in self.refused])

    def to_raw(self) -> Iterator[pa.RecordBatch]:
        """Yield the records and the refused lines as parts of a raw batch."""
        for group in self.to_text_groups():
            if group.reasons is None:
                yield as_raw_records(group.texts, group.file, group.part)
            else:
                refused = RefusedTexts(group.part, group.texts, list(group.lines or ()), list(group.reasons))
                yield refused.to_raw(group.file)


def parse_rows(
    scanned: ScannedRows, names: Sequence[str], dialect: CsvDialect, file: str = "", part: int = 0
) -> Iterator[FieldGroup | TextGroup]:
    """Yield rows as columns of texts, unless there are no rows.

    Args:
        part: The byte where their split begins.
    """
    if not scanned.rows.strip(b"\r\n") or not names:
        return
    columns, others = _read_columns(scanned.rows, len(names), dialect)
    lines = scanned.row_lines(len(columns[0]) + len(others))
    refused, kept, markers = [], set(range(len(lines))), iter(scanned.refused)
    marker, first = scanned.marker.decode(), "header" if dialect.header else "first row"
    for index, text, width in others:
        kept.discard(index)
        if marker and text == marker:
            refused += next(markers)
            continue
        reason = not_a_record("CSV", f"{width} field{'s' * (width != 1)} where the {first} has {len(names)}")
        texts = (to_source_encoding(each, dialect) for each in text.encode().splitlines())
        refused += [RefusedLine(number, each, reason) for number, each in enumerate(texts, lines[index])]
    record_lines = [lines[index] for index in sorted(kept)] if others else lines
    group = FieldGroup(file, part, tuple(names), tuple(columns), record_lines, tuple(refused), dialect.detects)
    yield from (group,) if dialect.decimal == "." or not dialect.detects else _with_points(group)


def _with_points(group: FieldGroup) -> Iterator[FieldGroup | TextGroup]:
    """Yield records with numbers that have a comma before the fraction, as others write them.

    A text that would be a number with a point is not one here. The few records with one go without detection.
    """
    pattern = group.detects.replace(r"\.", ",")
    columns, is_text = [], pa.repeat(pa.scalar(False), group.records)
    for texts in group.columns:
        has_point = pc.and_(pc.match_substring_regex(texts, f"^(?:{group.detects})$"), pc.match_substring(texts, "."))
        is_text = pc.or_(is_text, pc.fill_null(has_point, False))
        is_number = pc.and_(pc.match_substring_regex(texts, f"^(?:{pattern})$"), pc.match_substring(texts, ","))
        columns.append(pc.if_else(is_number, pc.replace_substring(texts, ",", "."), texts))
    if not is_text.true_count:
        yield replace(group, columns=tuple(columns))
        return
    plain = replace(group, columns=tuple(columns)).take(pc.indices_nonzero(pc.invert(is_text)))
    yield replace(plain, refused=group.refused)
    others = group.take(pc.indices_nonzero(is_text))
    is_value = re.compile(pattern).fullmatch
    texts = []
    for row in zip(*(column.to_pylist() for column in others.columns), strict=True):
        values = {
            name: msgspec.Raw(text.replace(",", ".").encode()) if text and is_value(text) else text
            for name, text in zip(group.names, row, strict=True)
        }
        texts.append(_encode(values))
    yield TextGroup(group.file, group.part, False, texts, others.lines)


def _read_columns(rows: bytes, width: int, dialect: CsvDialect) -> tuple[list[pa.Array], list[tuple[int, str, int]]]:
    """Return the columns of rows in UTF-8, and the rows with another width: their indexes, texts and widths."""
    refused: list[tuple[int, str, int]] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        refused.append((max((row.number or 0) - 1, 0), row.text, row.actual_columns))
        return "skip"

    keys = [str(at) for at in range(width)]
    # At the end of the data, Arrow takes an empty field after a quoted one for a quoted empty field, which is not null.
    rows += b"" if _ends_line(rows) else b"\n"
    table = pa.csv.read_csv(
        pa.BufferReader(rows),
        # With threads, Arrow does not know the numbers of invalid rows. A row with line breaks cannot span two blocks.
        read_options=pa.csv.ReadOptions(column_names=keys, use_threads=False, block_size=len(rows) + 1),
        parse_options=pa.csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            double_quote=dialect.quote is not None and dialect.escape in (None, dialect.quote),
            escape_char=False if dialect.escape in (None, dialect.quote) else dialect.escape,
            newlines_in_values=True,
            invalid_row_handler=refuse,
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[dialect.null],
            check_utf8=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns], refused


def to_json_record(fields: Mapping[str, str | None], *, detects: str) -> bytes:
    """Return a record as JSON.

    Args:
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
    """
    if not detects:
        return _encode(fields)
    is_value = re.compile(detects).fullmatch
    return _encode(
        {name: msgspec.Raw(text.encode()) if text and is_value(text) else text for name, text in fields.items()}
    )


_encode = msgspec.json.Encoder().encode
