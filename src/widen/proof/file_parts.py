"""Files of records as the tasks of the proof read them: the proof cuts files and lines on its own.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 2**22
"""Number of bytes that are read at once."""


class ProofFile(NamedTuple):
    """A file with records.

    Args:
        uri: URI of the file.
        size: Size in bytes.
        is_whole: Whether one task reads the whole file, in any form; else it has a record on each line.
    """

    uri: str
    size: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class FileTasks:
    """Files, and how many tasks should read them.

    Args:
        files: The files.
        count: Number of tasks that are worth their start.
        is_local: Whether this process reads them faster than a Spark job.
    """

    files: tuple[ProofFile, ...]
    count: int
    is_local: bool


class FilePart(NamedTuple):
    """What one task reads of a file.

    Args:
        file: The file.
        start: First byte of the range in which its lines begin; 0 for a whole file.
        end: The byte after the range.
    """

    file: ProofFile
    start: int
    end: int


def find_parts(files: Sequence[ProofFile], task: int, tasks: int) -> Iterator[FilePart]:
    """Yield what a task reads: an equal share of all bytes. All tasks together read every byte once.

    Example:
        >>> files = ProofFile("lines", 10, False), ProofFile("whole", 10, True)
        >>> [[(part.file.uri, part.start, part.end) for part in find_parts(files, task, 4)] for task in range(4)]
        [[('lines', 0, 5)], [('lines', 5, 10)], [('whole', 0, 5)], []]
    """
    total, offset = sum(file.size for file in files), 0
    first, last = (total * number // tasks for number in (task, task + 1))
    for file in files:
        start, end = max(first - offset, 0), min(last - offset, file.size)
        if start < end and not (file.is_whole and start):
            yield FilePart(file, start, end)
        offset += file.size


def read_line_blocks(file: BinaryIO, start: int, end: int, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    r"""Yield the lines that begin in a range of a file, in blocks. A line ends with ``\n`` here."""
    # From the byte before: if it ends a line, the first line of the range begins at its start, and none is skipped.
    file.seek(max(start - 1, 0))
    position = start - 1 + len(file.readline()) if start else 0
    while position < end and (block := file.read(min(block_bytes, end - position))):
        block += b"" if block.endswith(b"\n") else file.readline()
        position += len(block)
        yield block
