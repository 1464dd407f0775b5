"""A whole file to its records: JSON lines, an array of records, or one document.

Source: RFC 8259; JSON Lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from widen.observe.document import BOM

_FIRST_LINES = 20

_array = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)


def split(data: bytes) -> Iterator[bytes]:
    r"""Yield the JSON texts in a file, in their order, each as it stands there.

    A file that is one JSON value gives that value, or its elements if it is an array. Another one gives its lines,
    empty ones apart, if there are records among the first; if not, it is one text, and none of it is a record. One in
    which nothing stands gives nothing.

    Args:
        data: The content of the file; a byte order mark in front is passed over.

    Example:
        >>> list(split(b'[{"a": 1}, 2]')), list(split(b'{"a":1}\n{"a":2}\n'))
        ([b'{"a": 1}', b'2'], [b'{"a":1}', b'{"a":2}'])
    """
    data = data.removeprefix(BOM).strip()
    elements = _decoded(_array, data) if data.startswith(b"[") else None
    if elements is not None:
        yield from map(bytes, elements)
    elif _decoded(_value, data) is not None:
        yield data
    elif data:
        yield from _lines(data)


def _lines(data: bytes) -> list[bytes]:
    lines = [line for line in data.splitlines() if line.strip()]
    return lines if any(_is_record(line) for line in lines[:_FIRST_LINES]) else [data]


def _is_record(line: bytes) -> bool:
    return line.lstrip().startswith((b"{", b"[")) and _decoded(_value, line) is not None


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
