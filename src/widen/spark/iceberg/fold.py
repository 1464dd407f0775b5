"""Fold a column of an Iceberg table into another column of the same field, in one commit.

Files with a value in the column are written again without it, and the column is dropped, in one snapshot.

Source: docs/evolution-rules.md#u3
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import ColumnRefused
from widen.iceberg.catalog import TableName
from widen.iceberg.column_changes import change_columns, to_column_state
from widen.iceberg.commit import CommitResult, ensure_writable, open_transaction, plan_columns
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.properties import FOLD, OPERATION, SOURCES, encode_sources, read_sources
from widen.iceberg.row_filter import to_row_filter
from widen.iceberg.scan_plan import IcebergScan, plan_scan
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.snapshots import SnapshotReference, find_read_point
from widen.log.write.staged_files import StagedFiles
from widen.model.column_path import Path, find_field
from widen.model.types import StructType, quote_name
from widen.planning.table.operation import DropColumn
from widen.planning.unify.fold_plan import FoldPlan, FoldResult, Rest, plan_fold
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.skipping.predicate import UnknownPredicate
from widen.spark.dml.fold_rows import change_condition, folded_columns, has_value, judge_values
from widen.spark.iceberg.append import open_writer
from widen.spark.iceberg.scan import read_files
from widen.spark.iceberg.source import IcebergSource
from widen.spark.read.sql_predicate import parse_predicate

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry

    from widen.iceberg.catalog import Table


@dataclass(frozen=True)
class IcebergFold:
    """A fold of a column in one version of a table.

    Args:
        schema: Its columns, with field ids and source fields.
    """

    name: TableName
    table: Table
    schema: StructType
    plan: FoldPlan
    spark: SparkSession

    @cached_property
    def preview(self) -> FoldResult:
        """What the fold would do."""
        result = judge_values(self._rows.where(has_value(self.plan)), self.plan)
        try:
            plan_columns(self.name, [DropColumn(self.plan.column)])
        except ColumnRefused:
            return result
        return replace(result, is_dropped=True)

    def moved_values(self, rest: Rest) -> int:
        """Return how many values leave the column."""
        return self.preview.values - (self.preview.lost if rest is Rest.KEEP else 0)

    def commit(self, rest: Rest) -> CommitResult:
        """Write the files with values in the column again, and commit them; nothing is committed if nothing changes.

        Raises:
            SnapshotUnknown: the catalog did not say whether it has committed.
            StorageError: the catalog or the store refused; nothing is visible.
            JobFailed: the Spark job failed; nothing is visible.
        """
        plan, schema, snapshot = self.plan, self.schema, self.table.current_snapshot()
        state = to_column_state(self.table.metadata, schema)
        transaction = open_transaction(self.name, self.table, ())
        if self.preview.is_dropped and (rest is Rest.LOSE or not self.preview.lost):
            schema = change_columns(transaction.transaction, state, [DropColumn(plan.column)])
        elif snapshot is not None and not self.moved_values(rest):
            return snapshot.snapshot_id
        is_changed, new = change_condition(plan, rest), folded_columns(self.schema, plan)
        columns = [
            F.when(is_changed, new[field.name]).otherwise(F.col(quote_name(field.name))).alias(field.name)
            if field.name in new
            else F.col(quote_name(field.name))
            for field in self.schema
        ]
        read = {file.path for file in self._scan.files}
        removed = [entry.data_file for entry in self._entries if entry.data_file.file_path in read]
        with StagedFiles() as staged:
            writer = open_writer(transaction, schema)
            files = writer.write(self._rows.select(*columns))
            staged.add_undo(lambda: writer.discard(files))
            transaction.add_snapshot(files, {OPERATION: FOLD}, removed)
            transaction.set_properties({SOURCES: encode_sources(schema)})
            return transaction.commit(staged)

    @cached_property
    def _source(self) -> IcebergSource:
        return IcebergSource(self.spark, self.table.io, find_read_point(self.table.metadata, SnapshotReference()))

    @cached_property
    def _scan(self) -> IcebergScan:
        """The files that may have a value in the column."""
        point = self._source.point
        if point.snapshot is None:
            return IcebergScan((), ())
        row_filter = to_row_filter(parse_predicate(has_value(self.plan), self.schema), point.schema)
        scan = plan_scan(point.metadata, self.table.io, point.snapshot, row_filter)
        older = {entry.data_file.file_path for entry in self._entries if self._is_older(entry)}
        return replace(scan, files=tuple(file for file in scan.files if file.path not in older))

    @cached_property
    def _entries(self) -> list[ManifestEntry]:
        return list(live_entries(self.table.metadata, self.table.io, self.table.current_snapshot()))

    def _is_older(self, entry: ManifestEntry) -> bool:
        """Tell whether a file was added before the column. Its metrics say nothing of a column that it lacks."""
        metadata, field = self.table.metadata, find_field(self.schema, self.plan.column)
        snapshot = metadata.snapshot_by_id(entry.snapshot_id or 0)
        schema = metadata.schema_by_id(snapshot.schema_id or 0) if snapshot is not None else None
        return schema is not None and field is not None and field.metadata[COLUMN_ID] not in schema.field_ids

    @cached_property
    def _rows(self) -> DataFrame:
        """All rows of these files."""
        return read_files(self._source, self.schema, self._scan, UnknownPredicate())


def open_fold(name: TableName, column: Path, into: Path | None, spark: SparkSession) -> IcebergFold:
    """Return the fold of a column in the newest version of a table.

    Args:
        into: The target column; by default the one with the plain field name.

    Raises:
        ColumnNotFound: a column does not exist.
        FoldRefused: the columns do not hold the same field, or their values cannot be converted one by one.
        UnsupportedIcebergVersion: PyIceberg does not write the format version of the table.
    """
    table = name.load()
    ensure_writable(name, table)
    schema = to_model(table.schema(), read_sources(table.properties, str(name)))
    return IcebergFold(name, table, schema, plan_fold(schema, column, into), spark)
