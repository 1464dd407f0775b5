"""Parse JSON without loss, and split a file into records.

Numbers keep their spelling, and a text that cannot be stored exactly is rejected.

Source: RFC 8259; JSON Lines; docs/evolution-rules.md#d3, #d11
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any, NoReturn, TypeAlias

import msgspec

from widen.errors import CorruptFile
from widen.model.value_classes import dataclass

BOM = b"\xef\xbb\xbf"

MAX_LEVELS = 41
"""The most levels of nested records and arrays in a table; the record itself is the first. deltalake cannot open
tables with more than 41 nested structs, since its JSON reader stops at 128 levels of the schema's text."""


class JsonNumber(str):
    """A JSON number in the spelling of the source. The class only distinguishes it from a string."""

    __slots__ = ()


class IntegralNumber(JsonNumber):
    """The digits of an integer that the source spells as a fraction, such as 1 for 1.0.

    Attributes:
        spelling: The number in the spelling of the source.
    """

    __slots__ = ("spelling",)
    spelling: str


def spelling_of(text: str) -> str:
    """Return a number, or another text, in the spelling of the source."""
    return text.spelling if isinstance(text, IntegralNumber) else str(text)


class JsonText(str):
    """The JSON text of a record or array that is nested too deeply; `document_to_json` embeds it unquoted."""

    __slots__ = ()


class DateText(str):
    """A string that is read as a date, in the spelling of the source."""

    __slots__ = ()


class TimestampText(str):
    """A string that is read as a timestamp, in the spelling of the source.

    Attributes:
        moment: The instant, in UTC without a time zone; only set if the text is not in the form of ISO 8601 that
            `widen.json.kinds.parse_instant` reads.
    """

    __slots__ = ("moment",)
    moment: datetime


class EpochNumber(TimestampText):
    """An integer that is read as a timestamp, in the spelling of the source; `document_to_json` writes a number."""

    __slots__ = ()


class LocalTimeText(str):
    """A string that is read as a timestamp without a time zone, in the spelling of the source.

    Attributes:
        moment: The time; see `TimestampText`.
    """

    __slots__ = ("moment",)
    moment: datetime


class MapEntries(dict[str, "JsonDocument"]):
    """An object that is read as a map: its keys are data, not field names."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InvalidJson:
    """Why a text is not a document that can be stored exactly."""

    reason: str


def not_a_record(kind: str, why: str) -> str:
    """Return why a text is corrupt: which kind of record it is not, and why not.

    Example:
        >>> not_a_record("Avro", "a text is not UTF-8")
        'not an Avro record: a text is not UTF-8'
    """
    return f"not {'an' if kind[0] in 'AO' else 'a'} {kind} record: {why}"


def not_a_document(why: str) -> str:
    """Return why a text has no records below a path."""
    return f"not a JSON document with records: {why}"


def corrupt_words(count: int, *reasons: str) -> tuple[str, str]:
    """Return what texts are called that could not be read, and what is wrong with them: JSON and CSV have lines.

    Example:
        >>> corrupt_words(1, "not a JSON record: expecting value"), corrupt_words(2, "not an Avro record: a text")
        (('line', 'is not a record'), ('records', 'could not be read'))
    """
    if all(not each or each.startswith(_OF_LINES) for each in reasons):
        return ("line", "is not a record") if count == 1 else ("lines", "are not records")
    return "record" if count == 1 else "records", "could not be read"


_OF_LINES = (not_a_record("JSON", ""), not_a_document(""), not_a_record("CSV", ""))

JsonDocument: TypeAlias = Any
"""A dict, list, str, JsonNumber, JsonText, bool or None; the items of dicts and lists are also documents.

After `widen.json.field_rules.FieldRules` are applied, a str may be a DateText, a TimestampText, an EpochNumber or a
LocalTimeText, and a dict may be MapEntries.
"""


class _RejectedError(Exception):
    """Carries the reason out of the hooks of the JSON decoder."""


def parse_document(data: bytes, above: int = 0, *, allows_nan: bool = False) -> JsonDocument | InvalidJson:
    """Return the document of a JSON text, or why the text is rejected.

    A text is rejected if no column could store it exactly: it is not JSON (NaN and Infinity are not), not UTF-8, has
    duplicate keys or half of a surrogate pair, or has hundreds of nested levels. A record or array nested in
    `MAX_LEVELS` others becomes a `JsonText`.

    Args:
        above: How many records and arrays contain the value, if it is a part of a text.

    Source: RFC 8259; docs/evolution-rules.md#d11, #d23

    Example:
        >>> parse_document(b'{"a": 1.10}'), parse_document(b'{"a":1,"a":2}')
        ({'a': '1.10'}, InvalidJson(reason="the key 'a' appears twice in one object"))
    """
    try:
        text = data.removeprefix(BOM).decode()
        document = (_lenient_decoder if allows_nan else _decoder).decode(text)
        if data.count(b"{") + data.count(b"[") + above > MAX_LEVELS:
            # A top-level array of records is not a level of the table: each record may use all levels.
            is_batch = not above and isinstance(document, list) and all(isinstance(item, dict) for item in document)
            document = [_limit_levels(item) for item in document] if is_batch else _limit_levels(document, above)
        # Only an escape can spell half of a surrogate pair; encoding the document finds it.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return InvalidJson("it is not UTF-8")
    except UnicodeEncodeError:
        return InvalidJson("it has half of a surrogate pair")
    except RecursionError:
        return InvalidJson(_TOO_DEEP)
    except json.JSONDecodeError as error:
        what = error.msg.rstrip(": ").removesuffix(" at")
        return InvalidJson(f"{what[0].lower()}{what[1:]} at character {error.pos + 1}")
    except _RejectedError as error:
        return InvalidJson(str(error))
    return document


def has_leaf(document: JsonDocument) -> bool:
    """Return whether a document has a value other than null, ``[]`` and ``{}``.

    Source: docs/evolution-rules.md#d7
    """
    if isinstance(document, dict):
        return any(map(has_leaf, document.values()))
    return any(map(has_leaf, document)) if isinstance(document, list) else document is not None


def parse_nested(text: JsonText) -> JsonDocument:
    """Return the document of a text that replaces a nested one, with all its levels."""
    return _lenient_decoder.decode(text)


def document_to_json(document: JsonDocument) -> str:
    """Return the JSON text of a document, with the numbers in their original spelling."""
    if isinstance(document, str):
        return (
            spelling_of(document)
            if isinstance(document, (JsonNumber, JsonText, EpochNumber))
            else encode_basestring(document)
        )
    if isinstance(document, dict):
        fields = [f"{document_to_json(key)}:{document_to_json(value)}" for key, value in document.items()]
        return "{" + ",".join(fields) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(document_to_json, document)) + "]"
    return json.dumps(document, ensure_ascii=False)


_MAX_TEXT_LEVELS = 200
"""The most nested records and arrays in a text: a limit that does not depend on Python's stack."""

_TOO_DEEP = f"more than {_MAX_TEXT_LEVELS} nested records and arrays"


def _limit_levels(document: JsonDocument, above: int = 0) -> JsonDocument:
    """Return a document whose records and arrays below the last level are replaced by their JSON text.

    Args:
        above: How many records and arrays contain it.

    Source: docs/evolution-rules.md#d23
    """
    levels = MAX_LEVELS - above
    if levels <= 0:
        return _to_json_text(document, above) if isinstance(document, (dict, list)) else document
    groups = [document] if isinstance(document, (dict, list)) else []
    for _ in range(levels - 1):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
    for group in groups:
        for key, item in _items(group):
            if isinstance(item, (dict, list)):
                group[key] = _to_json_text(item, MAX_LEVELS)
    return document


def _to_json_text(document: JsonDocument, above: int) -> JsonText:
    _ensure_depth(document, _MAX_TEXT_LEVELS - above)
    return JsonText(document_to_json(document))


def _items(group: Any) -> list[tuple[Any, JsonDocument]]:
    return list(group.items() if isinstance(group, dict) else enumerate(group))


def _ensure_depth(document: JsonDocument, levels: int) -> None:
    groups = [document]
    for _ in range(levels):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
        if not groups:
            return
    raise _RejectedError(_TOO_DEEP)


def _to_record(pairs: list[tuple[str, JsonDocument]]) -> dict[str, JsonDocument]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RejectedError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} appears twice in one object")
    return record


def _reject_constant(token: str) -> NoReturn:
    raise _RejectedError(f"{token} is not JSON; allow_nan (--allow-nan) reads it as a double")


_decoder, _lenient_decoder = (
    json.JSONDecoder(object_pairs_hook=_to_record, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=read)
    for read in (_reject_constant, JsonNumber)
)
"""The lenient one also reads what `parse_document` was allowed to keep in a text: NaN, Infinity and -Infinity."""


# Corrupt records as text, without loss: the original bytes can be restored from the text.
#
# UTF-8 bytes are decoded. Other bytes are written in the notation of Python, ``b'...'``. Text that already begins
# like that is written in this notation too, so that a text never means two different contents.
#
# Source: docs/evolution-rules.md#d11


_LITERAL_PREFIXES = ("b'", 'b"')


def corrupt_bytes_to_text(data: bytes) -> str:
    r"""Return the text to store for the bytes of a corrupt record.

    Example:
        >>> corrupt_bytes_to_text(b"no"), corrupt_bytes_to_text(b"no\xff")
        ('no', "b'no\\xff'")
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(data) if text.startswith(_LITERAL_PREFIXES) else text


def corrupt_text_to_bytes(text: str) -> bytes:
    r"""Return the original bytes of a text from `corrupt_bytes_to_text`.

    Example:
        >>> corrupt_text_to_bytes("no"), corrupt_text_to_bytes("b'no\\xff'")
        (b'no', b'no\xff')
    """
    if not text.startswith(_LITERAL_PREFIXES):
        return text.encode()
    data = ast.literal_eval(text)
    assert isinstance(data, bytes)
    return data


# Split a whole file into records: JSON lines, an array of records, one document, or concatenated documents.
#
# Source: RFC 8259; JSON Lines; docs/guide/json.md#documents


_array = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)

_JSON_SPACE = b" \t\r\n"
_ADJACENT_RECORDS = re.compile(rb"\}[ \t]*\{")
_BLANKS, _SPACES, _LINE_END = re.compile(r"[ \t]*"), re.compile(r"[ \t\r\n]*"), re.compile(r"[\r\n]")


def split_records(data: bytes) -> Iterator[bytes]:
    r"""Yield the JSON texts of a file in order, unchanged.

    A file that is one JSON value yields that value, or its elements if it is an array, also one with damaged elements
    or without its end. Any other file yields its records, whether a line has one record, several, or a part of one.
    Each line between records that is not part of a record is a text too, so that nothing is lost. A file without a
    record is one text. An empty file yields nothing.

    Example:
        >>> list(split_records(b'[{"a": 1}, 2]'))
        [b'{"a": 1}', b'2']
        >>> list(split_records(b'[{"a": NaN}, {"a": 2}]'))
        [b'{"a": NaN}', b'{"a": 2}']
        >>> list(split_records(b'{"a":1}{"a":2}\n{\n"a":3}'))
        [b'{"a":1}', b'{"a":2}', b'{\n"a":3}']
    """
    data = data.removeprefix(BOM)
    content = data.strip(_JSON_SPACE)
    elements = split_array(content)
    if elements is not None:
        yield from elements
    elif _is_value(content):
        yield content
    elif content:
        yield from _split_documents(data) or [content]


def split_text(text: bytes, *, allows_nan: bool = False) -> list[bytes]:
    r"""Return the parts of a text that is not one record: records and what is between them, or elements of an array.

    A text without a record has one part, the text itself.

    Example:
        >>> split_text(b'{"a":1} {"a":2}'), split_text(b'[{"a":1},2]'), split_text(b"[1,2]")
        ([b'{"a":1}', b'{"a":2}'], [b'{"a":1}', b'2'], [b'[1,2]'])
    """
    content = text.removeprefix(BOM).strip(_JSON_SPACE)
    if not content.startswith(b"["):
        parts = list(split_records(text))
        return parts if len(parts) > 1 else [text]
    elements = split_array(content) or []
    has_record = any(isinstance(parse_document(each, allows_nan=allows_nan), dict) for each in elements)
    return elements if has_record else [text]


def split_array(content: bytes) -> list[bytes] | None:
    r"""Return the texts of the elements of an array, None if the content is not one array.

    Elements are between the commas outside of strings and of inner brackets, whether they are JSON or not. An element
    that is not closed goes on to the end of the array.
    """
    if not content.startswith(b"["):
        return None
    elements = _try_decode(_array, content)
    if elements is not None:
        return list(map(bytes, elements))
    found = _scan_array(content)
    if found is None or found[1]:
        return found and found[0]
    # Quotes or brackets do not match. Where elements have lines of their own, those without a fault are still found.
    return _elements_on_lines(content) or found[0] or None


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{},]', re.DOTALL)
_OPENING = {b"]": b"[", b"}": b"{"}


def _scan_array(content: bytes) -> tuple[list[bytes], bool] | None:
    """Return the elements of an array, and whether its quotes and brackets match; None if text follows its end."""
    elements: list[bytes] = []
    open_brackets, counts, is_clean, start = [b"["], {b"[": 0, b"{": 0}, True, 1
    for token in _TOKEN.finditer(content, 1):
        sign = token[0]
        if sign == b"," and len(open_brackets) == 1:
            elements.append(content[start : token.start()])
            start = token.end()
        elif sign in counts:
            open_brackets.append(sign)
            counts[sign] += 1
        elif sign in _OPENING:
            is_last = token.end() == len(content)
            if sign == b"]" and (is_last or len(open_brackets) == 1):
                if not is_last:
                    return None
                elements.append(content[start : token.start()])
                return _without_blank(elements), is_clean and len(open_brackets) == 1
            # A bracket closes the last one of its kind and all that are open inside of it, else the last one.
            opening = _OPENING[sign]
            is_clean &= open_brackets[-1] == opening
            has_kind = counts[opening] > 0
            while len(open_brackets) > 1:
                closed = open_brackets.pop()
                counts[closed] -= 1
                if closed == opening or not has_kind:
                    break
        elif sign != b",":
            is_clean &= bool(token[1]) and b"\n" not in sign and b"\r" not in sign
    # The array has no end. What follows its last comma may be lines of a file that was never an array.
    rest = content[start:].strip(_JSON_SPACE)
    return _without_blank([*elements, *(_split_documents(rest) or [rest])]), False


def _elements_on_lines(content: bytes) -> list[bytes] | None:
    """Return the elements of an array that has objects on each line; None if the lines are not like that.

    The last line of an array without an end may be anything.
    """
    is_closed = content.endswith(b"]")
    lines = _without_blank(content[1:].removesuffix(b"]").splitlines())
    if len(lines) < 2 or not all(line.endswith(b",") for line in lines[:-1]):
        return None
    objects = [line.removesuffix(b",").rstrip(_JSON_SPACE) for line in lines]
    if not all(map(_has_outer_braces, objects if is_closed else objects[:-1])):
        return None
    # A line may also have several elements.
    return [element for line in objects for element in (_scan_array(b"[" + line) or ([line], False))[0]]


def _without_blank(texts: list[bytes]) -> list[bytes]:
    """Return texts without the space around them, and without those that are only space."""
    return [text for each in texts if (text := each.strip(_JSON_SPACE))]


def _split_documents(data: bytes) -> list[bytes]:
    """Return the texts of a file that is not one JSON value; nothing if no text is a record."""
    lines = [line for line in data.splitlines() if line.strip()]
    if all(map(_has_outer_braces, lines)) and not _ADJACENT_RECORDS.search(data):
        return lines if any(map(_is_record, lines)) else []
    texts = list(_scan(data))
    return [text for text, _ in texts] if any(is_record for _, is_record in texts) else []


def _has_outer_braces(line: bytes) -> bool:
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def _is_record(line: bytes) -> bool:
    return line.lstrip().startswith((b"{", b"[")) and _is_value(line)


def _is_value(text: bytes) -> bool:
    """Return whether a text is one JSON value. Python's parser also takes NaN, bytes that are not UTF-8, and half of a
    surrogate pair: no table can hold such a value, but its end is known.
    """
    if _try_decode(_value, text) is not None:
        return True
    value = text.strip(_JSON_SPACE).decode("latin-1")
    try:
        return bool(value) and _scanner.raw_decode(value)[1] == len(value)
    except (ValueError, RecursionError):
        return False


def _scan(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the texts of a file, each with whether it is a record or an array.

    A record begins at the start of a line or right after another record. Only another record may follow it on its last
    line. So the rest of a damaged record is not mistaken for records.
    """
    # Latin-1 has one character per byte, so offsets are the same; outside of strings, JSON is ASCII.
    text = data.decode("latin-1")
    start = _SPACES.match(text).end()  # type: ignore[union-attr]
    while start < len(text):
        line_end = _LINE_END.search(text, start)
        end = len(text) if line_end is None else line_end.start()
        line = data[start:end]
        if _has_outer_braces(line) and _is_record(line):
            yield line, True
        elif spans := _record_spans(text, start):
            end = spans[-1][1]
            yield from ((data[begin:stop], True) for begin, stop in spans)
        else:
            yield line, False
        start = _SPACES.match(text, end).end()  # type: ignore[union-attr]


def _record_spans(text: str, start: int) -> list[tuple[int, int]]:
    """Return the spans of adjacent records, up to the end of a line; empty if the line has anything else."""
    spans = []
    while start < len(text) and text[start] in "{[":
        try:
            _, end = _scanner.raw_decode(text, start)
        except (ValueError, RecursionError):
            return []
        spans.append((start, end))
        start = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    return spans if start == len(text) or text[start] in "\r\n" else []


_scanner = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len)
"""Numbers are not parsed: Python is slow with long ones and rejects the longest."""


def _try_decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# Split a large JSON file, read in pieces, into its outermost records.
#
# Source: RFC 8259.


MAX_RECORD_BYTES = 64 * 2**20
"""The default of the maximum size of a record: a longer one means that the file is damaged or is one large document."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SEPARATORS, _BRACKETS = b" \t\r\n,", b"[]"


class RecordSplitter:
    r"""Assembles records from the pieces of a text that was split at every ``}``, also inside strings.

    Records are the outermost objects: alone, on lines, or in arrays. Between them, spaces, commas and the brackets of
    these arrays are separators. Anything else becomes a text, so that nothing is lost.

    Args:
        source: The file that errors name.
        limit: Maximum size of a record.

    Example:
        >>> splitter = RecordSplitter()
        >>> pieces = b'[{"a":{"b":"}"}}, 7, {"a":1}]'.split(b"}")
        >>> [text for piece in pieces for text in splitter.records(piece)], list(splitter.rest(None))
        ([b'{"a":{"b":"}"}}', b'7', b'{"a":1}'], [])
    """

    def __init__(self, source: str = "A large file of JSON", limit: int = MAX_RECORD_BYTES) -> None:
        self.source, self._limit = source, limit
        self._pending_piece: bytes | None = None
        self._parts: list[bytes] = []
        self._record_bytes = self._read_bytes = self._depth = 0
        self._is_in_string = False
        self._is_begin = True

    def records(self, piece: bytes) -> Iterator[bytes]:
        """Add a piece, and yield the texts that the previous piece completes: a record, and any text before it.

        Args:
            piece: The text up to a ``}``, without it; the last piece ends at the end of the text.
        """
        pending, self._pending_piece = self._pending_piece, piece
        self._read_bytes += len(piece) + 1
        if pending is not None:
            yield from self._complete(pending, b"}")

    def rest(self, size_bytes: int | None) -> Iterator[bytes]:
        """Yield the texts that are left after the last piece: the last record, complete or not.

        Args:
            size_bytes: The size of the whole text, which shows whether it ends with ``}``; None if it is unknown, and
                then a last record is assumed to be complete.
        """
        last, is_record = self._pending_piece or b"", self._depth or b"{" in (self._pending_piece or b"")
        is_closed = is_record if size_bytes is None else self._read_bytes in (size_bytes, size_bytes - len(BOM))
        yield from self._complete(last, b"}" if is_closed else b"")
        if self._parts:
            yield self._take_record()

    def _complete(self, piece: bytes, end: bytes) -> Iterator[bytes]:
        if not self._depth:
            between, brace, rest = piece.removeprefix(BOM).partition(b"{")
            text = _without_separators(between if brace else between + end)
            if text and not (self._is_begin and not brace and _is_empty_array(text)):
                yield text
            self._is_begin = False
            if not brace:
                return
            piece = brace + rest
        self._count_braces(piece, end)
        self._parts += [piece, end]
        self._record_bytes += len(piece) + 1
        if self._record_bytes > self._limit:
            start = max(self._read_bytes - self._record_bytes - len(self._pending_piece or b"") - 1, 0)
            raise CorruptFile(path=self.source, reason=_UNCLOSED.format(start, self._limit / 2**20), fix=SHORTEN_RECORD)
        if not self._depth:
            yield self._take_record()

    def _count_braces(self, piece: bytes, end: bytes) -> None:
        """Update the nesting depth by the braces outside of strings, including the closing one."""
        # A piece that begins inside a string gets its opening quote back, so that the pattern matches the string.
        bare = _STRING.sub(b"", b'"' + piece if self._is_in_string else piece)
        before, quote, _ = bare.partition(b'"')
        self._is_in_string = bool(quote)
        self._depth += before.count(b"{") - (len(end) if not quote else 0)

    def _take_record(self) -> bytes:
        text = b"".join(self._parts)
        self._parts, self._record_bytes, self._depth, self._is_in_string = [], 0, 0, False
        return text


def _without_separators(between: bytes) -> bytes:
    """Return the text between two records, without a bracket of an array around them."""
    text = between.strip(_SEPARATORS)
    if not text:
        return text
    begun, ended = text.removeprefix(b"[").strip(_SEPARATORS), text.removesuffix(b"]").strip(_SEPARATORS)
    candidates = (text, begun, ended, begun.removesuffix(b"]").strip(_SEPARATORS))
    return next(filter(_are_values, candidates), text.strip(_SEPARATORS + _BRACKETS))


def _are_values(text: bytes) -> bool:
    """Return whether a text is JSON values with commas between them."""
    try:
        _array.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_empty_array(text: bytes) -> bool:
    return text.startswith(b"[") and not text.strip(_SEPARATORS + _BRACKETS)


_UNCLOSED = "what begins as a record at byte {:,} does not end within {:g} MB"
RAISE_RECORD_SIZE = "For records of that size, raise max_record_size (--max-record-size)."

SHORTEN_RECORD = (
    "If the file is one large document, split it, e.g. with: jq -c '.[]' FILE; else it may be damaged. "
    f"{RAISE_RECORD_SIZE}"
)
"""What to do about a record that is longer than the limit."""
