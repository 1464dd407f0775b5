"""Delete, update, overwrite and merge rows of an Iceberg table in one snapshot.

Files with such rows are rewritten (copy-on-write), regardless of ``write.delete.mode``: PyIceberg commits no delete
files. Rows that other writers have deleted in these files stay deleted.

Source: Iceberg's table specification, "Row-level Deletes"; Delta Lake's DELETE, UPDATE, MERGE and overwrites
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.assignment import (
    CLAUSE,
    ChangeKind,
    assign_columns,
    keep_decided_rows,
    to_assigned_values,
    translate_overflow,
)
from widen.changes.change_data_writer import to_bitmaps
from widen.changes.iceberg_copies import LONGEST, HeldRows, RowSearch, hold_rows, most_rows
from widen.changes.iceberg_write import (
    ChangedRows,
    are_few_words,
    by_path,
    can_copy_here,
    copy_unmarked,
    open_iceberg_writer,
    with_keys,
)
from widen.changes.merge import (
    MergeClause,
    MergeDecision,
    MergeResolution,
    MergeSide,
    MergeSides,
    ResolvedMerge,
    refuse_several_matches,
)
from widen.changes.update_delete import rows_within
from widen.errors import AmbiguousMerge, JobFailed
from widen.files.arrow_types import to_arrow
from widen.files.data_reader import NotLocal
from widen.files.deleted_rows import DISTINCT, FILE, MASK, ROW, mark_rows, without_marked
from widen.files.expressions import find_types
from widen.files.predicates import PredicateScope, bind_condition
from widen.frames.iceberg_scan import IcebergSource, deleted_positions, read_iceberg_files, to_uris
from widen.frames.physical_layout import NO_PROTOCOL, breaks_a_rule, check_rows, fill_missing_columns, has_length_rules
from widen.frames.scan import location_key
from widen.iceberg.catalog import TableName
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.partitions import PartitionField, calendar_limits, truncation_limits
from widen.iceberg.properties import (
    DELETE,
    MERGE,
    OPERATION,
    OVERWRITE,
    SOURCES,
    UPDATE,
    encode_sources,
    read_sources,
)
from widen.iceberg.scan_plan import IcebergScan, plan_scan, to_row_filter
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
)
from widen.limits import BROADCAST_ROWS
from widen.log.commit_outcome import StagedFiles
from widen.model.column_path import Path, as_nullable
from widen.model.types import StructType, is_fully_nullable, quote_name
from widen.protocol.actions import Protocol
from widen.protocol.column_mapping import TrackingColumns
from widen.protocol.data_skipping import Predicate, UnknownPredicate
from widen.schema.growth import Relation, SchemaChangeOptions, assigned_paths, merge_schema, overlay_types
from widen.schema.operations import Operation
from widen.spark.engine import READS, Session, is_local, require_spark
from widen.spark.errors import translate_spark_errors, unpersist
from widen.spark.expression import Expression, ensure_deterministic_condition, to_column
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, from_spark, to_spark, visible_schema

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from widen.frames.table_writers import IcebergWriter
    from widen.iceberg.catalog import Table
    from widen.iceberg.file_metrics import IcebergFile


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
    """The rows of the newest version of a table that a condition selects.

    Args:
        schema: The columns, with field ids and source fields.
        whole: These, and those that Spark has no type for: Arrow copies their values.
        where: The condition; None for all rows.
        branch: The branch to change; None for the main branch.
    """

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
        if is_local(self.session):
            try:
                return self._delete()
            except NotLocal as error:
                return self._on_spark(error).delete()
        return self._delete()

    def _on_spark(self, reason: NotLocal) -> SelectedRows:
        return replace(self, session=require_spark(self.session, str(reason)))

    def _delete(self) -> IcebergChange:
        if not self.removed:
            return self._unchanged()
        transaction = self._open(())
        with StagedFiles() as staged:
            written = self._write_rest(open_iceberg_writer(transaction, self.whole), staged, self.schema)
            metrics = {**self._file_metrics(written), "numDeletedRows": self.count}
            return self._commit(transaction, staged, DELETE, written, metrics)

    def update(self, assignments: Mapping[str, Expression]) -> IcebergChange:
        """Update the rows, in one commit if there are any.

        Args:
            assignments: The new values by column path; they refer to the row before the update.
        """
        given = {path: assignments[text] for text, path in assigned_paths(Relation(self.whole), assignments).items()}
        self._ensure_assignable({path[0] for path in given})
        if is_local(self.session):
            try:
                return self._update_without_spark(given)
            except NotLocal as error:
                return self._on_spark(error).update(assignments)
        values = to_assigned_values(self._empty, given)
        incoming = overlay_types(self.schema, {path: value.type for path, value in values.items()})
        merge_schema(self.schema, incoming, SchemaChangeOptions(casts=True, fills=False))
        new = assign_columns(self.schema, values, lambda name: F.col(quote_name(name)))
        if not self._candidates.files:
            return self._unchanged()
        transaction = self._open(())
        writer = open_iceberg_writer(transaction, self.whole)
        with translate_overflow():
            done = self._update_here(transaction, writer, new)
        return done or self._update_with_spark(transaction, writer, new)

    def _update_here(
        self, transaction: IcebergTransaction, writer: IcebergWriter, new: Mapping[str, Column]
    ) -> IcebergChange | None:
        """Update the rows with Arrow; None if Spark has to do it."""

        def decide(_: StructType, rows: DataFrame) -> DataFrame:
            values = (column.alias(name) for name, column in new.items())
            return rows.where(self._is_match).select(FILE, ROW, F.lit(0).alias(CLAUSE), *values)

        scan = self._candidates
        columns = StructType(tuple(field for field in self.schema if field.name in new))
        at_most = sum(file.rows for file in scan.files)
        if self.where is None and at_most > most_rows(columns, LONGEST[-1]):
            return None
        held = self._hold(transaction, writer, scan, [*new], (ChangeKind.UPDATE,), decide, at_most)
        return None if held is None else self._replace_rows(transaction, writer, scan, held)

    def _update_without_spark(self, given: Mapping[Path, Expression]) -> IcebergChange:
        """Update the rows in this process.

        Raises:
            NotLocal: only Spark can.
        """
        texts = {path[0]: text for path, text in given.items() if len(path) == 1 and isinstance(text, str)}
        if len(texts) < len(given):
            raise NotLocal("it assigns fields of structs, or columns of Spark")
        types = find_types(self.schema, texts)
        incoming = overlay_types(self.schema, {(name,): found for name, found in types.items()})
        merge_schema(self.schema, incoming, SchemaChangeOptions(casts=True, fills=False))
        scan = self._candidates
        if not scan.files:
            return self._unchanged()
        transaction = self._open(())
        writer = open_iceberg_writer(transaction, self.whole)
        if not can_copy_here(self._source, writer, scan):
            raise NotLocal("it copies the files of the table")
        columns = StructType(tuple(field for field in self.schema if field.name in texts))
        fields = [field for field in transaction.partition_fields if field.is_of(texts)]
        is_plain = all(is_fully_nullable(field.type) for field in columns) and not has_length_rules(columns)
        if not is_plain or _limits(fields, columns):
            raise NotLocal("the columns have rules for what is in a value")
        search = RowSearch(self._source, self.schema, scan, self.where)
        held = search.hold_updates({name: (text, types[name]) for name, text in texts.items()})
        done = self._replace_rows(transaction, writer, scan, held)
        if done is None:
            raise NotLocal("it copies the files of the table")
        return done

    def _replace_rows(
        self, transaction: IcebergTransaction, writer: IcebergWriter, scan: IcebergScan, held: HeldRows
    ) -> IcebergChange | None:
        """Commit updated rows; None if Spark has to copy a file."""
        if not len(held.rows):
            return self._unchanged()
        with StagedFiles() as staged:
            files = self._write_held(writer, staged, scan, held)
            if files is None:
                return None
            written, removed = files
            metrics = {
                "numAddedFiles": len(written),
                "numRemovedFiles": len(removed),
                "numUpdatedRows": len(held.rows),
            }
            return self._commit(transaction, staged, UPDATE, written, metrics, removed)

    def _update_with_spark(
        self, transaction: IcebergTransaction, writer: IcebergWriter, new: Mapping[str, Column]
    ) -> IcebergChange:
        if not self.removed:
            return self._unchanged()
        self._left_out.ensure_kept()
        columns = [self._updated(field.name, new) for field in self.schema]
        with StagedFiles() as staged, translate_overflow():
            copies = None
            if self.count <= _FEW * sum(each.record_count for each in self.removed):
                copies = self._copy_rest(writer, staged)
            rows = self._rows if copies is None else self._rows.where(self._is_match).repartition(1)
            rows = _check(transaction, rows.select(*columns), self.schema)
            written = self._write(writer, staged, rows, copies or (), removes=0)
            metrics = {**self._file_metrics(written), "numUpdatedRows": self.count}
            return self._commit(transaction, staged, UPDATE, written, metrics)

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
        filled = fill_missing_columns(frame, schema, NO_PROTOCOL)
        rows = filled if self.where is None else rows_within(filled, schema, self.where)
        with StagedFiles() as staged:
            added = writer.write(_check(transaction, rows, schema))
            staged.add_undo(lambda: writer.discard(added))
            copier = open_iceberg_writer(transaction, self._new_whole(transaction))
            written = [*added, *self._write_rest(copier, staged, schema)]
            metrics = {**self._file_metrics(written), "numOutputRows": writer.count_rows(added)}
            return self._commit(transaction, staged, OVERWRITE, written, metrics)

    def merge(self, sides: MergeSides, clauses: tuple[MergeClause, ...], options: SchemaChangeOptions) -> IcebergChange:
        """Merge a source into all rows, in one commit if a row or a column changes.

        Args:
            clauses: The clauses, ordered by `widen.changes.merge.order_clauses`.
            options: The schema changes that are allowed.
        """
        resolution = MergeResolution(self.schema, sides, clauses, options)
        operations: Sequence[Operation] = ()
        if resolution.incoming is not None:
            operations = merge_schema(self.schema, resolution.incoming, resolution.growth_options)
        transaction = self._open(operations)
        schema = self._new_schema(transaction)
        merge = resolution.resolve(schema)
        with translate_overflow():
            plan = _MergePlan(transaction, merge, schema, self._merge_candidates(merge), operations)
            self._ensure_assignable(plan.assigned)
            if ChangeKind.INSERT in merge.kinds:
                ensure_can_be_null(self.table)
            return self._merge_here(plan) or self._merge_with_spark(plan)

    def _decide(self, plan: _MergePlan, schema: StructType, rows: DataFrame) -> DataFrame:
        """Return the rows that a merge changes.

        Args:
            schema: The columns to return of them.
        """
        target = _MergeTarget(self.spark, self.schema, schema)
        return keep_decided_rows(MergeDecision(target, plan.merge).decide(rows))

    def _merge_here(self, plan: _MergePlan) -> IcebergChange | None:
        """Merge with Arrow what one job decides; None if Spark has to do it."""
        merge, transaction, scan = plan.merge, plan.transaction, plan.scan
        writer = open_iceberg_writer(transaction, self._new_whole(transaction))
        held = self._hold(transaction, writer, scan, plan.assigned, merge.kinds, partial(self._decide, plan))
        if held is None:
            return None
        if not merge.takes_any and (count := held.repeated):
            raise AmbiguousMerge(count=count)
        if not held.total and not plan.operations:
            return self._unchanged()
        with StagedFiles() as staged:
            files = self._write_held(writer, staged, scan, held)
            if files is None:
                return None
            written, removed = files
            copied = writer.count_rows(written) - held.count(ChangeKind.UPDATE, ChangeKind.INSERT)
            metrics = _merge_metrics(held.total, merge.clauses, copied, written, removed)
            return self._commit(transaction, staged, MERGE, written, metrics, removed)

    def _merge_with_spark(self, plan: _MergePlan) -> IcebergChange:
        transaction, merge, schema, scan = plan.transaction, plan.merge, plan.schema, plan.scan
        self._left_out.ensure_kept()
        kinds, clauses, operations = merge.kinds, merge.clauses, plan.operations
        rows = read_iceberg_files(self._source, self.schema, scan, UnknownPredicate(), place=(FILE, ROW))
        names = [quote_name(name) for name in schema.names]
        with ExitStack() as persisted:
            with translate_spark_errors():
                changed = self._decide(plan, schema, rows).select(FILE, ROW, CLAUSE, *names)
                # Persisted: a source that is not deterministic could decide otherwise the second time.
                persisted.callback(unpersist, changed.persist())
                words = _merge_words(changed, kinds)
                held = words.toArrow() if are_few_words(scan) else None
                if held is None:
                    persisted.callback(unpersist, words.persist())
                found = _sum_words(words, held, kinds)
            if not merge.takes_any and any(row[0] is not None and row[2] != row[3] for row in found):
                refuse_several_matches(changed)
            tally = {row[0]: Counter({at: count for at, count in enumerate(row[4:]) if count}) for row in found}
            total = sum(tally.values(), Counter[int]())
            # A matched row that no clause changes also has a number, but no clause.
            lost = {key for key, each in tally.items() if key and _rows_of(each, kinds, *_REMOVING)}
            if not lost and not total and not operations:
                return self._unchanged()
            touched = with_keys(scan, lost)
            writes = [at for at, kind in enumerate(kinds) if kind is not ChangeKind.DELETE]
            new = _check(transaction, changed.where(F.col(CLAUSE).isin(writes)).select(*names), schema)
            paths = {file.path for file in touched.files}
            removed = [each for each in self._live if each.file_path in paths]
            fresh = _rows_of(total, kinds, ChangeKind.UPDATE, ChangeKind.INSERT)
            writer = open_iceberg_writer(transaction, schema)
            with StagedFiles() as staged:
                written: list[IcebergFile] = []
                staged.add_undo(lambda: writer.discard(written))
                copies = None
                if held is not None:
                    copies = copy_unmarked(self._source, writer, touched, by_path(touched, to_bitmaps(held)))
                if copies is not None:
                    written += [*copies, *(writer.write(new) if fresh else ())]
                else:
                    marked = words if held is None else self.spark.createDataFrame(held)
                    kept = self._unmarked_rows(touched, marked, sum(row[1] for row in found), schema)
                    written += writer.write(new.unionAll(kept) if removed else new)
                copied = writer.count_rows(written) - fresh
                before = sum(each.record_count for each in removed) - _rows_of(total, kinds, *_REMOVING)
                # Only readers of other writers' deletes know how many rows the deletes remove.
                if copied < 0 or (not touched.deletes and copied != before):
                    raise JobFailed(reason=f"{copied} rows were copied instead of {before}")
                metrics = _merge_metrics(total, clauses, copied, written, removed)
                return self._commit(transaction, staged, MERGE, written, metrics, removed)

    def _hold(
        self,
        transaction: IcebergTransaction,
        writer: IcebergWriter,
        scan: IcebergScan,
        names: Collection[str],
        kinds: Sequence[ChangeKind],
        decide: Callable[[StructType, DataFrame], DataFrame],
        at_most: int | None = None,
    ) -> HeldRows | None:
        """Return the rows that a change decides, with their new values; None if Spark has to write them.

        Args:
            scan: The files that may have such rows.
            names: The columns that change.
            decide: Returns the rows that change, with these columns.
            at_most: How many rows may change; None if this is not known.
        """
        if not can_copy_here(self._source, writer, scan):
            return None
        columns = StructType(tuple(field for field in writer.schema if field.name in names))
        fields = [field for field in transaction.partition_fields if field.is_of(names)]
        limits = _limits(fields, columns)
        with translate_spark_errors():
            rows = read_iceberg_files(self._source, self.schema, scan, UnknownPredicate(), place=(FILE, ROW))
            decided = decide(columns, rows).select(FILE, ROW, CLAUSE, *map(quote_name, columns.names))
            keys = [location_key(uri) for uri in to_uris(file.path for file in scan.files)]
            is_broken = breaks_a_rule(columns, NO_PROTOCOL, {}, limits)
            return hold_rows(decided, columns, kinds, is_broken, keys, at_most)

    def _write_held(
        self, writer: IcebergWriter, staged: StagedFiles, scan: IcebergScan, held: HeldRows
    ) -> tuple[list[IcebergFile], list[DataFile]] | None:
        """Write what replaces the files with such rows, and return it with these; None if Spark has to copy one.

        Raises:
            JobFailed: there are more or fewer rows than were decided.
        """
        touched = with_keys(scan, held.keys)
        added = [_filled(held.added, writer.schema)] if len(held.added) else []
        changed, deleted = ChangedRows(held.replaced(touched), added), deleted_positions(self._source, touched)
        if deleted is None:
            return None
        marked = held.deleted(touched)
        written = copy_unmarked(self._source, writer, touched, marked, changed=changed, deleted=deleted)
        if written is None:
            return None
        staged.add_undo(lambda: writer.discard(written))
        paths = {file.path for file in touched.files}
        removed = [each for each in self._live if each.file_path in paths]
        more = held.count(ChangeKind.INSERT) - held.count(ChangeKind.DELETE) - sum(map(len, deleted.values()))
        found, expected = writer.count_rows(written), sum(each.record_count for each in removed) + more
        if found != expected:
            raise JobFailed(reason=f"{found} rows were written instead of {expected}")
        return written, removed

    def _unmarked_rows(self, scan: IcebergScan, words: DataFrame, count: int, schema: StructType) -> DataFrame:
        """Return the rows of files that none of a number of words marks, with the columns of a schema."""
        marked = words.where(F.col(MASK).isNotNull())
        rows = read_iceberg_files(self._source, self.schema, scan, UnknownPredicate(), place=(FILE, ROW))
        kept = without_marked(rows, F.broadcast(marked) if count <= BROADCAST_ROWS else marked).drop(FILE, ROW)
        return fill_missing_columns(kept, schema, NO_PROTOCOL).select(*map(quote_name, schema.names))

    def _merge_candidates(self, merge: ResolvedMerge) -> IcebergScan:
        """Return the files that may have rows that a merge changes."""
        point = self._source.point
        predicate: Predicate = UnknownPredicate()
        if point.snapshot is None:
            return IcebergScan((), ())
        # A row without a match may change then, so no file can be left out.
        if isinstance(merge.on, str) and not merge.has(MergeSide.NOT_MATCHED_BY_SOURCE):
            predicate = bind_condition(merge.on, PredicateScope(self.schema, merge.target_alias, merge.source_alias))
        return plan_scan(point.metadata, self.table.io, point.snapshot, to_row_filter(predicate, point.schema))

    @cached_property
    def removed(self) -> Sequence[DataFile]:
        """The files with such rows."""
        if self.where is None:
            return self._live
        paths = {file.path for file in self._touched.files}
        return [each for each in self._live if each.file_path in paths]

    @cached_property
    def count(self) -> int:
        """The number of the rows."""
        if self.where is None and not self._candidates.deletes:
            return sum(each.record_count for each in self._live)
        return sum(self._matches.values())

    @cached_property
    def _live(self) -> list[DataFile]:
        snapshot = self._source.point.snapshot
        return [entry.data_file for entry in live_entries(self.table.metadata, self.table.io, snapshot)]

    def _open(self, operations: Sequence[Operation]) -> IcebergTransaction:
        return open_transaction(self.name, self.table, operations, branch=self.branch)

    def _new_schema(self, transaction: IcebergTransaction) -> StructType:
        return to_readable(transaction.schema, read_sources(self.table.properties, str(self.name)))

    def _new_whole(self, transaction: IcebergTransaction) -> StructType:
        return to_whole(transaction.schema, read_sources(self.table.properties, str(self.name)))

    @cached_property
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
        point = self._source.point
        if point.snapshot is None:
            return IcebergScan((), ())
        if self.where is not None and not is_local(self.session):
            ensure_deterministic_condition(self._empty, self.where)
        predicate = bind_condition(self.where, self.schema)
        return plan_scan(point.metadata, self.table.io, point.snapshot, to_row_filter(predicate, point.schema))

    @cached_property
    def _positions(self) -> Mapping[str, BitMap64] | None:
        """The positions of such rows by the key of their file; None if there may be too many."""
        if is_local(self.session):
            return RowSearch(self._source, self.schema, self._candidates, self.where).find_positions()
        if not are_few_words(self._candidates):
            return None
        rows = read_iceberg_files(self._source, self.schema, self._candidates, UnknownPredicate(), place=(FILE, ROW))
        with translate_spark_errors():
            return to_bitmaps(mark_rows(rows.where(self._is_match), F.lit(True)).toArrow())

    @cached_property
    def _matches(self) -> Mapping[str, int]:
        """The number of such rows by the key of their file, for the files that have any."""
        if not self._candidates.files:
            return {}
        if self._positions is not None:
            return {key: len(bitmap) for key, bitmap in self._positions.items()}
        rows = read_iceberg_files(self._source, self.schema, self._candidates, UnknownPredicate(), place=[FILE])
        with translate_spark_errors():
            counts = rows.where(self._is_match).groupBy(FILE).count().collect()
        return {row[FILE]: row["count"] for row in counts}

    @cached_property
    def _touched(self) -> IcebergScan:
        """The files that have such rows, with the deletes of other writers in them."""
        return self._candidates if self.where is None else with_keys(self._candidates, self._matches.keys())

    @property
    def _rows(self) -> DataFrame:
        """All rows of these files."""
        return read_iceberg_files(self._source, self.schema, self._touched, UnknownPredicate())

    def _updated(self, name: str, new: Mapping[str, Column]) -> Column:
        old = F.col(quote_name(name))
        return F.when(self._is_match, new[name]).otherwise(old).alias(name) if name in new else old

    def _write_rest(self, writer: IcebergWriter, staged: StagedFiles, schema: StructType) -> list[IcebergFile]:
        """Write the other rows of these files.

        Args:
            schema: The columns of the new files.
        """
        if self.where is None or not self.removed:
            return []
        copies = self._copy_rest(writer, staged)
        if copies is not None:
            return self._ensure_complete(writer, copies, removes=self.count)
        if is_local(self.session):
            raise NotLocal("it copies the files of the table")
        self._left_out.ensure_kept()
        rest = fill_missing_columns(self._rows.where(~self._is_match), schema, NO_PROTOCOL)
        return self._write(writer, staged, rest, removes=self.count)

    def _copy_rest(self, writer: IcebergWriter, staged: StagedFiles) -> list[IcebergFile] | None:
        """Copy the other rows of these files with Arrow; None if Spark has to copy them."""
        if self.where is None or self._positions is None:
            return None
        copies = copy_unmarked(self._source, writer, self._touched, by_path(self._touched, self._positions))
        if copies is not None:
            staged.add_undo(lambda: writer.discard(copies))
        return copies

    def _write(
        self,
        writer: IcebergWriter,
        staged: StagedFiles,
        rows: DataFrame,
        copies: Sequence[IcebergFile] = (),
        *,
        removes: int,
    ) -> list[IcebergFile]:
        """Write what replaces these files.

        Args:
            copies: Copies of the files with the rows that stay, if they are written already.
            removes: The number of their rows that are not replaced.
        """
        written = writer.write(rows)
        staged.add_undo(lambda: writer.discard(written))
        return self._ensure_complete(writer, [*copies, *written], removes=removes)

    def _ensure_complete(self, writer: IcebergWriter, written: list[IcebergFile], *, removes: int) -> list[IcebergFile]:
        found, before = writer.count_rows(written), sum(each.record_count for each in self.removed)
        # Only readers of other writers' deletes know how many rows the deletes remove.
        if not self._touched.deletes and found != before - removes:
            raise JobFailed(reason=f"{found} rows were written instead of {before - removes}")
        return written

    def _file_metrics(self, written: Sequence[IcebergFile]) -> dict[str, int]:
        return {"numAddedFiles": len(written), "numRemovedFiles": len(self.removed)}

    def _unchanged(self) -> IcebergChange:
        snapshot = self._source.point.snapshot
        return IcebergChange(None if snapshot is None else snapshot.snapshot_id, {})

    def _commit(
        self,
        transaction: IcebergTransaction,
        staged: StagedFiles,
        operation: str,
        written: Sequence[IcebergFile],
        metrics: Mapping[str, int],
        removed: Sequence[DataFile] | None = None,
    ) -> IcebergChange:
        transaction.add_snapshot(written, {OPERATION: operation}, self.removed if removed is None else removed)
        transaction.set_properties({SOURCES: encode_sources(self._new_whole(transaction))})
        return IcebergChange(transaction.commit(staged), metrics)


@dataclass(frozen=True)
class _MergePlan:
    """A merge that can run.

    Args:
        schema: The columns that the table then has.
        scan: The files that may have rows that it changes.
        operations: The changes of columns.
    """

    transaction: IcebergTransaction
    merge: ResolvedMerge
    schema: StructType
    scan: IcebergScan
    operations: Sequence[Operation]

    @property
    def assigned(self) -> Collection[str]:
        """The columns that may change: a row keeps those that no clause assigns."""
        if ChangeKind.INSERT in self.merge.kinds:
            return self.schema.names
        return {path[0] for values in self.merge.values for path in values}


@dataclass(frozen=True)
class _MergeTarget:
    """The table as the decision of a merge sees it: no column is computed."""

    spark: Session
    before: StructType
    schema: StructType
    protocol: Protocol = NO_PROTOCOL
    tracking: TrackingColumns | None = None


def _filled(rows: pa.Table, schema: StructType) -> pa.Table:
    """Return new rows with null in the columns that they lack."""
    names, types = rows.schema.names, ((field.name, field.type) for field in schema)
    return pa.table(
        {name: rows[name] if name in names else pa.nulls(len(rows), to_arrow(kind)) for name, kind in types}
    )


_ROWS = "__widen_rows"

_FEW = 0.05
"""Up to this share of rows, an update writes the new rows to files of their own, and Arrow copies the others."""

_REMOVING = (ChangeKind.UPDATE, ChangeKind.DELETE)


def _rows_of(counts: Counter[int], kinds: Sequence[ChangeKind], *wanted: ChangeKind) -> int:
    return sum(count for at, count in counts.items() if kinds[at] in wanted)


def _merge_metrics(
    total: Counter[int],
    clauses: Sequence[MergeClause],
    copied: int,
    written: Sequence[IcebergFile],
    removed: Sequence[DataFile],
) -> dict[str, int]:
    """Return the counts of a merge, by Delta Lake's names."""
    kinds = [clause.kind for clause in clauses]
    names = {"Inserted": ChangeKind.INSERT, "Updated": ChangeKind.UPDATE, "Deleted": ChangeKind.DELETE}
    return {
        **{f"numTargetRows{name}": _rows_of(total, kinds, kind) for name, kind in names.items()},
        "numTargetRowsCopied": copied,
        "numTargetFilesAdded": len(written),
        "numTargetFilesRemoved": len(removed),
    }


def _merge_words(changed: DataFrame, kinds: Sequence[ChangeKind]) -> DataFrame:
    """Return bitmap words for the rows that a merge removes, with the numbers of decided rows, in all and by clause."""
    removes = F.col(CLAUSE).isin([at for at, kind in enumerate(kinds) if kind is not ChangeKind.INSERT])
    counts = [F.count_if(F.col(CLAUSE) == at).alias(f"{_ROWS}_{at}") for at in range(len(kinds))]
    return mark_rows(changed, removes, F.count(F.lit(1)).alias(_ROWS), *counts)


def _sum_words(words: DataFrame, held: pa.Table | None, kinds: Sequence[ChangeKind]) -> list[tuple[Any, ...]]:
    """Return the key of each file with the number of its marked words and the sums of the numbers of its words.

    Args:
        held: The words, if this process holds them.
    """
    columns = [_ROWS, DISTINCT, *(f"{_ROWS}_{at}" for at in range(len(kinds)))]
    if held is None:
        sums = words.groupBy(FILE).agg(F.count(MASK), *map(F.sum, columns))
        return [tuple(row) for row in sums.collect()]
    wanted = [(MASK, "count"), *((name, "sum") for name in columns)]
    table = held.group_by(FILE).aggregate(wanted)
    ordered = [table[FILE], *(table[f"{name}_{function}"] for name, function in wanted)]
    return [*zip(*(column.to_pylist() for column in ordered), strict=True)]


def _check(transaction: IcebergTransaction, rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows that fail the job if one of them violates a rule of the table."""
    return check_rows(rows, schema, NO_PROTOCOL, {}, limits=_limits(transaction.partition_fields, schema))


def _limits(fields: Sequence[PartitionField], schema: StructType) -> Mapping[str, str]:
    return {**truncation_limits(fields, schema), **calendar_limits(fields, schema)}


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
