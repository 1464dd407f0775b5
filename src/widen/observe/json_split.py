"""A whole file to its records: JSON lines, an array of records, one document, or documents one after the other.

Source: RFC 8259; JSON Lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from widen.observe.json_document import BOM

_array = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)

_TWO_ON_A_LINE = re.compile(rb"\}[ \t]*\{")
_BLANKS, _SPACES, _LINE_END = re.compile(r"[ \t]*"), re.compile(r"[ \t\r\n]*"), re.compile(r"[\r\n]")


def split_records(data: bytes) -> Iterator[bytes]:
    r"""Yield the JSON texts in a file, in their order, each as it stands there.

    A file that is one JSON value gives that value, or its elements if it is an array. Another one gives its records
    wherever they begin and end: on lines, over several lines, or several on one line. What stands between records and
    is none gives a text for each line. A file in which there is no record is one text. One in which nothing stands
    gives nothing.

    Args:
        data: The content of the file; a byte order mark in front is passed over.

    Example:
        >>> list(split(b'[{"a": 1}, 2]')), list(split(b'{"a":1}{"a":2}\n{\n"a":3}'))
        ([b'{"a": 1}', b'2'], [b'{"a":1}', b'{"a":2}', b'{\n"a":3}'])
    """
    data = data.removeprefix(BOM).strip()
    elements = _decoded(_array, data) if data.startswith(b"[") else None
    if elements is not None:
        yield from map(bytes, elements)
    elif _decoded(_value, data) is not None:
        yield data
    elif data:
        yield from _records(data)


def _records(data: bytes) -> list[bytes]:
    lines = [line for line in data.splitlines() if line.strip()]
    if all(map(_looks_whole, lines)) and not _TWO_ON_A_LINE.search(data):
        return lines if any(map(_is_record, lines)) else [data]
    found = list(_scanned(data))
    return [text for text, _ in found] if any(is_record for _, is_record in found) else [data]


def _looks_whole(line: bytes) -> bool:
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def _is_record(line: bytes) -> bool:
    return line.lstrip().startswith((b"{", b"[")) and _decoded(_value, line) is not None


def _scanned(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the texts of a file, each with whether it is a record or an array.

    A record begins where a line begins or where another one has ended, and must not go on on its last line with
    anything but a record. So what is left of a damaged one gives no records of its own.
    """
    # A byte is a character here: but for the insides of strings, JSON is ASCII.
    text, at = data.decode("latin-1"), 0
    while at < len(text):
        found = _LINE_END.search(text, at)
        end = len(text) if found is None else found.start()
        line = data[at:end]
        if _looks_whole(line) and _is_record(line):
            yield line, True
        elif spans := _spans(text, at):
            end = spans[-1][1]
            yield from ((data[start:stop], True) for start, stop in spans)
        else:
            yield line, False
        at = _SPACES.match(text, end).end()  # type: ignore[union-attr]


def _spans(text: str, at: int) -> list[tuple[int, int]]:
    """Return where the records begin and end that stand here, up to the end of a line; none if anything else does."""
    found = []
    while at < len(text) and text[at] in "{[":
        try:
            _, end = _scanner.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        found.append((at, end))
        at = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    return found if at == len(text) or text[at] in "\r\n" else []


_scanner = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len)
"""Numbers are not looked at: long ones are slow or refused."""


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
