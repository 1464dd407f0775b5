"""Compaction: small files become files of a good size, while other writers continue.

A commit that loses a race against another one keeps those of its files whose sources are still in the table, and the
rest is planned again.

Source: Delta Spark's OPTIMIZE; PROTOCOL.md#add-file-and-remove-file (dataChange is false)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TypeAlias

import pyarrow as pa

from widen.errors import ConcurrentDeleteDelete, InvalidOption
from widen.log.commit import Committed, Conflicted, Outcome, StagedFiles, commit
from widen.log.commit_outcome import discard
from widen.log.file_list import file_key, file_keys
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import parse_path, resolve
from widen.model.schema_json import to_identifier
from widen.model.types import AtomicType, DecimalType
from widen.protocol.file_statistics import FileStatistics
from widen.protocol.table_features import ensure_writable, is_supported
from widen.protocol.table_properties import TARGET_BYTES
from widen.spark.expression import Expression, expression_text
from widen.spark.maintain.rewrite_files import BATCH_BYTES, MOST_CONFLICTS, RewrittenFiles, live_rows, rewrite_files
from widen.spark.read.predicates import files_in_partitions
from widen.spark.spark_types import DataFrame, F, SparkSession

# Which files a compaction writes again, and which of them together. Bins are filled in the order of writing.
#
# Source: Delta Spark's OPTIMIZE


DELETED_SHARE = 0.05
"""A file is written again, however large it is, if a larger share of its rows is deleted."""

TASK_BYTES = 128 * 2**20
"""Small bins of different partitions are written by one task up to this size."""

Partition: TypeAlias = Hashable
"""The partition of a file: equal for files that may be written together."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be written again.

    Args:
        row: Its position in the list of files.
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
    candidates = (
        Candidate(row, _partition(file), file["size_bytes"], _is_full_of_deletions(file))
        for row, file in sorted(enumerate(files.to_pylist()), key=lambda item: _order(item[1]))
    )
    return [_to_task(files, some) for some in pack_files(candidates, target_bytes, sorts=sorts)]


def pack_files(candidates: Iterable[Candidate], target_bytes: int, *, sorts: bool) -> list[list[Candidate]]:
    """Return which files are written again by one task each; the files of one partition become one file.

    Args:
        candidates: The files in the order in which they are written.
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
        if packed and (partition in seen or size_bytes + added_bytes > TASK_BYTES):
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
        where: A condition on partition columns; None for the whole table.
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

    session: Callable[[], SparkSession]
    store: LogStore
    request: CompactionRequest
    done: RewrittenFiles = field(default_factory=lambda: RewrittenFiles((), ()))

    def plan(self, snapshot: Snapshot, among: frozenset[str] | None = None) -> list[CompactionTask]:
        """Return the tasks for a version.

        Args:
            among: The paths of the files to consider; by default all files that the request names.

        Raises:
            InvalidOption: the condition uses other columns than partition columns, or a column cannot be sorted by.
            UnsupportedFeatureForWrite: the table has a feature that Widen does not support for writing.
            JobFailed: the Spark job that evaluates the condition failed.
        """
        ensure_writable(snapshot.protocol, snapshot.location)
        sort_columns(snapshot, self.request.zorder_by)
        files = snapshot.files()
        if self.request.where is not None:
            files = _in_partitions(self.session(), snapshot, files, self.request.where)
        if among is not None:
            files = files.filter(pa.array([path in among for path in files["path"].to_pylist()], pa.bool_()))
        return plan_compaction(files, self.request.target_bytes, sorts=bool(self.request.zorder_by))

    def run(self) -> Snapshot:
        """Compact the files, in one commit unless they are very large, and return the newest version.

        Raises:
            InvalidOption: as for `plan`.
            UnsupportedTypeChange: the schema records a type change that the protocol does not list.
            UnsupportedFeatureForWrite: the table has a feature that Widen does not support for writing.
            ContentionError: too many commits in a row had conflicts, or the outcome of a commit is unknown.
        """
        snapshot, conflicts = open_snapshot(self.store), 0
        tasks = self.plan(snapshot)
        # What is written again is decided once: the new files are not compacted again.
        left = frozenset(path for task in tasks for path in task.files["path"].to_pylist())
        while tasks:
            outcome = self._run_batch(snapshot, _first_batch(tasks))
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
        self.done = _join([self.done, *parts])
        return outcome.or_raise()

    def _rewrite_all(
        self, snapshot: Snapshot, staged: StagedFiles, tasks: Sequence[CompactionTask]
    ) -> Sequence[RewrittenFiles]:
        with ThreadPoolExecutor(_JOBS, "widen-compact") as pool:
            try:
                return list(pool.map(partial(self._rewrite, snapshot, staged), tasks))
            except BaseException:
                # Leaving the block waits for all tasks, also for those that have not begun.
                pool.shutdown(cancel_futures=True)
                raise

    def _rewrite(self, snapshot: Snapshot, staged: StagedFiles, task: CompactionTask) -> RewrittenFiles:
        rows = sum(live_rows(self.session(), snapshot, task.files))
        columns = sort_columns(snapshot, self.request.zorder_by)
        outputs = ceil(task.size_bytes / self.request.target_bytes)

        def arrange(frame: DataFrame) -> DataFrame:
            if not columns:
                return frame.coalesce(1)
            return sort_along_curve(frame, columns, snapshot.partition_columns, outputs, rows)

        part = rewrite_files(self.session(), snapshot, task.files, rows, arrange)
        staged.add_files(self.store, part.adds)
        return part

    def _commit(self, snapshot: Snapshot, parts: Sequence[RewrittenFiles], staged: StagedFiles) -> Outcome:
        whole, parameters = _join(parts), self.request.parameters
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


def sort_columns(snapshot: Snapshot, texts: Sequence[str]) -> list[str]:
    """Return columns to sort by as SQL expressions.

    Raises:
        InvalidPath: a path cannot be read.
        ColumnNotFound: a column does not exist.
        InvalidOption: a column is a partition column or has no order, or the table has clustering columns.
    """
    if texts and is_supported(snapshot.protocol, "clustering"):
        raise InvalidOption(option="zorder_by", value=texts, expected="The table has clustering columns.")
    if len(texts) > MOST_COLUMNS:
        raise InvalidOption(option="zorder_by", value=texts, expected=f"Must be at most {MOST_COLUMNS} columns.")
    columns = []
    for text in texts:
        path, data_type = resolve(snapshot.schema, parse_path(text))
        if path[0] in snapshot.partition_columns or not isinstance(data_type, (AtomicType, DecimalType)):
            expected = "Must be a column with an order that is not a partition column."
            raise InvalidOption(option="zorder_by", value=text, expected=expected)
        columns.append(".".join(map(to_identifier, path)))
    return columns


def _in_partitions(spark: SparkSession, snapshot: Snapshot, files: pa.Table, where: Expression) -> pa.Table:
    matching = files_in_partitions(spark, snapshot, files, where)
    if matching is None:
        names = ", ".join(snapshot.partition_columns) or "of which the table has none"
        expected = f"Must be a condition on partition columns: {names}."
        raise InvalidOption(option="where", value=where, expected=expected)
    return matching


def _first_batch(tasks: Sequence[CompactionTask]) -> list[CompactionTask]:
    """Return as many tasks as one commit replaces, but at least one."""
    batch: list[CompactionTask] = []
    total_bytes = 0
    for task in tasks:
        total_bytes += task.size_bytes
        if batch and total_bytes > BATCH_BYTES:
            break
        batch.append(task)
    return batch


def _join(parts: Sequence[RewrittenFiles]) -> RewrittenFiles:
    return RewrittenFiles(
        tuple(add for part in parts for add in part.adds), tuple(remove for part in parts for remove in part.removes)
    )


# Sorting rows along a Z-order curve, so that files have narrow bounds in several columns at once.
#
# Each column is divided into buckets with about the same number of rows, and the bits of the numbers of the buckets
# are interleaved. The bounds of the buckets stay in Spark; no value reaches the driver.
#
# Source: Delta Spark's OPTIMIZE ZORDER BY


MOST_COLUMNS = 8
# The bits of all columns have to fit into a bigint.
_BITS = 7
_BUCKETS = 2**_BITS
_SAMPLED_ROWS = 50_000
_CURVE, _BOUNDS = "__widen_curve", "__widen_bounds_{}"


def sort_along_curve(
    rows: DataFrame, columns: Sequence[str], partition_by: Sequence[str], outputs: int, count: int
) -> DataFrame:
    """Return rows in partitions that are ranges of a Z-order curve, each sorted.

    Args:
        columns: The columns, as SQL expressions; at most `MOST_COLUMNS`.
        partition_by: The partition columns of the table; they come first in the order of each partition.
        outputs: The number of partitions to return.
    """
    names = [_BOUNDS.format(at) for at in range(len(columns))]
    share = min(1.0, _SAMPLED_ROWS / max(count, 1))
    bounds = rows.sample(share, seed=0).selectExpr(
        *(_bounds(column, name) for column, name in zip(columns, names, strict=True))
    )
    buckets = [_bucket(column, name) for column, name in zip(columns, names, strict=True)]
    located = rows.crossJoin(F.broadcast(bounds)).withColumn(_CURVE, F.expr(_interleave(buckets))).drop(*names)
    spread = located.repartitionByRange(outputs, _CURVE) if outputs > 1 else located.coalesce(1)
    return spread.sortWithinPartitions(*map(to_identifier, partition_by), _CURVE).drop(_CURVE)


def _bounds(column: str, name: str) -> str:
    """Return the aggregate of the bounds between buckets; null for no rows."""
    values = f"sort_array(collect_list({column}))"
    position = f"int(ceil(i * size({values}) / {_BUCKETS}))"
    picked = f"transform(sequence(1, {_BUCKETS - 1}), i -> element_at({values}, {position}))"
    return f"CASE WHEN count({column}) > 0 THEN {picked} END AS {name}"


def _bucket(column: str, bounds: str) -> str:
    """Return the number of bounds that are not greater than a value, by binary search; 0 for null."""
    steps = ", ".join(str(2**bit) for bit in reversed(range(_BITS)))
    step = f"IF(element_at({bounds}, acc + step) <= {column}, acc + step, acc)"
    return f"aggregate(array({steps}), 0, (acc, step) -> {step})"


def _interleave(buckets: Sequence[str]) -> str:
    bits = (
        f"shiftleft(bigint(shiftright({bucket}, {bit}) & 1), {bit * len(buckets) + at})"
        for bit in range(_BITS)
        for at, bucket in enumerate(buckets)
    )
    return " | ".join(bits)
