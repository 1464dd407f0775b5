"""Rewriting and compaction: the rows of files are written to new files, and nothing else changes.

Rewritten files have the current types, and compacted ones a good size. Deleted rows are dropped, partition values keep
their texts, and rows keep their row ids if the table tracks them.

Source: PROTOCOL.md#add-file-and-remove-file (dataChange is false), #writer-requirements-for-row-tracking
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from functools import cached_property, partial
from itertools import accumulate, compress, pairwise
from math import ceil
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.copy_files import CopyGroup, map_in_threads
from widen.changes.curve_sort import parse_sort_columns, sort_along_curve, sort_tables
from widen.changes.delta_copies import DeltaCopies
from widen.errors import ConcurrentDeleteDelete, InternalError, InvalidOption
from widen.files.data_reader import RowSlice
from widen.files.deleted_rows import FILE, ROW
from widen.files.footers import OldFile, find_old_files, read_files, read_footer
from widen.files.statistics_repair import far_int96_files
from widen.frames.file_filters import files_in_partitions
from widen.frames.parquet_writer import write_parquet
from widen.frames.scan import read_snapshot, read_with_locations, with_row_tracking
from widen.limits import DRIVER_FOOTERS, READ_TASK_BYTES, SORTED_BYTES
from widen.log.commit import Committed, Conflicted, Outcome, StagedFiles, after_commit, commit
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard
from widen.log.file_list import file_key, file_keys, to_adds, to_remove
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import Path
from widen.model.display import size_text
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, Remove
from widen.protocol.column_mapping import TrackingColumns, to_physical_path
from widen.protocol.file_statistics import FileStatistics, count_written_rows
from widen.protocol.parquet_files import ensure_storable
from widen.protocol.table_features import ensure_writable, is_supported
from widen.protocol.table_properties import TARGET_BYTES
from widen.protocol.type_widening import ensure_changes_readable, strip_type_changes
from widen.spark.engine import Session, Unsupported, require_spark
from widen.spark.expression import Expression, expression_text
from widen.spark.spark_types import DataFrame, SparkSession

REWRITE = "REORG"
PARAMETERS: Mapping[str, object] = {"predicate": [], "applyPurge": True}
"""The operation and the parameters of a rewrite in the history.

Source: Delta Spark's REORG
"""


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Files that replace others."""

    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]

    @property
    def actions(self) -> list[Action]:
        """The actions to commit."""
        return [*self.removes, *self.adds]

    @property
    def metrics(self) -> dict[str, int]:
        """The operation metrics for the history.

        Source: Delta Spark's metrics of OPTIMIZE and REORG
        """
        sizes = sorted(add.size for add in self.adds) or [0]
        return {
            "numAddedFiles": len(self.adds),
            "numRemovedFiles": len(self.removes),
            "numAddedBytes": sum(add.size for add in self.adds),
            "numRemovedBytes": sum(remove.size or 0 for remove in self.removes),
            "minFileSize": sizes[0],
            "p25FileSize": sizes[len(sizes) // 4],
            "p50FileSize": sizes[len(sizes) // 2],
            "p75FileSize": sizes[len(sizes) * 3 // 4],
            "maxFileSize": sizes[-1],
            "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in self.removes),
        }


@dataclass(frozen=True)
class FileRewrite:
    """How the rows of files of a version are written to new files in the current types. Nothing is committed.

    Args:
        unmapped: Whether the new files use the logical names of the columns, not the physical names of column mapping.
        zorder_by: The columns to sort by, along a Z-order curve.
    """

    session: Callable[[], Session]
    snapshot: Snapshot
    unmapped: bool = False
    target_bytes: int | None = None
    zorder_by: tuple[Path, ...] = ()

    def run(self, groups: Sequence[pa.Table], rows: Sequence[int], staged: StagedFiles) -> list[RewrittenFiles]:
        """Write the rows of groups of files, and return what replaces each group.

        Args:
            rows: The number of their rows that are not deleted.

        Source: PROTOCOL.md#add-file-and-remove-file
        """
        ensure_changes_readable(self.snapshot.schema)
        ensure_storable(self.snapshot.schema, self.snapshot.partition_columns)
        try:
            copies = self._copy(groups)
        except Unsupported as refusal:
            copies = [refusal] * len(groups)
        for found in copies:
            staged.add_files(self.snapshot.store, () if isinstance(found, Unsupported) else found)
        return map_in_threads(partial(self._finish, staged), groups, rows, copies, threads=_JOBS)

    def _finish(
        self, staged: StagedFiles, files: pa.Table, rows: int, copies: list[Add] | Unsupported
    ) -> RewrittenFiles:
        adds = copies
        if isinstance(adds, Unsupported):
            adds = self._write_by_spark(files, rows, adds)
            staged.add_files(self.snapshot.store, adds)
        written = count_written_rows(adds)
        if written != rows:
            raise InternalError(reason=f"{files.num_rows} files with {rows} rows became files with {written} rows")
        now_ms = current_ms()
        return RewrittenFiles(
            tuple(msgspec.structs.replace(add, data_change=False) for add in adds),
            tuple(to_remove(add, now_ms, data_change=False) for add in to_adds(files)),
        )

    @cached_property
    def _copies(self) -> DeltaCopies:
        # A file of a bin that is a little too large is better than one of a few rows beside it.
        file_bytes = None if self.target_bytes is None else 2 * self.target_bytes
        return DeltaCopies(self.session, self.snapshot, self.unmapped, file_bytes)

    def _copy(self, groups: Sequence[pa.Table]) -> list[list[Add] | Unsupported]:
        """Copy groups with Arrow."""
        sort = partial(sort_tables, self._sort_paths, self.target_bytes or TARGET_BYTES) if self.zorder_by else None
        fits = [sort is None or _size_of(files) <= SORTED_BYTES for files in groups]
        wanted = [CopyGroup(uuid.uuid4().hex, [*map(RowSlice, to_adds(files))]) for files in compress(groups, fits)]
        done = iter(self._copies.copy(wanted, sort))
        return [next(done) if each else _TOO_LARGE for each in fits]

    @property
    def _sort_paths(self) -> list[Path]:
        """The columns to sort by, by their names in the new files."""
        target = self._copies.target
        return [to_physical_path(target.schema, path, target.mapping) for path in self.zorder_by]

    def _write_by_spark(self, files: pa.Table, rows: int, refusal: Unsupported) -> list[Add]:
        spark, snapshot, copies = require_spark(self.session(), str(refusal)), self.snapshot, self._copies
        view = snapshot.with_metadata(copies.stored)
        frame = (
            _read_tracked(spark, view, files, copies.tracking)
            if copies.tracking
            else read_snapshot(spark, view.store, view, only=_paths(files))
        )
        if self.zorder_by:
            outputs = ceil(_size_of(files) / (self.target_bytes or TARGET_BYTES))
            frame = sort_along_curve(frame, self.zorder_by, snapshot.partition_columns, outputs, rows)
        elif self.target_bytes is not None:
            frame = frame.coalesce(1)
        return write_parquet(frame, snapshot.store, copies.target)


_TOO_LARGE = Unsupported(f"it sorts more than {size_text(SORTED_BYTES)} of files together")


def _size_of(files: pa.Table) -> int:
    return sum(files["size_bytes"].to_pylist())


def live_rows(session: Callable[[], Session], snapshot: Snapshot, files: pa.Table) -> list[int]:
    """Return the number of live rows of each file; footers are read for files without statistics."""
    counts = [FileStatistics(stats).rows for stats in files["stats"].to_pylist()]
    unknown = [
        snapshot.store.plain(path) for path, rows in zip(files["path"].to_pylist(), counts, strict=True) if rows is None
    ]
    footers = iter(read_files(session, partial(read_footer, snapshot.store, frozenset()), unknown, DRIVER_FOOTERS))
    deleted = [(vector or {}).get("cardinality", 0) for vector in files["deletion_vector"].to_pylist()]
    return [(next(footers).rows if rows is None else rows) - count for rows, count in zip(counts, deleted, strict=True)]


def _paths(files: pa.Table) -> Sequence[str]:
    paths: list[str] = files["path"].to_pylist()
    return paths


def _read_tracked(spark: SparkSession, view: Snapshot, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    return with_row_tracking(read_with_locations(spark, view.store, view, files), view.store, files, columns).drop(
        FILE, ROW
    )


# The rewrite of all old files to the current types, while other writers continue.
#
# Every batch of files is one commit. A batch that loses a race against another commit is rewritten from its files
# that are left, in smaller batches; earlier batches stay committed.
#
# Source: PROTOCOL.md#writer-requirements-for-type-widening (rewriting files as necessary)


BATCH_BYTES = 64 * 2**30
"""The most bytes of old files that one commit replaces."""

MOST_CONFLICTS = 10
"""After this many conflicts in a row, the last one is reported."""


@dataclass
class OldFileRewrite:
    """The rewrite of one table, with its progress.

    Args:
        session: Returns the session; called only to rewrite files, or to read very many footers.
    """

    store: LogStore
    session: Callable[[], Session]
    batch_bytes: int = BATCH_BYTES
    files: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self._version: int | None = None
        self._types: object = None
        self._current: set[str] = set()
        self._old: dict[str, OldFile] = {}

    def run(self) -> Snapshot:
        """Rewrite every old file, and return a version without old files, which was the latest when it was read.

        The footer of a file is read once, even over several calls, as long as the types of the table stay the same.
        """
        conflicts = 0
        while True:
            with nullcontext() if self._version is None else after_commit(self.store.location, self._version):
                snapshot = open_snapshot(self.store)
                pending = _by_partition(self._find_files(snapshot))
            if not pending.num_rows:
                return snapshot
            conflict = self._rewrite(snapshot, _first_batch(pending, self.batch_bytes >> conflicts))
            conflicts = conflicts + 1 if conflict else 0
            if conflict is not None and conflicts == MOST_CONFLICTS:
                conflict.or_raise()

    def start_spark(self) -> None:
        """Start Spark if files must be rewritten. Called before other steps commit, since Spark may not start."""
        if self._find_files(open_snapshot(self.store)).num_rows:
            self.session()

    def _find_files(self, snapshot: Snapshot) -> pa.Table:
        """Return the files of a version that are to be rewritten."""
        types = strip_type_changes(snapshot.schema)
        if types != self._types:
            self._types, self._current, self._old = types, set(), {}
        files = snapshot.files()
        paths = files["path"].to_pylist()
        unknown = files.filter(pa.array([p not in self._current and p not in self._old for p in paths], pa.bool_()))
        self._old.update((file.path, file) for file in find_old_files(self.session, snapshot, unknown))
        self._current.update(path for path in unknown["path"].to_pylist() if path not in self._old)
        return files.filter(pa.array([path in self._old for path in paths], pa.bool_()))

    def _count_rows(self, _: Snapshot, files: pa.Table) -> int:
        rows = sum(self._old[path].rows for path in files["path"].to_pylist())
        return rows - (pc.sum(pc.struct_field(files["deletion_vector"], "cardinality")).as_py() or 0)

    def _rewrite(self, snapshot: Snapshot, files: pa.Table) -> Conflicted | None:
        groups = task_groups(files)
        with StagedFiles() as staged:
            rows = [self._count_rows(snapshot, group) for group in groups]
            rewrite = join_rewrites(FileRewrite(self.session, snapshot).run(groups, rows, staged))
            actions, numbers = rewrite.actions, rewrite.metrics
            outcome = commit(self.store, snapshot, actions, REWRITE, PARAMETERS, metrics=numbers, staged=staged)
        if isinstance(outcome, Conflicted):
            return outcome
        self._version = outcome.or_raise().version
        self.files += len(rewrite.removes)
        self.size_bytes += rewrite.metrics["numRemovedBytes"]
        self._current.update(add.path for add in rewrite.adds)
        return None


class Purge(OldFileRewrite):
    """The rewrite of all files with deletion vectors, without the deleted rows."""

    def _find_files(self, snapshot: Snapshot) -> pa.Table:
        files = snapshot.files()
        return files.filter(files["deletion_vector"].is_valid())

    def _count_rows(self, snapshot: Snapshot, files: pa.Table) -> int:
        return sum(live_rows(self.session, snapshot, files))


class Int96Rewrite(Purge):
    """The rewrite of all files with INT96 timestamps of years that other readers wrap around."""

    def _find_files(self, snapshot: Snapshot) -> pa.Table:
        return far_int96_files(snapshot)


def task_groups(files: pa.Table) -> list[pa.Table]:
    """Return files in groups for one task each, which have whole files of neighbouring partitions."""
    ordered, firsts, size_bytes = _by_partition(files), [0], 0
    for at, added_bytes in enumerate(ordered["size_bytes"].to_pylist()):
        size_bytes += added_bytes
        if at > firsts[-1] and size_bytes > READ_TASK_BYTES:
            firsts.append(at)
            size_bytes = added_bytes
    return [ordered.slice(first, end - first) for first, end in pairwise([*firsts, files.num_rows])]


def _by_partition(files: pa.Table) -> pa.Table:
    split = [sorted((k, v or "") for k, v in values or ()) for values in files["partition_values"].to_pylist()]
    return files.take(pa.array(sorted(range(files.num_rows), key=split.__getitem__), pa.int64()))


def _first_batch(files: pa.Table, size_bytes: int) -> pa.Table:
    """Return as many files from the start as fit into a number of bytes, but at least one."""
    total, count = 0, 0
    for size in files["size_bytes"].to_pylist():
        total += size
        if count and total > size_bytes:
            break
        count += 1
    return files.slice(0, count)


# Compaction: small files become files of a good size, while other writers continue.
#
# If a commit loses a race, it keeps the new files whose sources are still in the table. The rest is planned again.
#
# Source: Delta Spark's OPTIMIZE


# How a compaction groups the files that it rewrites. Bins are filled in the order of writing.
#
# Source: Delta Spark's OPTIMIZE


DELETED_SHARE = 0.05
"""A file is written again, however large it is, if a larger share of its rows is deleted."""


Partition: TypeAlias = Hashable
"""The partition of a file: equal for files that may be written together."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be written again.

    Args:
        is_full_of_deletions: Whether it is written again even if it is alone or large.
    """

    row: int
    partition: Partition
    size_bytes: int
    is_full_of_deletions: bool


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Files that one Spark job writes again.

    Args:
        files: The files. Files of one partition become one file unless the job sorts the rows.
    """

    files: pa.Table
    size_bytes: int


def plan_compaction(files: pa.Table, target_bytes: int, *, sorts: bool) -> list[CompactionTask]:
    """Return the tasks that turn small files, and files with many deleted rows, into files of a size.

    Args:
        sorts: Whether rows are sorted; then every file is written again, and a task has whole partitions.
    """
    candidates = (
        Candidate(row, _partition(file), file["size_bytes"], _is_full_of_deletions(file))
        for row, file in sorted(enumerate(files.to_pylist()), key=lambda item: _order(item[1]))
    )
    return [_to_task(files, some) for some in pack_files(candidates, target_bytes, sorts=sorts)]


def pack_files(candidates: Iterable[Candidate], target_bytes: int, *, sorts: bool) -> list[list[Candidate]]:
    """Return which files are written again by one task each; the files of one partition become one file.

    Args:
        sorts: Whether rows are sorted; then every file is written again, and a task has whole partitions.
    """
    partitions: dict[Partition, list[Candidate]] = {}
    for each in candidates:
        if sorts or each.is_full_of_deletions or each.size_bytes < target_bytes:
            partitions.setdefault(each.partition, []).append(each)
    bins = (
        (partition, some)
        for partition, found in partitions.items()
        for some in ([found] if sorts else _fill_bins(found, target_bytes))
        if sorts or len(some) > 1 or some[0].is_full_of_deletions
    )
    return list(_pack_bins(bins))


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


def _fill_bins(candidates: Sequence[Candidate], target_bytes: int) -> Iterator[list[Candidate]]:
    some: list[Candidate] = []
    size_bytes = 0
    for candidate in candidates:
        if some and size_bytes + candidate.size_bytes > target_bytes:
            yield some
            some, size_bytes = [], 0
        some.append(candidate)
        size_bytes += candidate.size_bytes
    if some:
        yield some


def _pack_bins(bins: Iterable[tuple[Partition, list[Candidate]]]) -> Iterator[list[Candidate]]:
    """Yield bins, small ones of different partitions together: Spark writes a file for each partition."""
    packed: list[Candidate] = []
    seen: set[Partition] = set()
    size_bytes = 0
    for partition, candidates in bins:
        added_bytes = sum(candidate.size_bytes for candidate in candidates)
        # Two bins of one partition in a task would become one file, which may exceed the size.
        if packed and (partition in seen or size_bytes + added_bytes > READ_TASK_BYTES):
            yield packed
            packed, seen, size_bytes = [], set(), 0
        packed += candidates
        seen.add(partition)
        size_bytes += added_bytes
    if packed:
        yield packed


def _to_task(files: pa.Table, candidates: Sequence[Candidate]) -> CompactionTask:
    rows = pa.array([candidate.row for candidate in candidates], pa.int64())
    return CompactionTask(files.take(rows), sum(candidate.size_bytes for candidate in candidates))


OPTIMIZE = "OPTIMIZE"
_JOBS = 8
"""The number of Spark jobs at a time; most of them have one task."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What to compact.

    Args:
        zorder_by: The columns to sort by, along a Z-order curve.
    """

    where: str | None = None
    target_bytes: int = TARGET_BYTES
    zorder_by: tuple[str, ...] = ()

    @property
    def parameters(self) -> Mapping[str, object]:
        """The parameters in the history, as Delta Lake writes them."""
        predicate = [] if self.where is None else [expression_text(self.where)]
        return {"predicate": predicate, "zOrderBy": list(self.zorder_by), "clusterBy": [], "auto": False}


@dataclass
class Compaction:
    """The compaction of one table, with its progress.

    Args:
        session: Returns the session; a plan needs it only to evaluate a condition.
    """

    session: Callable[[], Session]
    store: LogStore
    request: CompactionRequest
    done: RewrittenFiles = field(default_factory=lambda: RewrittenFiles((), ()))

    def plan(self, snapshot: Snapshot, among: frozenset[str] | None = None) -> list[CompactionTask]:
        """Return the tasks for a version.

        Args:
            among: The paths of the files to consider; by default all files that the request names.
        """
        ensure_writable(snapshot.protocol, snapshot.location)
        _sort_columns(snapshot, self.request.zorder_by)
        files = snapshot.files()
        if self.request.where is not None:
            files = _in_partitions(self.session(), snapshot, files, self.request.where)
        if among is not None:
            files = files.filter(pa.array([path in among for path in files["path"].to_pylist()], pa.bool_()))
        return plan_compaction(files, self.request.target_bytes, sorts=bool(self.request.zorder_by))

    def run(self) -> Snapshot:
        """Compact the files, in one commit unless they are very large, and return the newest version."""
        snapshot, conflicts = open_snapshot(self.store), 0
        tasks = self.plan(snapshot)
        # What is written again is decided once: the new files are not compacted again.
        left = frozenset(path for task in tasks for path in task.files["path"].to_pylist())
        while tasks:
            outcome = self._run_batch(snapshot, _first_tasks(tasks))
            conflicts = conflicts + 1 if isinstance(outcome, Conflicted) else 0
            if isinstance(outcome, Conflicted) and conflicts == MOST_CONFLICTS:
                outcome.or_raise()
            left -= {remove.path for remove in self.done.removes}
            snapshot = open_snapshot(self.store)
            tasks = self.plan(snapshot, left)
        return snapshot

    def _run_batch(self, snapshot: Snapshot, tasks: Sequence[CompactionTask]) -> Committed | Conflicted:
        with StagedFiles() as staged:
            parts = self._rewrite_all(snapshot, staged, tasks)
            outcome = self._commit(snapshot, parts, staged)
            if isinstance(outcome, Conflicted) and isinstance(outcome.error, ConcurrentDeleteDelete):
                outcome, parts = self._commit_rest(snapshot, parts, staged, outcome)
        if isinstance(outcome, Conflicted):
            return outcome
        self.done = join_rewrites([self.done, *parts])
        return outcome.or_raise()

    def _rewrite_all(
        self, snapshot: Snapshot, staged: StagedFiles, tasks: Sequence[CompactionTask]
    ) -> Sequence[RewrittenFiles]:
        columns = _sort_columns(snapshot, self.request.zorder_by)
        rewrite = FileRewrite(self.session, snapshot, target_bytes=self.request.target_bytes, zorder_by=tuple(columns))
        rows = live_rows(self.session, snapshot, pa.concat_tables(task.files for task in tasks))
        ends = list(accumulate(task.files.num_rows for task in tasks))
        counts = [sum(rows[end - task.files.num_rows : end]) for task, end in zip(tasks, ends, strict=True)]
        return rewrite.run([task.files for task in tasks], counts, staged)

    def _commit(self, snapshot: Snapshot, parts: Sequence[RewrittenFiles], staged: StagedFiles) -> Outcome:
        whole, parameters = join_rewrites(parts), self.request.parameters
        return commit(self.store, snapshot, whole.actions, OPTIMIZE, parameters, metrics=whole.metrics, staged=staged)

    def _commit_rest(
        self, snapshot: Snapshot, parts: Sequence[RewrittenFiles], staged: StagedFiles, conflict: Conflicted
    ) -> tuple[Outcome, Sequence[RewrittenFiles]]:
        """Commit the parts whose sources are all still in the table, unless the table itself changed."""
        newest = open_snapshot(self.store)
        if (newest.protocol, newest.metadata) != (snapshot.protocol, snapshot.metadata):
            return conflict, parts
        files, location = newest.files().combine_chunks(), self.store.location
        live = {
            key
            for batch in files.to_batches()
            for key in file_keys(batch.column("path"), batch.column("deletion_vector"), location)
        }
        rest = [
            part
            for part in parts
            if all(file_key(remove.path, remove.deletion_vector, location) in live for remove in part.removes)
        ]
        if not rest:
            return conflict, parts
        outcome = self._commit(newest, rest, staged)
        if isinstance(outcome, Committed):
            discard(self.store, [add for part in parts if part not in rest for add in part.adds])
        return outcome, rest


def _sort_columns(snapshot: Snapshot, texts: Sequence[str]) -> list[Path]:
    """Return columns to sort by.

    Raises:
        InvalidOption: the table has clustering columns.
    """
    if texts and is_supported(snapshot.protocol, "clustering"):
        raise InvalidOption(option="zorder_by", value=texts, expected="The table has clustering columns.")
    return parse_sort_columns(snapshot.schema, texts, snapshot.partition_columns)


def _in_partitions(session: Session, snapshot: Snapshot, files: pa.Table, where: Expression) -> pa.Table:
    matching = files_in_partitions(session, snapshot, files, where)
    if matching is None:
        names = ", ".join(snapshot.partition_columns) or "of which the table has none"
        expected = f"Must be a condition on partition columns: {names}."
        raise InvalidOption(option="where", value=where, expected=expected)
    return matching


def _first_tasks(tasks: Sequence[CompactionTask]) -> list[CompactionTask]:
    """Return as many tasks as one commit replaces, but at least one."""
    batch: list[CompactionTask] = []
    total_bytes = 0
    for task in tasks:
        total_bytes += task.size_bytes
        if batch and total_bytes > BATCH_BYTES:
            break
        batch.append(task)
    return batch


def join_rewrites(parts: Sequence[RewrittenFiles]) -> RewrittenFiles:
    """Return all files of rewrites together."""
    return RewrittenFiles(
        tuple(add for part in parts for add in part.adds), tuple(remove for part in parts for remove in part.removes)
    )
