"""The proof's own CSV reader: files to records as JSON texts, and to the lines that are not records.

It shares no code with the reader of the writer, which finds rows by patterns and parses them with Arrow. This one walks
over the fields.

Source: RFC 4180; docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, TypeAlias

import msgspec

from widen.errors import CorruptFile
from widen.model.value_classes import dataclass

HEAD_LINES, HEAD_BYTES = 1_000, 2**20
"""Number of lines, and of their bytes, that tell how the rows of a file look."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How CSV files are written.

    Args:
        quote: Character around quoted fields; empty for no quoting.
        escape: Character that makes the next one part of a field; empty if a quote is doubled.
        has_header: Whether the first row has the names.
        null: Unquoted text of null.
        is_multi_line: Whether quoted fields may take several lines; None if they may, unless they look damaged.
        values: Pattern of the texts that become numbers and booleans; empty if none do.
        spelling: Which texts the pattern stands for, for the native reader: ``exact`` for those that come back as they
            are, ``written`` if other fractions are among them; empty for no pattern, or another one.
        decimal: What begins the fraction of a number.
        skips_first_line: Whether the first line, which is not blank, is no row.
    """

    separator: bytes = b","
    quote: bytes = b'"'
    escape: bytes = b""
    has_header: bool = True
    null: bytes = b""
    encoding: str = "utf-8"
    is_multi_line: bool | None = None
    values: str = ""
    spelling: str = ""
    decimal: str = "."
    skips_first_line: bool = False

    @property
    def is_native(self) -> bool:
        """Whether the native reader may read the files."""
        return self.is_utf8 and self.decimal == "."

    @property
    def is_utf8(self) -> bool:
        """Whether the files need not be decoded."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")


class CsvText(NamedTuple):
    """A record as JSON, or a line that is not a record."""

    text: bytes
    is_record: bool


Kinds: TypeAlias = Sequence[frozenset[bytes]]
"""How the values of each column begin."""


class CsvHead(NamedTuple):
    """What the beginning of a file tells.

    Args:
        names: The names of the fields.
        kinds: How the values of each column begin in the first lines.
        size: Number of bytes before the first record.
    """

    names: tuple[str, ...]
    kinds: Kinds
    size: int


@dataclass(slots=True)
class _Row:
    """A row while its lines are read.

    Args:
        open: The beginning of the quoted field that the last line did not close; None without such a field.
        has_break: Whether a quoted field takes several lines.
        is_broken: Whether text follows a closing quote, or a quote is not closed.
    """

    lines: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    open: list[bytes] | None = None
    has_break: bool = False
    is_broken: bool = False


def read_csv_file(data: bytes, form: CsvForm) -> Iterator[CsvText]:
    """Yield the texts of a file."""
    text = recode(data, form)
    if text is None:
        yield CsvText(data, False)
        return
    head = read_csv_head(text, form)
    yield from CsvReader(form, head).read(text[head.size :].splitlines(keepends=True), is_end=True)


def read_csv_head(text: bytes, form: CsvForm) -> CsvHead:
    """Return what the beginning of a file tells.

    Args:
        text: At least the first `HEAD_BYTES` in UTF-8, or the whole file.
    """
    start = text.removeprefix(_BOM)
    size = len(text) - len(start.lstrip(b"\r\n"))
    if form.skips_first_line:
        (_, *rest) = text[size:].split(b"\n" if b"\n" in text[size:] else b"\r", 1)
        size = len(text) - len((rest or [b""])[0].lstrip(b"\r\n"))
    lines = text[size : size + HEAD_BYTES].splitlines(keepends=True)
    walker = _RowWalker(form)
    first = next(walker.rows(lines, is_end=True), _Row())
    names = [_to_name(value or b"", form) for value in first.values]
    # The text of null is a name in a header: no field is called null.
    if form.null:
        names = [form.null.decode() if value is None else name for value, name in zip(first.values, names, strict=True)]
    if form.has_header:
        names = _tell_apart(names)
        size += sum(map(len, first.lines))
    else:
        names = [f"_c{number}" for number in range(len(names))]
    return CsvHead(tuple(names), _learn_kinds(text[size:], len(names), form), size)


def _to_name(value: bytes, form: CsvForm) -> str:
    try:
        return value.decode().replace("\0", "")
    except UnicodeDecodeError as error:
        if form.has_header:
            reason, fix = f"a name in its header is not {form.encoding.upper()}", "Set the option encoding."
            raise CorruptFile(path="a CSV file of the source", reason=reason, fix=fix) from error
        return ""


def _tell_apart(names: Sequence[str]) -> list[str]:
    """Return unique names: a name that came before gets the first free number from 2."""
    seen: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in seen:
            unique, number = f"{name}_{number}", number + 1
        seen.append(unique)
    return seen


def _learn_kinds(text: bytes, width: int, form: CsvForm) -> Kinds:
    # The last line may be cut, if the text is long.
    head = text[:HEAD_BYTES].splitlines(keepends=True)
    lines = head[: -1 if len(text) >= HEAD_BYTES // 2 and not _has_end(head[-1]) else None][:HEAD_LINES]
    kinds: list[set[bytes]] = [set() for _ in range(width)]
    for row in _RowWalker(form).rows(lines, is_end=True):
        fields = _split_plainly(row.lines[0], form)
        if len(row.lines) == 1 and len(fields) == width:
            for each, value in zip(kinds, fields, strict=True):
                each.add(_kind(value))
    return [frozenset(each) for each in kinds]


def _has_end(line: bytes) -> bool:
    return line.endswith((b"\n", b"\r"))


def _split_plainly(line: bytes, form: CsvForm) -> list[bytes]:
    """Return the fields of a line as if quotes had no meaning."""
    return [value.removeprefix(form.quote) for value in _without_end(line).split(form.separator)]


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\r\n") if line.endswith(b"\r\n") else line.removesuffix(b"\n").removesuffix(b"\r")


_DIGIT, _SPACE, _LETTER = b"0", b" ", b"a"


def _kind(value: bytes) -> bytes:
    if not value:
        return b""
    if value[:1] in b"0123456789+-.":
        return _DIGIT
    return _SPACE if value[:1].isspace() else _LETTER


class _RowWalker:
    """Walks over lines, and cuts them into rows and fields."""

    def __init__(self, form: CsvForm) -> None:
        self._form, self._row = form, _Row()
        special = form.quote + form.escape
        # What has neither is split at the separators.
        self._is_special = re.compile(b"[" + re.escape(special) + b"]").search if special else lambda _: None

    def rows(self, lines: Iterable[bytes], *, is_end: bool) -> Iterator[_Row]:
        """Yield the rows in lines, without blank ones. A row that is not complete waits for the next lines."""
        for line in lines:
            row = self._row
            if row.open is None and not self._is_special(line):
                values = _without_end(line)
                if values:
                    yield _Row([line], [self._plain(value) for value in values.split(self._form.separator)])
                continue
            row.lines.append(line)
            if self._walk(row, line):
                self._row = _Row()
                yield row
        if is_end and self._row.lines:
            row, self._row = self._row, _Row()
            row.is_broken = True
            yield row

    def _plain(self, value: bytes) -> bytes | None:
        return None if value == self._form.null else value

    def _walk(self, row: _Row, line: bytes) -> bool:
        """Add the fields of a line to a row, and return whether the row is complete."""
        form, at, end = self._form, 0, len(_without_end(line))
        while True:
            if row.open is None and form.quote and line.startswith(form.quote, at):
                row.open, at = [], at + 1
            if row.open is not None:
                closed = self._find_close(row.open, line, at)
                # A field ends on its line here, so this line is damaged, and the next one is a row of its own.
                if closed < 0 and form.is_multi_line is False:
                    row.is_broken, row.open = True, None
                    row.values.append(b"")
                    return True
                if closed < 0:
                    row.has_break = row.has_break or _has_end(line)
                    return False
                after = self._find_separator(line, closed, end)
                rest = line[closed:after]
                row.is_broken = row.is_broken or bool(rest.strip(b" "))
                row.values.append(b"".join(row.open) + rest)
                row.open, at = None, after
            else:
                after = self._find_separator(line, at, end)
                if after > end:  # the end of the line is escaped, and belongs to the field
                    row.is_broken, row.has_break = True, True
                    after = end
                row.values.append(self._plain(self._unescape(line[at:after])))
                at = after
            if at >= end:
                return True
            at += 1

    def _find_close(self, found: list[bytes], line: bytes, at: int) -> int:
        """Return where a quoted field ends, after its quote; -1 if it goes on. Its text is added to what was found."""
        quote, escape = self._form.quote, self._form.escape
        while True:
            stop = line.find(quote, at)
            escaped = line.find(escape, at) if escape else -1
            if escaped >= 0 and (escaped < stop or stop < 0):
                found += line[at:escaped], line[escaped + 1 : escaped + 2]
                at = escaped + 2
            elif stop < 0:
                found.append(line[at:])
                return -1
            elif not escape and line.startswith(quote, stop + 1):
                found.append(line[at : stop + 1])
                at = stop + 2
            else:
                found.append(line[at:stop])
                return stop + 1

    def _find_separator(self, line: bytes, at: int, end: int) -> int:
        """Return where the next separator is, or the end of the line; one more if that is escaped."""
        escape = self._form.escape
        while True:
            stop = line.find(self._form.separator, at, end)
            escaped = line.find(escape, at, end) if escape else -1
            if escaped < 0 or 0 <= stop < escaped:
                return end if stop < 0 else stop
            at = escaped + 2
            if at > end:
                return end + 1

    def _unescape(self, value: bytes) -> bytes:
        escape = re.escape(self._form.escape)
        return re.sub(escape + b"(.)", rb"\1", value, flags=re.DOTALL) if escape else value


class CsvReader:
    """Reads the rows of a file after its header."""

    def __init__(self, form: CsvForm, head: CsvHead) -> None:
        self._form, self._names, self._kinds = form, head.names, head.kinds
        self._walker = _RowWalker(form)
        self._is_value = re.compile(form.values).fullmatch if form.values else None

    def read(self, lines: Iterable[bytes], *, is_end: bool = False) -> Iterator[CsvText]:
        """Yield the texts of lines in UTF-8. A row that is not complete waits for the next lines."""
        if not self._names:
            return
        width = len(self._names)
        for row in self._walker.rows(lines, is_end=is_end):
            record = None
            if len(row.values) == width and not row.is_broken and not (row.has_break and self._is_swallowing(row)):
                record = self._to_json(row.values)
            if record is not None:
                yield CsvText(record, True)
                continue
            for line in row.lines:
                yield CsvText(_to_source(_without_end(line), self._form), False)

    def _is_swallowing(self, row: _Row) -> bool:
        """Return whether each line of a row looks like a row, so that a stray quote has made one of them."""
        # In  1,"a  and  2,"b  the first quote is closed by the second one, lines later. Each line still has as many
        # fields as the others, with digits where they have digits, which the lines of a real text rarely do.
        return not self._form.is_multi_line and all(map(self._looks_like_row, row.lines))

    def _looks_like_row(self, line: bytes) -> bool:
        fields = _split_plainly(line, self._form)
        return 1 < len(fields) == len(self._kinds) and all(
            _kind(value) in kinds for value, kinds in zip(fields, self._kinds, strict=True)
        )

    def _to_json(self, values: Sequence[bytes | None]) -> bytes | None:
        """Return a record as JSON; None if it is not in its encoding."""
        try:
            texts = [None if value is None else value.decode() for value in values]
        except UnicodeDecodeError:
            return None
        record: dict[str, object] = dict(zip(self._names, texts, strict=True))
        if self._is_value is not None and self._form.decimal != ".":
            for name, text in zip(self._names, texts, strict=True):
                number = text.replace(self._form.decimal, ".") if text and "." not in text else ""
                if number and self._is_value(number):
                    record[name] = msgspec.Raw(number.encode())
        elif self._is_value is not None:
            for name, text in zip(self._names, texts, strict=True):
                if text and self._is_value(text):
                    # In its spelling: as a float it would agree with a column that has lost its last digits.
                    record[name] = msgspec.Raw(text.encode())
        return _encode(record)


_encode = msgspec.json.Encoder().encode


def is_one_row(line: bytes, form: CsvForm) -> bool:
    """Return whether a line with its end does not need the next one."""
    (row,) = list(_RowWalker(form).rows([line], is_end=True)) or [_Row()]
    return row.open is None and not row.has_break


def recode(data: bytes, form: CsvForm) -> bytes | None:
    """Return a text in UTF-8. Bytes that the encoding does not have become surrogates; None if it cannot do that."""
    if form.is_utf8:
        return data
    try:
        return data.decode(form.encoding, "surrogateescape").encode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None


def _to_source(line: bytes, form: CsvForm) -> bytes:
    """Return a line as the file has it: where it is not in its encoding, with the bytes of the file."""
    try:
        line.decode()
    except UnicodeDecodeError:
        if form.is_utf8:
            return line
    else:
        return line
    text = line.decode(errors="surrogatepass")
    try:
        return text.encode(form.encoding, "surrogateescape")
    except UnicodeEncodeError:
        return text.encode(form.encoding, "surrogatepass")
