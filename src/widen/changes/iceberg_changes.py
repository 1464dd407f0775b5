"""Delete, update, overwrite and merge rows of an Iceberg table in one snapshot.

Files with such rows are rewritten (copy-on-write), unless the table asks for deletion vectors: see
`widen.changes.iceberg_vectors`. Rows that other writers have deleted in these files stay deleted.

Source: Iceberg's table specification, "Row-level Deletes"; Delta Lake's DELETE, UPDATE, MERGE and overwrites
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from widen.changes.assignment import (
    CLAUSE,
    AssignedValue,
    ChangeKind,
    assign_columns,
    find_assigned_types,
    texts_of_columns,
    to_assigned_values,
    translate_overflow,
)
from widen.changes.fold_column import FoldedRows, change_condition, folded_columns, has_value
from widen.changes.iceberg_apply import RowChange
from widen.changes.iceberg_copies import HeldRows, RowSearch
from widen.changes.iceberg_vectors import marks_rows
from widen.changes.iceberg_write import ReplacedFiles, check_iceberg_rows, find_deleted, open_iceberg_writer
from widen.changes.merge import MergeClause, MergeDecision, MergeResolution, MergeSides
from widen.changes.update_delete import rows_within
from widen.errors import ColumnRefused
from widen.evolution.unify import FoldPlan, FoldResult, Rest, plan_fold
from widen.files.deleted_rows import FILE, ROW
from widen.files.iceberg_columns import LINEAGE
from widen.files.predicates import bind_condition
from widen.frames.iceberg_scan import IcebergSource, read_iceberg_files
from widen.frames.physical_layout import ICEBERG, fill_missing_columns
from widen.iceberg.catalog import TableName
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.properties import (
    DELETE,
    FOLD,
    MERGE,
    OPERATION,
    OVERWRITE,
    SOURCES,
    UPDATE,
    encode_sources,
    read_sources,
)
from widen.iceberg.scan_plan import IcebergScan, plan_scan
from widen.iceberg.schema_conversion import (
    WRITES_AGAIN,
    Unreadable,
    ensure_names_distinct,
    ensure_texts_readable,
    find_unreadable,
    to_readable,
    to_whole,
)
from widen.iceberg.snapshots import SnapshotReference, find_read_point
from widen.iceberg.table_commit import (
    CommitResult,
    IcebergTransaction,
    ensure_can_be_null,
    ensure_table_writable,
    open_transaction,
    plan_columns,
)
from widen.log.commit_outcome import StagedFiles
from widen.model.column_path import Path, as_nullable, find_field
from widen.model.types import StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Protocol
from widen.protocol.column_mapping import COLUMN_ID, TrackingColumns
from widen.schema.growth import Relation, SchemaChangeOptions, assigned_paths, merge_schema, overlay_types
from widen.schema.operations import DropColumn, Operation
from widen.spark.engine import READS, Session, Unsupported, is_local, require_spark, run_on_engine, run_with_arrow
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression, ensure_deterministic_condition, to_column
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, from_spark, to_spark, visible_schema

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry

    from widen.iceberg.catalog import Table


@dataclass(frozen=True, slots=True)
class IcebergChange:
    """What a change of rows has committed.

    Args:
        version: The id of the snapshot; the previous snapshot's id if no row matched; None if there is no snapshot.
        metrics: Counts of rows and files; empty if nothing was committed.
    """

    version: CommitResult | None
    metrics: Mapping[str, int]


@dataclass(frozen=True)
class SelectedRows:
    """The rows of the newest version of a table that a condition selects."""

    name: TableName
    table: Table
    schema: StructType
    whole: StructType
    where: Expression | None
    session: Session
    branch: str | None = None

    @property
    def spark(self) -> SparkSession:
        """The session of Spark, which starts if it has not."""
        return require_spark(self.session, READS)

    def delete(self) -> IcebergChange:
        """Delete the rows, in one commit if there are any."""
        return self._here_or_on_spark(SelectedRows._delete)

    def _delete(self) -> IcebergChange:
        transaction = self._open(())
        with StagedFiles() as staged:
            files = self._remove(transaction, staged)
            if files.is_empty:
                return self._unchanged()
            count = self._count_all() if self.where is None else files.rows[0]
            metrics = {**_file_metrics(files), "numDeletedRows": count}
            return self._commit(transaction, staged, DELETE, files, metrics)

    def update(self, assignments: Mapping[str, Expression]) -> IcebergChange:
        """Update the rows, in one commit if there are any."""
        given = {path: assignments[text] for text, path in assigned_paths(Relation(self.whole), assignments).items()}
        self._ensure_assignable({path[0] for path in given})
        return self._here_or_on_spark(lambda rows: rows._update(given))

    def _update(self, given: Mapping[Path, Expression]) -> IcebergChange:
        texts = texts_of_columns(given)
        values: dict[Path, AssignedValue] = {}
        if not is_local(self.session):
            values = to_assigned_values(self._empty, given)
            types = {path: value.type for path, value in values.items()}
        else:
            texts, found = find_assigned_types(self.schema, texts)
            types = {(name,): each for name, each in found.items()}
        merge_schema(self.schema, overlay_types(self.schema, types), SchemaChangeOptions(casts=True, fills=False))
        if not self._candidates.files:
            return self._unchanged()

        def decide(columns: StructType, rows: DataFrame) -> DataFrame:
            new = assign_columns(self.schema, values, lambda name: F.col(quote_name(name)))
            return _decide_updates(rows, columns, self._is_match, new)

        transaction = self._open(())
        change = self._change(transaction, self._candidates, (ChangeKind.UPDATE,), decide, statement="update")
        change = replace(change, names={path[0] for path in given}, is_whole=self.where is None)

        def here() -> HeldRows:
            change.ensure_held()
            return self._search.hold_updates({name: (text, types[name,]) for name, text in (texts or {}).items()})

        with StagedFiles() as staged, translate_overflow():
            files = change.write(staged, None if texts is None else here)
            if files.is_empty:
                return self._unchanged()
            metrics = {**_file_metrics(files), "numUpdatedRows": files.rows[0]}
            return self._commit(transaction, staged, UPDATE, files, metrics)

    def overwrite(self, frame: DataFrame, options: SchemaChangeOptions) -> IcebergChange:
        """Replace the rows by others, in one commit.

        Args:
            frame: The new rows; each must match the condition.
        """
        ensure_can_be_null(self.table)
        incoming = from_spark(frame.schema)
        self._left_out.ensure_not_given(incoming, self.schema)
        transaction = self._open(merge_schema(self.schema, incoming, options))
        schema = self._new_schema(transaction)
        writer = open_iceberg_writer(transaction, schema)
        filled = fill_missing_columns(frame, schema, ICEBERG)
        rows = filled if self.where is None else rows_within(filled, schema, self.where)
        with StagedFiles() as staged:
            added = writer.write(check_iceberg_rows(rows, schema, transaction.partition_fields))
            staged.add_undo(lambda: writer.discard(added))
            rest = self._remove(transaction, staged)
            files = replace(rest, written=[*added, *rest.written])
            metrics = {**_file_metrics(files), "numOutputRows": writer.count_rows(added)}
            return self._commit(transaction, staged, OVERWRITE, files, metrics)

    def merge(self, sides: MergeSides, clauses: tuple[MergeClause, ...], options: SchemaChangeOptions) -> IcebergChange:
        """Merge a source into all rows, in one commit if a row or a column changes."""
        resolution = MergeResolution(self.schema, sides, clauses, options)
        operations: Sequence[Operation] = ()
        if resolution.incoming is not None:
            operations = merge_schema(self.schema, resolution.incoming, resolution.growth_options)
        transaction = self._open(operations)
        schema = self._new_schema(transaction)
        merge = resolution.resolve(schema)
        # A row keeps the columns that no clause assigns.
        names = {path[0] for values in merge.values for path in values}
        if ChangeKind.INSERT in merge.kinds:
            names = {*schema.names}

        def decide(columns: StructType, rows: DataFrame) -> DataFrame:
            before = StructType((*self.schema, *(field for field in LINEAGE if field in columns.fields)))
            return MergeDecision(_MergeTarget(self.spark, before, columns), merge).decide(rows)

        with StagedFiles() as staged, translate_overflow():
            candidates = plan_scan(self._source.point, self.table.io, merge.searched(self.schema))
            change = self._change(transaction, candidates, merge.kinds, decide, statement="merge", returns_all=False)
            self._ensure_assignable(names)
            if ChangeKind.INSERT in merge.kinds:
                ensure_can_be_null(self.table)
            files = replace(change, names=names, is_unique=not merge.takes_any).write(staged)
            if not files.rows and not operations:
                return self._unchanged()
            metrics = _merge_metrics(merge.kinds, files, change.writer.count_rows(files.written))
            return self._commit(transaction, staged, MERGE, files, metrics)

    def _here_or_on_spark(self, change: Callable[[SelectedRows], IcebergChange]) -> IcebergChange:
        """Return what a change does in this process, or on Spark if only Spark can make it."""
        return run_on_engine(
            self.session, lambda _: change(self), lambda session: change(replace(self, session=session))
        )

    def _remove(self, transaction: IcebergTransaction, staged: StagedFiles) -> ReplacedFiles:
        """Write the other rows of the files with such rows."""
        if self.where is None:
            return ReplacedFiles(self._live)

        def decide(columns: StructType, rows: DataFrame) -> DataFrame:
            kept = map(quote_name, columns.names)
            return rows.select(FILE, ROW, F.when(self._is_match, 0).alias(CLAUSE), *kept)

        if not self._candidates.files:
            return ReplacedFiles()
        change = self._change(transaction, self._candidates, (ChangeKind.DELETE,), decide, statement="delete")
        return change.write(staged, self._search.hold_deletions)

    def _change(
        self,
        transaction: IcebergTransaction,
        scan: IcebergScan,
        kinds: Sequence[ChangeKind],
        decide: Callable[[StructType, DataFrame], DataFrame],
        *,
        statement: str,
        returns_all: bool = True,
    ) -> RowChange:
        marks = marks_rows(transaction.metadata, statement)
        writer = open_iceberg_writer(transaction, self._new_whole(transaction))
        after = self._new_schema(transaction)
        return RowChange(
            self._source, self.schema, writer, after, scan, kinds, decide, returns_all=returns_all, marks=marks
        )

    def _count_all(self) -> int:
        """Return the number of rows of the table."""
        total, scan = sum(each.record_count for each in self._live), self._candidates
        try:
            return total - sum(map(len, find_deleted(self._source, scan).values()))
        except Unsupported:
            if is_local(self.session):
                raise
        with translate_spark_errors():
            return read_iceberg_files(self._source, self.schema, scan).count()

    @property
    def _live(self) -> list[DataFile]:
        snapshot = self._source.point.snapshot
        return [entry.data_file for entry in live_entries(self.table.metadata, self.table.io, snapshot)]

    def _open(self, operations: Sequence[Operation]) -> IcebergTransaction:
        return open_transaction(self.name, self.table, operations, branch=self.branch)

    def _new_schema(self, transaction: IcebergTransaction) -> StructType:
        return to_readable(transaction.schema, read_sources(self.table.properties, str(self.name)))

    def _new_whole(self, transaction: IcebergTransaction) -> StructType:
        return to_whole(transaction.schema, read_sources(self.table.properties, str(self.name)))

    @property
    def _left_out(self) -> Unreadable:
        """What Spark cannot read, and so does not write."""
        return find_unreadable(self.table.schema())

    def _ensure_assignable(self, names: Collection[str]) -> None:
        """Check that new values of columns do not replace values that Spark does not have."""
        for name in names:
            self._left_out.ensure_has((name,), WRITES_AGAIN)

    @cached_property
    def _source(self) -> IcebergSource:
        point = find_read_point(self.table.metadata, SnapshotReference(branch=self.branch))
        return IcebergSource(lambda: self.session, self.table.io, point)

    @cached_property
    def _empty(self) -> DataFrame:
        return self.spark.createDataFrame([], to_spark(as_nullable(visible_schema(self.schema))))

    @cached_property
    def _is_match(self) -> Column:
        return F.lit(True) if self.where is None else F.coalesce(to_column(self.where), F.lit(False))

    @cached_property
    def _candidates(self) -> IcebergScan:
        """The files that may have such rows."""
        if self.where is not None and not is_local(self.session):
            ensure_deterministic_condition(self._empty, self.where)
        return plan_scan(self._source.point, self.table.io, bind_condition(self.where, self.schema))

    @property
    def _search(self) -> RowSearch:
        return RowSearch(self._source, self.schema, self._candidates, self.where)

    def _unchanged(self) -> IcebergChange:
        snapshot = self._source.point.snapshot
        return IcebergChange(None if snapshot is None else snapshot.snapshot_id, {})

    def _commit(
        self,
        transaction: IcebergTransaction,
        staged: StagedFiles,
        operation: str,
        files: ReplacedFiles,
        metrics: Mapping[str, int],
    ) -> IcebergChange:
        transaction.add_snapshot(files.written, {OPERATION: operation}, files.removed, vectors=files.vectors)
        transaction.set_properties({SOURCES: encode_sources(self._new_whole(transaction))})
        return IcebergChange(transaction.commit(staged), metrics)


def _decide_updates(rows: DataFrame, columns: StructType, is_match: Column, new: Mapping[str, Column]) -> DataFrame:
    """Return rows as `RowChange.decide` does; new values are for the rows that match."""
    old = [F.col(quote_name(name)) for name in columns.names]
    after = [
        (F.when(is_match, new[name]).otherwise(column) if name in new else column).alias(name)
        for name, column in zip(columns.names, old, strict=True)
    ]
    return rows.select(FILE, ROW, F.when(is_match, 0).alias(CLAUSE), *after)


@dataclass(frozen=True)
class _MergeTarget:
    """The table as the decision of a merge sees it."""

    spark: Session
    before: StructType
    schema: StructType
    protocol: Protocol = ICEBERG
    tracking: TrackingColumns | None = None


def _file_metrics(files: ReplacedFiles) -> dict[str, int]:
    return {"numAddedFiles": len(files.written), "numRemovedFiles": len(files.removed)}


def _merge_metrics(kinds: Sequence[ChangeKind], files: ReplacedFiles, written: int) -> dict[str, int]:
    """Return the counts of a merge, by Delta Lake's names."""
    counts = {kind: sum(files.rows[at] for at, each in enumerate(kinds) if each is kind) for kind in ChangeKind}
    return {
        "numTargetRowsInserted": counts[ChangeKind.INSERT],
        "numTargetRowsUpdated": counts[ChangeKind.UPDATE],
        "numTargetRowsDeleted": counts[ChangeKind.DELETE],
        "numTargetRowsCopied": written - counts[ChangeKind.UPDATE] - counts[ChangeKind.INSERT],
        "numTargetFilesAdded": len(files.written),
        "numTargetFilesRemoved": len(files.removed),
    }


def select_iceberg_rows(
    name: TableName, where: Expression | None, spark: Session, branch: str | None = None
) -> SelectedRows:
    """Return the rows of the newest version of a table that a condition selects."""
    table = name.load()
    ensure_table_writable(name, table)
    sources, columns = read_sources(table.properties, str(name)), table.schema()
    find_unreadable(columns).ensure_kept(by_arrow=True)
    schema, whole = to_readable(columns, sources), to_whole(columns, sources)
    ensure_texts_readable(columns, [where] if isinstance(where, str) else [])
    ensure_names_distinct(whole, str(name))
    return SelectedRows(name, table, schema, whole, where, spark, branch)


# Fold a column of an Iceberg table into another column of the same field, in one commit.
#
# Rows with a value in the column are updated, and the column is dropped, in one snapshot.
#
# Source: docs/evolution-rules.md#u3


@dataclass(frozen=True)
class IcebergFold:
    """A fold of a column in one version of a table."""

    rows: SelectedRows
    plan: FoldPlan

    @cached_property
    def preview(self) -> FoldResult:
        """What the fold would do."""
        folded, rows = FoldedRows(self.plan), self.rows

        def count_on_spark(_: SparkSession) -> FoldResult:
            found = read_iceberg_files(rows._source, rows.schema, self._scan)
            return folded.count_frame(found.where(has_value(self.plan)))

        result = run_with_arrow(
            rows.session,
            lambda: folded.count(found for _, _, found in self._search.matching(folded.names)),
            count_on_spark,
        )
        try:
            plan_columns(rows.name, [DropColumn(self.plan.column)])
        except ColumnRefused:
            return result
        return replace(result, is_dropped=True)

    def moved_values(self, rest: Rest) -> int:
        """Return how many values leave the column."""
        return self.preview.values - (self.preview.lost if rest is Rest.KEEP else 0)

    def commit(self, rest: Rest) -> CommitResult:
        """Update the rows and commit; nothing is committed if nothing changes."""
        rows = self.rows
        return run_with_arrow(
            rows.session,
            lambda: self._commit(rest),
            lambda spark: replace(self, rows=replace(rows, session=spark))._commit(rest),
        )

    def _commit(self, rest: Rest) -> CommitResult:
        rows, plan = self.rows, self.plan
        drops = self.preview.is_dropped and (rest is Rest.LOSE or not self.preview.lost)
        unchanged = rows._unchanged().version
        if unchanged is not None and not drops and not self.moved_values(rest):
            return unchanged
        transaction = rows._open([DropColumn(plan.column)] if drops else ())
        folded = FoldedRows(plan, rest)

        def decide(columns: StructType, frame: DataFrame) -> DataFrame:
            is_match, new = change_condition(plan, rest), folded_columns(rows.schema, plan)
            return _decide_updates(frame, columns, is_match, new)

        def here() -> HeldRows:
            change.ensure_held()
            return self._search.hold_computed(change.columns, folded.names, folded.new_columns, folded.are_changed)

        change = rows._change(transaction, self._scan, (ChangeKind.UPDATE,), decide, statement="update")
        change = replace(change, names=folded.names)
        with StagedFiles() as staged:
            files = change.write(staged, here) if self._scan.files else ReplacedFiles()
            version = rows._commit(transaction, staged, FOLD, files, {}).version
        assert version is not None
        return version

    @property
    def _search(self) -> RowSearch:
        return replace(self.rows._search, scan=self._scan)

    @cached_property
    def _scan(self) -> IcebergScan:
        """The files that may have a value in the column."""
        point, scan = self.rows._source.point, self.rows._candidates
        entries = live_entries(point.metadata, self.rows.table.io, point.snapshot)
        older = {entry.data_file.file_path for entry in entries if self._is_older(entry)}
        return replace(scan, files=tuple(file for file in scan.files if file.path not in older))

    def _is_older(self, entry: ManifestEntry) -> bool:
        """Return whether a file was added before the column, so that its rows have no value there."""
        metadata, field = self.rows.table.metadata, find_field(self.rows.schema, self.plan.column)
        if field is None or metadata.schema().find_field(field.metadata[COLUMN_ID]).initial_default is not None:
            return False
        snapshot = metadata.snapshot_by_id(entry.snapshot_id or 0)
        schema = metadata.schema_by_id(snapshot.schema_id or 0) if snapshot is not None else None
        return schema is not None and field.metadata[COLUMN_ID] not in schema.field_ids


def open_fold(name: TableName, column: Path, into: Path | None, spark: Session) -> IcebergFold:
    """Return the fold of a column in the newest version of a table."""
    rows = select_iceberg_rows(name, None, spark)
    find_unreadable(rows.table.schema()).ensure_kept()
    plan = plan_fold(rows.schema, column, into)
    return IcebergFold(replace(rows, where=has_value(plan)), plan)
