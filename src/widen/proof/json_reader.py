"""The proof's own JSON reader: texts to records, and whole files to texts.

It shares no code with the reader of the writer, so that the proof finds the mistakes of that one.

Source: RFC 8259; docs/evolution-rules.md#d3, #d11, #d23
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any, TypeAlias

MAX_LEVELS = 41
"""Maximum number of nested objects and arrays that a table has as columns, the record included. What is deeper is
text."""

MAX_DEPTH = 200
"""Maximum number of nested objects and arrays in a record, the record included. Deeper texts are corrupt."""

_BOM, _SPACE = "\ufeff", " \t\r\n"


class NumberToken(str):
    """A number as the source spells it."""

    __slots__ = ()


class DeepJson(str):
    """The JSON text of an object or array that is deeper than `MAX_LEVELS`."""

    __slots__ = ()


Json: TypeAlias = Any
"""A dict, list, string, boolean, None, NumberToken or DeepJson."""

Pairs: TypeAlias = list[tuple[str, Any]]


class NotARecordError(ValueError):
    """The text is not JSON that a table can hold exactly."""


def reject_duplicate_keys(pairs: Pairs) -> dict[str, Any]:
    """Return an object.

    Raises:
        NotARecordError: the object has the same key twice, so that a dict would lose a value.
    """
    record = dict(pairs)
    if len(record) != len(pairs):
        raise NotARecordError("duplicate key in an object")
    return record


def reject_constant(token: str) -> Any:
    """Reject NaN and Infinity, which are not JSON (RFC 8259).

    Raises:
        NotARecordError: always.
    """
    raise NotARecordError(token)


Scan: TypeAlias = Callable[[str], Json]


def _scan(read_constant: Callable[[str], Any]) -> Scan:
    return json.JSONDecoder(
        object_pairs_hook=reject_duplicate_keys,
        parse_int=NumberToken,
        parse_float=NumberToken,
        parse_constant=read_constant,
    ).decode


read_strict_json: Scan = _scan(reject_constant)
"""Reads one JSON value exactly."""

read_json: Scan = _scan(NumberToken)
"""The same; NaN, Infinity and -Infinity are numbers. Use it for text that is JSON, where the policy allows them."""


def scan_for(*, allows_nan: bool) -> Scan:
    """Return what reads the texts of a source."""
    return read_json if allows_nan else read_strict_json


def read_records(text: bytes, *, allows_nan: bool = False) -> list[dict[str, Json]] | None:
    """Return the records in a text, or None if the table keeps the text as corrupt.

    Source: RFC 8259; docs/evolution-rules.md#d11, #d23; docs/guide/json.md#nan
    """
    records = read_whole_records(text, scan_for(allows_nan=allows_nan))
    # A text with no more brackets than that cannot be deeper, so hardly any has to be measured.
    if records is None or text.count(b"{") + text.count(b"[") <= MAX_LEVELS:
        return records
    return [_with_deep_json(record, MAX_LEVELS) if depth_of(record) > MAX_LEVELS else record for record in records]


def read_whole_records(text: bytes, scan: Scan = read_strict_json) -> list[dict[str, Json]] | None:
    """Return the records in a text like `read_records`, but parse all levels."""
    try:
        document = scan(text.decode().removeprefix(_BOM))
        if b"\\u" in text:
            # A lone surrogate cannot be written as UTF-8.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    records = [document] if isinstance(document, dict) else document
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return None
    is_deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH and any(depth_of(each) > MAX_DEPTH for each in records)
    return None if is_deep else records


def _with_deep_json(value: Json, levels: int) -> Json:
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return DeepJson(to_text(value))
    if isinstance(value, dict):
        return {key: _with_deep_json(item, levels - 1) for key, item in value.items()}
    return [_with_deep_json(item, levels - 1) for item in value]


def split_into_parts(data: bytes) -> Iterator[bytes]:
    """Yield the texts of a file: the items of an array, one document, or records with the text between them."""
    data = data.removeprefix(_BOM.encode())
    content = data.strip(_SPACE.encode())
    # An array is one document too, and one document may take several lines, so lines come last.
    items = array_items(content)
    if items is not None:
        yield from items
    elif _is_json(content):
        yield content
    elif content:
        texts = list(_scan_lines(data))
        yield from [text for text, _ in texts] if any(is_record for _, is_record in texts) else [content]


def split_into_records(text: bytes, *, allows_nan: bool = False) -> list[bytes]:
    """Return the texts in a text that is not one record: the texts of several records, or of the items of an array.

    A text without a record is one text. An array is also one text unless one of its items is an object.
    """
    content = text.removeprefix(_BOM.encode()).strip(_SPACE.encode())
    if content[:1] != b"[":
        parts = list(split_into_parts(text))
        return parts if len(parts) > 1 else [text]
    items = array_items(content) or []
    # Without its square bracket, what is read is one record.
    objects = [item for item in items if not item.removeprefix(_BOM.encode()).lstrip(_SPACE.encode()).startswith(b"[")]
    scan = scan_for(allows_nan=allows_nan)
    return items if any(read_whole_records(item, scan) is not None for item in objects) else [text]


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file if each looks like one record, else nothing.

    If one of them is a record, `split_into_parts` yields the same texts; it parses each.
    """
    return _object_lines(data.removeprefix(_BOM.encode()))


def _object_lines(data: bytes) -> list[bytes]:
    lines = [line for line in data.splitlines() if line.strip()]
    return lines if all(map(_is_object_line, lines)) and not _RECORDS_ON_A_LINE.search(data) else []


# It only finds where a value ends. Numbers stay text, because Python refuses integers of more than 4,300 digits.
_any_json = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def array_items(data: bytes) -> list[bytes] | None:
    """Return the texts of the items of an array, or None if the data is not an array.

    Items that are not JSON are also items where commas and brackets still say where they end.

    Source: docs/guide/json.md#documents
    """
    if not data.startswith(b"["):
        return None
    items = _json_items(data)
    if items is None:
        scan = _ArrayScan(data)
        if scan.has_text_behind:
            return None
        items = scan.items if scan.is_sound else _items_on_lines(data) or scan.items or None
    return items


def _json_items(data: bytes) -> list[bytes] | None:
    try:
        text = data.decode()
        items: list[bytes] = []
        at = _after_space(text, 1)
        while text[at] != "]" or not items:
            if text[at] == "]":
                break
            # The text of each item is cut from the source, so that its numbers keep their spelling.
            _, end = _any_json.raw_decode(text, at)
            items.append(text[at:end].encode())
            at = _after_space(text, end)
            if text[at] == ",":
                at = _after_space(text, at + 1)
                if text[at] == "]":
                    return None
            elif text[at] != "]":
                return None
    except (ValueError, IndexError, RecursionError):
        return None
    return items if at == len(text) - 1 else None


class _ArrayScan:
    """The items of an array that is not JSON, from one look at each of its characters.

    Args:
        is_sound: Whether every quote and bracket has its counterpart.
        has_text_behind: Whether the array ends before the data does.
    """

    def __init__(self, data: bytes) -> None:
        self.items: list[bytes] = []
        self.is_sound, self.has_text_behind = True, False
        # Latin-1 has one character for each byte.
        text, last = data.decode("latin-1"), len(data) - 1
        begin, at, inside = 1, 1, ""  # the brackets that are open inside of the array
        while at <= last:
            char = text[at]
            if char == '"':
                at = self._end_of_string(text, at)
            elif char in "[{":
                inside += char
            elif char == "," and not inside:
                self._add(data[begin:at])
                begin = at + 1
            elif char == "]" and (at == last or not inside):
                self.has_text_behind = at < last
                self.is_sound &= not inside
                self._add(data[begin:at])
                return
            elif char in "]}":
                begins = "[" if char == "]" else "{"
                place = inside.rfind(begins)
                self.is_sound &= inside[-1:] == begins
                # Without a counterpart, it closes what was opened last.
                inside = inside[:place] if place >= 0 else inside[:-1]
            at += 1
        self.is_sound = False
        rest = data[begin:].strip(_SPACE.encode())
        texts = list(_scan_lines(rest)) if rest else []
        for each in [text for text, _ in texts] if any(is_record for _, is_record in texts) else [rest]:
            self._add(each)

    def _add(self, item: bytes) -> None:
        if item.strip(_SPACE.encode()):
            self.items.append(item.strip(_SPACE.encode()))

    def _end_of_string(self, text: str, at: int) -> int:
        """Return where the quote is that ends a string, or the last character if none does."""
        begin = at
        while (at := text.find('"', at + 1)) >= 0:
            slashes = 0
            while text[at - 1 - slashes] == "\\":
                slashes += 1
            if slashes % 2 == 0:
                # JSON has no line ends in strings: another quote is missing.
                self.is_sound &= max(text.find(end, begin, at) for end in "\r\n") < 0
                return at
        self.is_sound = False
        return len(text) - 1


def _items_on_lines(data: bytes) -> list[bytes] | None:
    """Return the items of an array with whole objects on each of its lines, or None if it is not like that."""
    space, has_end = _SPACE.encode(), data[-1:] == b"]"
    lines = [line.strip(space) for line in data[1 : len(data) - has_end].splitlines() if line.strip(space)]
    whole = lines if has_end else lines[:-1]
    if len(lines) < 2 or any(line[-1:] != b"," for line in lines[:-1]):
        return None
    if not all(_is_object_line(line[:-1] if line[-1:] == b"," else line) for line in whole):
        return None
    items = []
    for line in lines:
        item = line[:-1].rstrip(space) if line[-1:] == b"," else line
        scan = _ArrayScan(b"[" + item)
        items += [item] if scan.has_text_behind else scan.items
    return items


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _is_json(data: bytes) -> bool:
    """Return whether data is one JSON value; NaN, and bytes that are not UTF-8, may be in it."""
    try:
        _any_json.decode(data.decode("latin-1"))
    except (ValueError, RecursionError):
        return False
    return True


def _scan_lines(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield texts, each with whether it is a record or an array; other text ends at the end of its line."""
    if lines := _object_lines(data):
        yield from ((line, _is_json(line)) for line in lines)
        return
    # Latin-1 has one character for each byte, so offsets in the text are offsets in the data.
    text, at = data.decode("latin-1"), len(data) - len(data.lstrip(_SPACE.encode()))
    while at < len(text):
        end = _end_of_line(text, at)
        line = data[at:end]
        if _is_object_line(line) and _is_json(line):
            yield line, True
        elif spans := _record_spans(text, at):
            for start, end in spans:
                yield data[start:end], True
        else:
            yield line, False
        at = end
        while at < len(text) and text[at] in _SPACE:
            at += 1


_RECORDS_ON_A_LINE = re.compile(rb"\}[ \t]*\{")


def _is_object_line(line: bytes) -> bool:
    return line.strip()[:1] == b"{" and line.strip()[-1:] == b"}"


def _end_of_line(text: str, at: int) -> int:
    return min((end for end in (text.find("\n", at), text.find("\r", at)) if end >= 0), default=len(text))


def _record_spans(text: str, at: int) -> list[tuple[int, int]]:
    """Return the spans of the records that begin here; empty if other text follows on the line of the last record."""
    spans = []
    while at < len(text) and text[at] in "{[":
        try:
            _, end = _any_json.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        spans.append((at, end))
        at = end
        while at < len(text) and text[at] in " \t":
            at += 1
    return spans if at == len(text) or text[at] in "\r\n" else []


def depth_of(document: Json) -> int:
    """Return how many objects and arrays are nested in each other."""
    depth, level = 0, [document]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        level = [item for group in level for item in (group.values() if isinstance(group, dict) else group)]
        depth += 1
    return depth


def to_text(value: Json) -> str:
    """Return JSON without spaces; numbers are spelled as in the source."""
    if isinstance(value, (NumberToken, DeepJson)):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{to_text(key)}:{to_text(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return encode_basestring(value) if isinstance(value, str) else json.dumps(value)
