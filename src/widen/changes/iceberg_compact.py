"""Compaction of Iceberg tables: small files become files of a good size, and deleted rows leave their files.

A commit that loses a race keeps what it has written for files that are still in the table without new deletes; the
rest is planned again.

Source: Iceberg's table specification, "Row-level Deletes", "Sorting"; Iceberg for Spark's rewrite_data_files
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.copy_files import Arrange, map_in_threads
from widen.changes.curve_sort import cut_rows, parse_sort_columns, sort_along_curve, sort_tables
from widen.changes.iceberg_write import copy_unmarked, open_iceberg_writer, sort_rows
from widen.changes.rewrite_files import Candidate, pack_files
from widen.errors import InvalidOption, JobFailed
from widen.files.deleted_rows import FILE, ROW
from widen.files.iceberg_columns import has_old_types, read_schemas
from widen.files.parquet_encoding import read_size
from widen.files.predicates import bind_condition
from widen.frames.iceberg_scan import IcebergSource, delete_test, read_iceberg_files, read_lineage
from widen.frames.table_writers import FILE_BYTES, FILE_SIZE, IcebergWriter, to_order
from widen.iceberg.catalog import TableName
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.metadata_files import has_row_lineage, live_entries
from widen.iceberg.partitions import SortKey, read_sort_keys
from widen.iceberg.properties import OPERATION, OPTIMIZE, REWRITE, read_sources
from widen.iceberg.scan_plan import IcebergScan, ScannedFile, find_replaced_deletes, plan_scan
from widen.iceberg.schema_conversion import ensure_names_distinct, find_unreadable, to_readable, to_whole
from widen.iceberg.snapshots import ReadPoint, SnapshotReference, find_read_point
from widen.iceberg.table_commit import CommitResult, IcebergTransaction, ensure_table_writable, open_transaction
from widen.limits import COPIED_BYTES, SORTED_BYTES
from widen.log.commit_outcome import MAX_CONFLICTS, Conflicted, StagedFiles
from widen.model.display import size_text
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.spark.engine import READS, Session
from widen.spark.spark_types import DataFrame

if TYPE_CHECKING:
    from widen.iceberg.catalog import Table
    from widen.iceberg.snapshots import TableMetadata

_JOBS = 8
"""The number of Spark jobs and of copies at a time; most jobs have one task."""


@dataclass(frozen=True, slots=True)
class IcebergCompactionRequest:
    """What to write again.

    Args:
        where: A condition; files that cannot have a row that fulfils it stay. None for the whole table.
        zorder_by: The columns to sort by, along a Z-order curve.
        only_old: Whether to write only files in old types or of older partition specifications, each for itself.
    """

    where: str | None = None
    target_bytes: int | None = None
    zorder_by: tuple[str, ...] = ()
    sorts: bool = False
    only_old: bool = False


@dataclass(frozen=True)
class _BinPlan:
    """What is written again of one version of a table.

    Args:
        tasks: The files that one Spark job writes again each.
    """

    table: Table
    point: ReadPoint
    schema: StructType
    target_bytes: int
    scan: IcebergScan
    tasks: Sequence[Sequence[ScannedFile]]

    @property
    def counts(self) -> dict[str, int]:
        """The number and the size of the files, by the names of metrics."""
        files = [file for task in self.tasks for file in task]
        return {"numRemovedFiles": len(files), "numRemovedBytes": sum(file.size_bytes for file in files)}


@dataclass(frozen=True, slots=True)
class _FilePart:
    """Files and those that replace them."""

    old: Sequence[ScannedFile]
    new: Sequence[IcebergFile]


@dataclass
class IcebergCompaction:
    """The compaction of a branch of a table, with the metrics of what was committed.

    Args:
        session: Returns the session, given the reason why Spark is needed.
    """

    name: TableName
    session: Callable[[str], Session]
    request: IcebergCompactionRequest
    branch: str | None = None
    metrics: dict[str, int] = field(default_factory=dict)
    _sorting: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    """Held by the thread that holds rows to sort them."""

    def plan(self) -> _BinPlan:
        """Return the files of the newest version that are rewritten.

        Raises:
            InvalidOption: a column cannot be sorted by, or the table has no sort order.
        """
        table, request = self.name.load(), self.request
        ensure_table_writable(self.name, table)
        point = find_read_point(table.metadata, SnapshotReference(branch=self.branch))
        find_unreadable(table.schema()).ensure_kept(by_arrow=True)
        schema = to_readable(table.schema(), read_sources(table.properties, str(self.name)))
        ensure_names_distinct(schema, str(self.name))
        parse_sort_columns(schema, request.zorder_by)
        if request.sorts and not read_sort_keys(table.metadata):
            raise InvalidOption(option="sort", value=True, expected="The table has no sort order; set one first.")
        size = read_size(table.properties, FILE_SIZE) or FILE_BYTES
        plan = _BinPlan(table, point, schema, request.target_bytes or size, IcebergScan((), ()), ())
        if point.snapshot is None:
            return plan
        predicate = bind_condition(request.where, schema)
        scan = plan_scan(point, table.io, predicate)
        plan = replace(plan, scan=scan)
        return replace(plan, tasks=self._old_files(plan) if request.only_old else self._small_files(plan))

    def _small_files(self, plan: _BinPlan) -> list[list[ScannedFile]]:
        files = sorted(plan.scan.files, key=lambda file: (file.sequence, file.path))
        deleted = _files_with_deletes(plan.scan)
        candidates = (Candidate(at, f.partition, f.size_bytes, f.path in deleted) for at, f in enumerate(files))
        sorts = self.request.sorts or bool(self.request.zorder_by)
        return [[files[each.row] for each in some] for some in pack_files(candidates, plan.target_bytes, sorts=sorts)]

    def _old_files(self, plan: _BinPlan) -> list[list[ScannedFile]]:
        files, metadata = plan.scan.files, plan.point.metadata
        stored = read_schemas(partial(self.session, READS), plan.table.io, [file.path for file in files])
        mapping, current = metadata.name_mapping(), f"{metadata.default_spec_id}:"
        old = [
            file
            for file, columns in zip(files, stored, strict=True)
            if not file.partition.startswith(current) or has_old_types(columns, plan.schema, mapping)
        ]
        candidates = (Candidate(at, at, file.size_bytes, is_full_of_deletions=True) for at, file in enumerate(old))
        return [[old[each.row] for each in some] for some in pack_files(candidates, plan.target_bytes, sorts=False)]

    def run(self) -> CommitResult | None:
        """Rewrite the files of a plan and commit them; return None if there is nothing to rewrite."""
        plan = self.plan()
        if not plan.tasks:
            return None
        transaction = open_transaction(self.name, plan.table, (), branch=self.branch)
        writer = self._writer(transaction, plan)
        with StagedFiles() as staged:
            parts: list[_FilePart] = []
            staged.add_undo(lambda: writer.discard([file for part in parts for file in part.new]))
            map_in_threads(lambda task: self._write(writer, plan, task, parts), plan.tasks, threads=_JOBS)
            outcome = self._commit(transaction, staged, plan, parts)
            left = parts
            for _ in range(MAX_CONFLICTS):
                if not isinstance(outcome, Conflicted):
                    break
                table = self.name.load()
                left = self._still_valid(plan, table, left)
                if not left:
                    return outcome
                transaction = open_transaction(self.name, table, (), branch=self.branch)
                outcome = self._commit(transaction, staged, plan, left)
        lost = [file for part in parts if part not in left for file in part.new]
        if lost:
            writer.discard(lost)
        return outcome

    def _writer(self, transaction: IcebergTransaction, plan: _BinPlan) -> IcebergWriter:
        sources = read_sources(plan.table.properties, str(self.name))
        writer = open_iceberg_writer(transaction, to_whole(plan.table.schema(), sources))
        writer = replace(writer, sort_by=()) if self.request.zorder_by else writer
        # Files that are smaller than the target would be written again by every compaction. Sorted rows are cut where
        # they are sorted: a file that is a little too large is better than one of a few rows beside it.
        size = plan.target_bytes * (2 if self._order(writer, plan) else 1)
        return replace(writer, properties={**writer.properties, FILE_SIZE: str(size)})

    def _write(
        self, writer: IcebergWriter, plan: _BinPlan, task: Sequence[ScannedFile], parts: list[_FilePart]
    ) -> None:
        deletes = tuple(each for each in plan.scan.deletes if any(map(each.applies_to, task)))
        arrange, size_bytes = self._order(writer, plan), sum(file.size_bytes for file in task)
        done, most = ("sorts", SORTED_BYTES) if arrange else ("joins", COPIED_BYTES)
        fits = size_bytes <= most
        reason = READS if fits else f"it {done} more than {size_text(most)} of files together"
        source = IcebergSource(partial(self.session, reason), plan.table.io, plan.point)
        scan, files = IcebergScan(tuple(task), deletes), None
        if fits:
            marked = {file.path: BitMap64() for file in task}
            with self._sorting if arrange else nullcontext():
                files = copy_unmarked(source, writer, scan, marked, writers=1, arrange=arrange)
        if files is None:
            find_unreadable(plan.table.schema()).ensure_kept()
            if has_row_lineage(plan.point.metadata):
                rows = read_lineage(source, plan.schema, scan).drop(FILE, ROW)
                writer = writer.with_lineage()
            else:
                rows = read_iceberg_files(source, plan.schema, scan)
            files = writer.write(self._arrange(rows, plan, task))
        parts.append(_FilePart(task, files))
        found, before = writer.count_rows(files), sum(file.rows for file in task)
        # Only readers of deletes know how many rows the deletes remove.
        if found > before or (not deletes and found != before):
            raise JobFailed(reason=f"{found} rows were written instead of {before}")

    def _order(self, writer: IcebergWriter, plan: _BinPlan) -> Arrange | None:
        """Return how Arrow sorts rows; None if they keep their order."""
        if self.request.zorder_by:
            return partial(sort_tables, parse_sort_columns(plan.schema, self.request.zorder_by), plan.target_bytes)
        return partial(_sort, writer.sort_by, plan.target_bytes) if writer.sort_by else None

    def _arrange(self, rows: DataFrame, plan: _BinPlan, task: Sequence[ScannedFile]) -> DataFrame:
        size_bytes, count = sum(file.size_bytes for file in task), sum(file.rows for file in task)
        outputs = ceil(size_bytes / plan.target_bytes)
        columns = parse_sort_columns(plan.schema, self.request.zorder_by)
        if columns:
            return sort_along_curve(rows, columns, (), outputs, count)
        if not self.request.sorts or outputs == 1:
            return rows.coalesce(1)
        return rows.repartitionByRange(outputs, *map(to_order, read_sort_keys(plan.point.metadata)))

    def _commit(
        self, transaction: IcebergTransaction, staged: StagedFiles, plan: _BinPlan, parts: Sequence[_FilePart]
    ) -> CommitResult:
        old = {file.path: file for part in parts for file in part.old}
        new = [file for part in parts for file in part.new]
        metadata, io = transaction.metadata, transaction.table.io
        snapshot = find_read_point(metadata, SnapshotReference(branch=self.branch)).snapshot
        assert snapshot is not None
        removed = [each.data_file for each in live_entries(metadata, io, snapshot, old)]
        deletes = find_replaced_deletes(metadata, io, snapshot, old)
        operation = REWRITE if self.request.only_old else OPTIMIZE
        transaction.add_snapshot(new, {OPERATION: operation}, removed, deletes)
        outcome = transaction.commit(staged)
        self.metrics = {
            "numAddedFiles": len(new),
            "numRemovedFiles": len(old),
            "numAddedBytes": sum(file.size for file in new),
            "numRemovedBytes": sum(file.size_bytes for file in old.values()),
            "numRemovedDeleteFiles": int(deletes.counts.get("removed-delete-files", 0)),
        }
        return outcome

    def _still_valid(self, plan: _BinPlan, table: Table, parts: Sequence[_FilePart]) -> list[_FilePart]:
        """Return the parts that can replace their files in a newer version of the table.

        New files are newer than the deletes of the other writer, which would no longer apply to them.
        """
        before, now = plan.table.metadata, table.metadata
        if _layout(before) != _layout(now):
            return []
        point = find_read_point(now, SnapshotReference(branch=self.branch))
        if point.snapshot is None:
            return []
        scan = plan_scan(point, table.io)
        live, known = {file.path for file in scan.files}, {each.path for each in plan.scan.deletes}
        new = [each for each in scan.deletes if each.path not in known]
        return [
            part
            for part in parts
            if all(file.path in live and not any(each.applies_to(file) for each in new) for file in part.old)
        ]


def _sort(keys: Sequence[SortKey], target_bytes: int, size_bytes: int, rows: pa.Table) -> Iterator[pa.Table]:
    return cut_rows(target_bytes, size_bytes, sort_rows(keys, rows))


def _layout(metadata: TableMetadata) -> tuple[object, ...]:
    """Return how and where the files of a table are written."""
    ids = (metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id)
    return (*ids, data_location(metadata))


def _files_with_deletes(scan: IcebergScan) -> set[str]:
    """Return the files of a scan that have deleted rows."""
    has_deletes = delete_test(scan.deletes)
    return {file.path for file in scan.files if has_deletes(file)}
