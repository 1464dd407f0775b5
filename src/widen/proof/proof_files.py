"""Files of records as the tasks of the proof read them: the proof cuts files and lines on its own.

A load makes these values without reading anything for the proof, so this module imports nothing that does.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias
from urllib.parse import unquote

from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from widen.proof.csv_reader import CsvForm

BLOCK_BYTES = 2**22
"""Number of bytes that are read at once."""


class ProofFile(NamedTuple):
    """A file with records.

    Args:
        is_whole: Whether one task reads the whole file, in any form; else it has a record on each line.
        csv: How its rows are written; None for JSON.
    """

    uri: str
    size: int
    is_whole: bool
    csv: CsvForm | None = None


@dataclass(frozen=True, slots=True)
class FileTasks:
    """Files, and how many tasks should read them.

    Args:
        count: Number of tasks that are worth their start.
        is_local: Whether this process reads them faster than a Spark job.
    """

    files: tuple[ProofFile, ...]
    count: int
    is_local: bool


class FilePart(NamedTuple):
    """What one task reads of a file.

    Args:
        start: First byte of the range that contains the beginnings of its lines; 0 for a whole file.
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


def read_proof_blocks(file: BinaryIO, start: int, end: int, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    r"""Yield the lines that begin in a range of a file, in blocks. A line ends with ``\n`` here."""
    # Start at the byte before: if it ends a line, the first line of the range begins at its start and is not skipped.
    file.seek(max(start - 1, 0))
    position = start - 1 + len(file.readline()) if start else 0
    while position < end and (block := file.read(min(block_bytes, end - position))):
        block += b"" if block.endswith(b"\n") else file.readline()
        position += len(block)
        yield block


# The fields that records get from their file, read from its URI: the proof's own code, not the writer's.
#
# Source: docs/evolution-rules.md#d9, #d21


FileValues: TypeAlias = Sequence[tuple[str, str | None]]
"""Names of fields with the value that every record of a file has there."""


class PlacedFileValues(tuple[tuple[str, str | None], ...]):
    """File fields that end with the path of the file and the time of the load."""

    __slots__ = ()


_FOLDER = re.compile(r"(?:^|(?<=/))([^/=]+)=([^/]*)(?=/)")
_STDIN = re.compile(r"^.*/widen-memory-[^/]*/stdin$", re.DOTALL)
_PART = re.compile(r" from byte [0-9]+$")
_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True, slots=True)
class FileValueReader:
    """Reads the fields that records get from their file.

    Args:
        loaded_at: Time of the load; None to add neither the time nor the path.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def for_files(self, files: Iterable[str]) -> FileValueReader | None:
        """Return this reader; None if no record of some files gets a field."""
        return self if any(map(self.read, files)) else None

    def read(self, file: str) -> FileValues:
        """Return the fields that the records of a file get.

        Args:
            file: URI of the file, for a split followed by the byte where it begins.
        """
        values: list[tuple[str, str | None]] = []
        for key, value in _FOLDER.findall(file) if self.has_folders else ():
            name, text = (_hive(unquote(each)) for each in (key, value))
            values.append((f"{name}=", None if text in _NULLS else text))
        if self.loaded_at is not None:
            # The URI of one file has one slash or three, by who lists the files.
            scheme, slashes, path = _STDIN.sub("standard input", _PART.sub("", file)).partition("file:/")
            uri = slashes + path.lstrip("/") if slashes and not scheme else scheme + slashes + path
            values.append(("_source_file=", uri or None))
            values.append(("_loaded_at=", self.loaded_at))
            return PlacedFileValues(values)
        return values


def add_file_values(record: Mapping[str, Any], values: FileValues) -> dict[str, Any]:
    """Return a record with the fields of its file; a name that the record has already gets more ``=`` at its end."""
    completed = dict(record)
    for key, value in values:
        name = key + next("=" * signs for signs in count() if key + "=" * signs not in completed)
        completed[name] = value
    return completed


def _hive(text: str) -> str:
    # A name that is not UTF-8 stays as it is.
    decoded = unquote(text)
    return text if "\ufffd" in decoded and "\ufffd" not in text else decoded
