r"""The lines of a range of bytes of a local file, as Spark splits a text file among tasks.

A line belongs to the range that has its first byte. So adjacent ranges have every line once, wherever they are cut.

Source: Spark's reader of text files
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from widen.errors import CorruptFile
from widen.observe.json_document import BOM
from widen.observe.json_stream_split import MAX_RECORD_BYTES, SHORTEN_RECORD

BLOCK_BYTES = 2**19
"""Number of bytes that are read at once. Larger blocks leave the cache, and the system gets their memory back each
time."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


def read_lines(
    file: BinaryIO,
    start: int,
    end: int,
    block_bytes: int = BLOCK_BYTES,
    *,
    limit: int = MAX_RECORD_BYTES,
    path: str = "",
) -> Iterator[list[bytes]]:
    r"""Yield the lines that begin in a range, without their ends, in lists of adjacent lines.

    Args:
        end: The byte after the range.
        block_bytes: Number of bytes that are read at once.
        limit: Maximum size of a line.
        path: URI of the file, for errors.
    """
    for data in read_line_blocks(file, start, end, block_bytes, limit=limit, path=path):
        yield data.splitlines()


def read_line_blocks(
    file: BinaryIO,
    start: int,
    end: int,
    block_bytes: int = BLOCK_BYTES,
    *,
    limit: int = MAX_RECORD_BYTES,
    path: str = "",
) -> Iterator[bytes]:
    r"""Yield the lines that begin in a range as blocks of whole lines. ``\n``, ``\r\n`` and ``\r`` end a line.

    Args:
        end: The byte after the range.
        block_bytes: Number of bytes that are read at once.
        limit: Maximum size of a line.
        path: URI of the file, for errors.

    Raises:
        CorruptFile: a line is longer.
    """
    offset = 0
    if start:
        offset = _first_line(file, start, block_bytes, limit, path)
        file.seek(offset)
    pending: list[bytes] = []
    waiting = 0
    while offset < end:
        block = file.read(block_bytes)
        if block and not _ends_line(block):
            pending.append(block)
            waiting += len(block)
            if waiting > limit:
                raise record_too_long(path, offset, limit)
            continue
        data = b"".join((*pending, block))
        complete = _complete_bytes(data) if block else len(data)
        if len(data) > limit:
            _ensure_short(data[:complete], offset, limit, path)
        # The last line of a range continues beyond it: its first byte counts.
        own = complete if offset + complete <= end else _next_line(data[:complete], end - offset) or complete
        if own:
            yield data[:own] if offset else data[:own].removeprefix(BOM)
        elif not block:
            return
        offset += complete
        pending, waiting = [data[complete:]], len(data) - complete


def _ensure_short(data: bytes, offset: int, limit: int, path: str) -> None:
    for line in data.splitlines(keepends=True):
        if len(line.rstrip(b"\r\n")) > limit:
            raise record_too_long(path, offset, limit)
        offset += len(line)


def record_too_long(path: str, offset: int | None, limit: int, line: int | None = None) -> CorruptFile:
    """Return the error for a record or a line that is longer than the limit."""
    place = f"at byte {offset:,}" if line is None else f"in line {line:,}"
    reason = f"the record {place} is longer than {size_text(limit)}"
    return CorruptFile(path=path, reason=reason, fix=SHORTEN_RECORD)


def size_text(size_bytes: int) -> str:
    """Return a size as a setting spells it."""
    return f"{size_bytes / 2**20:g} MB" if size_bytes >= 2**20 else f"{size_bytes:,} bytes"


def _ends_line(block: bytes) -> bool:
    return b"\n" in block or b"\r" in block


def _complete_bytes(data: bytes) -> int:
    r"""Return where the last complete line ends. A ``\r`` at the end may be half of a ``\r\n``."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _next_line(data: bytes, at: int) -> int | None:
    """Return where the first line begins at or after a byte that is not the first; None if no line ends before."""
    line_end = _LINE_END.search(data, at - 2 if data[at - 2 : at] == b"\r\n" and at > 1 else at - 1)
    return None if line_end is None else line_end.end()


def _first_line(file: BinaryIO, start: int, block_bytes: int, limit: int, path: str) -> int:
    """Return where the first line begins at or after a byte that is not the first; the size if there is none."""
    file.seek(start - 1)
    data = b""
    while block := file.read(block_bytes):
        data += block
        if len(data) > limit + block_bytes:
            raise record_too_long(path, start, limit)
        begin = _next_line(data, 1)
        if begin is not None and begin < len(data):
            break
    begin = _next_line(data, 1)
    return start - 1 + (len(data) if begin is None else begin)
