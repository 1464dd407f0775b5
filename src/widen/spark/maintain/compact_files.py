"""Compaction: small files become files of a good size, while other writers continue.

A commit that loses a race against another one keeps those of its files whose sources are still in the table, and the
rest is planned again.

Source: Delta Spark's OPTIMIZE; PROTOCOL.md#add-file-and-remove-file (dataChange is false)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import ceil

import pyarrow as pa

from widen.errors import ConcurrentDeleteDelete, InvalidOption
from widen.log.read.file_list import file_key, file_keys
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Committed, Conflicted, Outcome, StagedFiles, commit
from widen.log.write.staged_files import discard
from widen.model.column_path import parse_path, resolve
from widen.model.sql_literal import to_identifier
from widen.model.types import AtomicType, DecimalType
from widen.protocol.skipping.file_statistics import FileStatistics
from widen.protocol.table_features import ensure_writable, is_supported
from widen.spark.expression import Expression, to_text
from widen.spark.maintain.compaction_plan import TARGET_BYTES, CompactionTask, plan_compaction
from widen.spark.maintain.rewrite_files import RewrittenFiles, rewrite_files
from widen.spark.maintain.rewrite_old_files import BATCH_BYTES, MOST_CONFLICTS
from widen.spark.maintain.z_order import MOST_COLUMNS, sort_along_curve
from widen.spark.parquet.footer import read_footers
from widen.spark.read.partition_filter import files_in_partitions
from widen.spark.spark_types import DataFrame, SparkSession

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
        predicate = [] if self.where is None else [to_text(self.where)]
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


def live_rows(spark: SparkSession, snapshot: Snapshot, files: pa.Table) -> list[int]:
    """Return the number of rows of each file without the deleted ones; footers tell what statistics do not."""
    counts = [FileStatistics(stats).rows for stats in files["stats"].to_pylist()]
    unknown = [
        snapshot.store.plain(path) for path, rows in zip(files["path"].to_pylist(), counts, strict=True) if rows is None
    ]
    footers = iter(read_footers(spark, snapshot.store, unknown, frozenset()))
    deleted = [(vector or {}).get("cardinality", 0) for vector in files["deletion_vector"].to_pylist()]
    return [(next(footers).rows if rows is None else rows) - count for rows, count in zip(counts, deleted, strict=True)]
