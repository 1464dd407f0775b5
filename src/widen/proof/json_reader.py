"""The proof's own reading of JSON: texts to records, and whole files to texts.

Source: RFC 8259; docs/evolution-rules.md#d3, #d11
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

MAX_LEVELS = 41
"""Number of nested objects and arrays that a record may have as columns, the record included. Deeper ones are text."""

MAX_DEPTH = 200
"""Number of nested objects and arrays from which on a table keeps the text of a record as corrupt, not the record."""

_BOM, _SPACE = "\ufeff", " \t\r\n"


class Token(str):
    """A number, as the source spells it."""

    __slots__ = ()


class DeepJson(str):
    """The JSON text of an object or an array below `MAX_LEVELS` others."""

    __slots__ = ()


Json: TypeAlias = Any
"""Dicts, lists, strings, booleans, None, Tokens and DeepJson."""

Pairs: TypeAlias = list[tuple[str, Any]]


class NotARecordError(ValueError):
    """A text is not JSON that a table can hold exactly."""


def unique(pairs: Pairs) -> dict[str, Any]:
    """Return an object; a key that stands in it twice would lose a value.

    Raises:
        NotARecordError: one does.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotARecordError("a key stands twice in one object")
    return found


def refuse(token: str) -> Any:
    """Refuse NaN and Infinity, which RFC 8259 does not have.

    Raises:
        NotARecordError: always.
    """
    raise NotARecordError(token)


Scan: TypeAlias = Callable[[str], Json]

read_json: Scan = json.JSONDecoder(
    object_pairs_hook=unique, parse_int=Token, parse_float=Token, parse_constant=refuse
).decode
"""Reads one JSON value exactly."""


def read_records(text: bytes, scan: Scan = read_json) -> list[dict[str, Json]] | None:
    """Return the records in a text: one, or those of an array; None if the text must be kept as a whole.

    Args:
        text: UTF-8; a byte order mark in front is ignored.
        scan: Reads JSON.

    Source: RFC 8259; docs/evolution-rules.md#d11, #d23
    """
    records = read_whole_records(text, scan)
    if records is None or text.count(b"{") + text.count(b"[") <= MAX_LEVELS:
        return records
    return [_with_deep_json(record, MAX_LEVELS) if _depth(record) > MAX_LEVELS else record for record in records]


def read_whole_records(text: bytes, scan: Scan = read_json) -> list[dict[str, Json]] | None:
    """Return the records in a text like `read_records`, but with all their levels as dicts and lists."""
    try:
        found = scan(text.decode().removeprefix(_BOM))
        if b"\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    records = [found] if isinstance(found, dict) else found
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return None
    is_deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH and any(_depth(each) > MAX_DEPTH for each in records)
    return None if is_deep else records


def _with_deep_json(value: Json, levels: int) -> Json:
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return DeepJson(to_text(value))
    if isinstance(value, dict):
        return {key: _with_deep_json(item, levels - 1) for key, item in value.items()}
    return [_with_deep_json(item, levels - 1) for item in value]


def split_file(data: bytes) -> Iterator[bytes]:
    """Yield the texts of a file: the items of an array, one document, records wherever they end, and what is between.

    Args:
        data: The content of the file.
    """
    data = data.removeprefix(_BOM.encode()).strip()
    spans = _spans(data)
    if spans is not None:
        yield from spans
    elif _is_json(data):
        yield data
    elif data:
        found = list(_scanned(data))
        yield from [text for text, _ in found] if any(is_record for _, is_record in found) else [data]


_plain = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def _spans(data: bytes) -> list[bytes] | None:
    """Return the texts of the items of an array; None if the data is not one."""
    if not data.startswith(b"["):
        return None
    try:
        text = data.decode()
        found: list[bytes] = []
        at = _after_space(text, 1)
        while text[at] != "]" or not found:
            if text[at] == "]":
                break
            _, end = _plain.raw_decode(text, at)
            found.append(text[at:end].encode())
            at = _after_space(text, end)
            if text[at] == ",":
                at = _after_space(text, at + 1)
                if text[at] == "]":
                    return None
            elif text[at] != "]":
                return None
    except (ValueError, IndexError, RecursionError):
        return None
    return found if at == len(text) - 1 else None


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _is_json(data: bytes) -> bool:
    try:
        _plain.decode(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _scanned(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield texts, each with whether it is a record or an array; what is not one ends with its line."""
    lines = [line for line in data.splitlines() if line.strip()]
    if all(map(_looks_whole, lines)) and not _TWO_ON_A_LINE.search(data):
        yield from ((line, _is_json(line)) for line in lines)
        return
    text, at = data.decode("latin-1"), 0
    while at < len(text):
        end = _end_of_line(text, at)
        line = data[at:end]
        if _looks_whole(line) and _is_json(line):
            yield line, True
        elif ends := _ends(text, at):
            for start, end in ends:
                yield data[start:end], True
        else:
            yield line, False
        at = end
        while at < len(text) and text[at] in _SPACE:
            at += 1


_TWO_ON_A_LINE = re.compile(rb"\}[ \t]*\{")


def _looks_whole(line: bytes) -> bool:
    return line.strip()[:1] == b"{" and line.strip()[-1:] == b"}"


def _end_of_line(text: str, at: int) -> int:
    return min((end for end in (text.find("\n", at), text.find("\r", at)) if end >= 0), default=len(text))


def _ends(text: str, at: int) -> list[tuple[int, int]]:
    """Return where the records stand that begin here, if nothing else stands on the line on which the last one ends."""
    found = []
    while at < len(text) and text[at] in "{[":
        try:
            _, end = _plain.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        found.append((at, end))
        at = end
        while at < len(text) and text[at] in " \t":
            at += 1
    return found if at == len(text) or text[at] in "\r\n" else []


def _depth(found: Json) -> int:
    depth, level = 0, [found]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        level = [item for group in level for item in (group.values() if isinstance(group, dict) else group)]
        depth += 1
    return depth


def to_text(value: Json) -> str:
    """Return JSON without spaces, its numbers as the source spells them."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_text(key)}:{to_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return str(value) if isinstance(value, (Token, DeepJson)) else json.dumps(value, ensure_ascii=False)
