"""Append rows to an Iceberg table: new columns, wider types and files become visible in one commit.

Source: Delta Lake's schema enforcement and evolution, as far as Iceberg allows it
"""

from __future__ import annotations

from widen.iceberg.catalog import TableName
from widen.iceberg.commit import CommitResult, IcebergTransaction, ensure_writable, open_transaction
from widen.iceberg.data_file import data_location
from widen.iceberg.partition_limits import calendar_limits, truncation_limits
from widen.iceberg.properties import APPEND, OPERATION, read_sources
from widen.iceberg.schema_conversion import ensure_names_distinct, to_model
from widen.iceberg.storage_options import open_store
from widen.log.write.staged_files import StagedFiles
from widen.model.types import StructType
from widen.planning.write.schema_merge import SchemaChangeOptions, merge_schema
from widen.protocol.actions import Protocol
from widen.spark.ingest.iceberg_files import IcebergWriter
from widen.spark.spark_types import DataFrame, from_spark
from widen.spark.write.missing_columns import fill_missing_columns
from widen.spark.write.row_constraints import check_rows

_NO_FEATURES = Protocol(min_reader_version=1, min_writer_version=1)


def append_rows(name: TableName, frame: DataFrame, options: SchemaChangeOptions) -> CommitResult:
    """Append rows to the newest version of a table, in one commit.

    Args:
        frame: The rows. Columns are matched by name, not case-sensitive; columns that they lack become null.

    Raises:
        AmbiguousColumns: two columns of the table have names that differ only in case.
        SchemaMismatch: the data do not fit.
        RowRefused: a required column is null, or a value is out of range.
        UnsupportedIcebergVersion: PyIceberg does not write the format version of the table.
        UnsupportedColumnType: Iceberg does not have the type of a new column.
        SnapshotUnknown: the catalog did not say whether it has committed.
        StorageError: the catalog or the store refused; nothing is visible.
        JobFailed: the Spark job failed; nothing is visible.
    """
    table = name.load()
    ensure_writable(name, table)
    sources = read_sources(table.properties, str(name))
    current = to_model(table.schema(), sources)
    ensure_names_distinct(current, str(name))
    transaction = open_transaction(name, table, merge_schema(current, from_spark(frame.schema), options))
    schema = to_model(transaction.schema, sources)
    fields = transaction.partition_fields
    limits = {**truncation_limits(fields, schema), **calendar_limits(fields, schema)}
    rows = check_rows(fill_missing_columns(frame, schema, _NO_FEATURES), schema, _NO_FEATURES, {}, limits=limits)
    with StagedFiles() as staged:
        writer = open_writer(transaction, schema)
        files = writer.write(rows)
        staged.add_undo(lambda: writer.discard(files))
        transaction.add_snapshot(files, {OPERATION: APPEND})
        return transaction.commit(staged)


def open_writer(transaction: IcebergTransaction, schema: StructType) -> IcebergWriter:
    """Return what writes files for a transaction.

    Args:
        schema: The columns of the files, with field ids.
    """
    metadata = transaction.metadata
    store = open_store(data_location(metadata), transaction.table.io.properties)
    return IcebergWriter(store, schema, transaction.partition_fields, metadata.properties)
