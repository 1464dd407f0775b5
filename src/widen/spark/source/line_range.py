r"""The lines of a range of bytes of a local file, as Spark splits a text file among tasks.

A line belongs to the range that has its first byte. So adjacent ranges have every line once, wherever they are cut.

Source: Spark's reader of text files
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from widen.observe.json_document import BOM

BLOCK_BYTES = 2**19
"""Number of bytes that are read at once. Larger blocks leave the cache, and the system gets their memory back each
time."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


def read_lines(file: BinaryIO, start: int, end: int, block_bytes: int = BLOCK_BYTES) -> Iterator[list[bytes]]:
    r"""Yield the lines that begin in a range, without their ends, in lists of adjacent lines.

    ``\n``, ``\r\n`` and ``\r`` end a line.

    Args:
        end: The byte after the range.
        block_bytes: Number of bytes that are read at once.
    """
    offset = _first_line(file, start, block_bytes)
    file.seek(offset)
    pending: list[bytes] = []
    while offset < end:
        block = file.read(block_bytes)
        if block and not _ends_line(block):
            pending.append(block)
            continue
        data = b"".join((*pending, block))
        complete = _complete_bytes(data) if block else len(data)
        # The last line of a range continues beyond it: its first byte counts.
        own = complete if offset + complete <= end else _next_line(data[:complete], end - offset) or complete
        if own:
            yield (data[:own] if offset else data[:own].removeprefix(BOM)).splitlines()
        elif not block:
            return
        offset += complete
        pending = [data[complete:]]


def read_line_blocks(file: BinaryIO, start: int, end: int, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    r"""Yield the lines that begin in a range as blocks of whole lines. Only ``\n`` ends a line.

    Args:
        end: The byte after the range.
        block_bytes: Number of bytes that are read at once.
    """
    # The range begins with a line only if the byte before ends one.
    file.seek(max(start - 1, 0))
    if start and not file.readline().endswith(b"\n"):
        return
    while file.tell() < end:
        block = file.read(min(block_bytes, end - file.tell()))
        if not block:
            return
        yield block if block.endswith(b"\n") else block + file.readline()


def _ends_line(block: bytes) -> bool:
    return b"\n" in block or b"\r" in block


def _complete_bytes(data: bytes) -> int:
    r"""Return where the last complete line ends. A ``\r`` at the end may be half of a ``\r\n``."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _next_line(data: bytes, at: int) -> int | None:
    """Return where the first line begins at or after a byte that is not the first; None if no line ends before."""
    line_end = _LINE_END.search(data, at - 2 if data[at - 2 : at] == b"\r\n" and at > 1 else at - 1)
    return None if line_end is None else line_end.end()


def _first_line(file: BinaryIO, start: int, block_bytes: int) -> int:
    """Return where the first line begins at or after a byte; the size of the file if there is none."""
    if start == 0:
        return 0
    file.seek(start - 1)
    data = b""
    while block := file.read(block_bytes):
        data += block
        begin = _next_line(data, 1)
        if begin is not None and begin < len(data):
            break
    begin = _next_line(data, 1)
    return start - 1 + (len(data) if begin is None else begin)
