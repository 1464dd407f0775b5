"""Split a whole file into records: JSON lines, an array of records, one document, or concatenated documents.

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

_ADJACENT_RECORDS = re.compile(rb"\}[ \t]*\{")
_BLANKS, _SPACES, _LINE_END = re.compile(r"[ \t]*"), re.compile(r"[ \t\r\n]*"), re.compile(r"[\r\n]")


def split_records(data: bytes) -> Iterator[bytes]:
    r"""Yield the JSON texts of a file in order, unchanged.

    A file that is one JSON value yields that value, or its elements if it is an array. Any other file yields its
    records, whether a line has one record, several, or a part of one. Each line between records that is not part of a
    record is a text too, so that nothing is lost. A file without a record is one text. An empty file yields nothing.

    Args:
        data: The content of the file; a leading byte order mark is ignored.

    Example:
        >>> list(split_records(b'[{"a": 1}, 2]'))
        [b'{"a": 1}', b'2']
        >>> list(split_records(b'{"a":1}{"a":2}\n{\n"a":3}'))
        [b'{"a":1}', b'{"a":2}', b'{\n"a":3}']
    """
    data = data.removeprefix(BOM).strip()
    elements = _try_decode(_array, data) if data.startswith(b"[") else None
    if elements is not None:
        yield from map(bytes, elements)
    elif _try_decode(_value, data) is not None:
        yield data
    elif data:
        yield from _split_documents(data)


def _split_documents(data: bytes) -> list[bytes]:
    lines = [line for line in data.splitlines() if line.strip()]
    if all(map(_has_outer_braces, lines)) and not _ADJACENT_RECORDS.search(data):
        return lines if any(map(_is_record, lines)) else [data]
    texts = list(_scan(data))
    return [text for text, _ in texts] if any(is_record for _, is_record in texts) else [data]


def _has_outer_braces(line: bytes) -> bool:
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def _is_record(line: bytes) -> bool:
    return line.lstrip().startswith((b"{", b"[")) and _try_decode(_value, line) is not None


def _scan(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the texts of a file, each with whether it is a record or an array.

    A record begins at the start of a line or right after another record. Only another record may follow it on its last
    line. So the rest of a damaged record is not mistaken for records.
    """
    # Latin-1 has one character per byte, so offsets are the same; outside of strings, JSON is ASCII.
    text, start = data.decode("latin-1"), 0
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
