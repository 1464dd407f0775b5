"""Which files a compaction writes again, and which of them together. Bins are filled in the order of writing.

Source: Delta Spark's OPTIMIZE
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from widen.protocol.skipping.file_statistics import FileStatistics

TARGET_BYTES = 2**30
"""The default size of files."""

DELETED_SHARE = 0.05
"""A file is written again, however large it is, if a larger share of its rows is deleted."""

TASK_BYTES = 128 * 2**20
"""Small bins of different partitions are written by one task up to this size."""

Partition: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: int
    size_bytes: int
    is_full_of_deletions: bool


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Files that one Spark job writes again.

    Args:
        files: The files; those of one partition go into one file unless the job sorts the rows.
    """

    files: pa.Table
    size_bytes: int


def plan_compaction(files: pa.Table, target_bytes: int, *, sorts: bool) -> list[CompactionTask]:
    """Return the tasks that turn small files, and files with many deleted rows, into files of a size.

    Args:
        files: The files to consider: rows of a list of files.
        sorts: Whether rows are sorted; then every file is written again, and a task has whole partitions.
    """
    partitions: dict[Partition, list[_Candidate]] = {}
    for row, file in sorted(enumerate(files.to_pylist()), key=lambda item: _order(item[1])):
        deletions = _is_full_of_deletions(file)
        if sorts or deletions or file["size_bytes"] < target_bytes:
            candidate = _Candidate(row, file["size_bytes"], deletions)
            partitions.setdefault(_partition(file), []).append(candidate)
    bins = (
        (partition, some)
        for partition, candidates in partitions.items()
        for some in ([candidates] if sorts else _fill_bins(candidates, target_bytes))
        if sorts or len(some) > 1 or some[0].is_full_of_deletions
    )
    return [_to_task(files, candidates) for candidates in _pack_bins(bins)]


def _order(file: dict[str, object]) -> tuple[object, ...]:
    return file["modification_time_ms"], file["path"]


def _partition(file: dict[str, object]) -> Partition:
    values: Iterable[tuple[str, str | None]] = file["partition_values"] or ()  # type: ignore[assignment]
    return tuple(sorted((key, value or "") for key, value in values))


def _is_full_of_deletions(file: dict[str, object]) -> bool:
    vector = file["deletion_vector"]
    if not isinstance(vector, dict):
        return False
    rows = FileStatistics(file["stats"]).rows  # type: ignore[arg-type]
    return not rows or vector["cardinality"] / rows > DELETED_SHARE


def _fill_bins(candidates: Sequence[_Candidate], target_bytes: int) -> Iterator[list[_Candidate]]:
    some: list[_Candidate] = []
    size_bytes = 0
    for candidate in candidates:
        if some and size_bytes + candidate.size_bytes > target_bytes:
            yield some
            some, size_bytes = [], 0
        some.append(candidate)
        size_bytes += candidate.size_bytes
    if some:
        yield some


def _pack_bins(bins: Iterable[tuple[Partition, list[_Candidate]]]) -> Iterator[list[_Candidate]]:
    """Yield bins, small ones of different partitions together: Spark writes a file for each partition."""
    packed: list[_Candidate] = []
    seen: set[Partition] = set()
    size_bytes = 0
    for partition, candidates in bins:
        added_bytes = sum(candidate.size_bytes for candidate in candidates)
        # Two bins of one partition in a task would become one file, which may exceed the size.
        if packed and (partition in seen or size_bytes + added_bytes > TASK_BYTES):
            yield packed
            packed, seen, size_bytes = [], set(), 0
        packed += candidates
        seen.add(partition)
        size_bytes += added_bytes
    if packed:
        yield packed


def _to_task(files: pa.Table, candidates: Sequence[_Candidate]) -> CompactionTask:
    rows = pa.array([candidate.row for candidate in candidates], pa.int64())
    return CompactionTask(files.take(rows), sum(candidate.size_bytes for candidate in candidates))
