"""Widen as a data source of Spark: ``spark.read.format("widen")``, ``readStream``, ``write`` and ``writeStream``.

Spark calls it in separate Python processes, on the driver for plans and commits and on the executors for rows.

Source: Spark's Python Data Source API (Spark 4.0)
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType as SparkSchema

from widen.data_source.batch_reader import (
    FilteringReader,
    TableColumns,
    TableReader,
    find_sink_options,
    parse_source_options,
    plan_batch_columns,
    read_snapshot_of,
)
from widen.data_source.sink_writers import HAS_STREAM_WRITER, IngestBatchWriter, IngestStreamWriter
from widen.data_source.stream_reader import StreamReader, find_earlier_version, plan_stream
from widen.data_source.writer import BatchWriter, StreamWriter, plan_write
from widen.errors import DataSourceRefused
from widen.log.snapshot import Snapshot
from widen.model.argument_types import check_arguments
from widen.spark.engine import find_session
from widen.spark.spark_types import SparkSession, as_nullable, from_spark, to_spark

FORMAT = "widen"
_INGEST = "widen.ingest_stream"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark 4.1's switch for filters; if it is off, Spark refuses a source that takes filters."""


class WidenSource(DataSource):
    """The data source ``widen``. Spark finds it by the module ``pyspark_widen``; see also `register`."""

    reader_class: type[TableReader] = TableReader

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> SparkSchema:
        """Return the columns of the table, or of its change feed."""
        options = parse_source_options(self.options)
        return to_spark(plan_batch_columns(options, read_snapshot_of(options)).schema)

    def reader(self, schema: SparkSchema) -> DataSourceReader:
        """Return the reader of one version, or of the changes between two versions."""
        options = parse_source_options(self.options)
        snapshot = read_snapshot_of(options)
        columns = plan_batch_columns(options, snapshot)
        if not _is_expected(schema, columns):
            raise _refuse_columns("read", schema, columns, snapshot)
        return self.reader_class(options, snapshot, columns)

    def streamReader(self, schema: SparkSchema) -> DataSourceStreamReader:
        """Return the reader of new rows, or of all changes."""
        options = parse_source_options(self.options)
        newest = read_snapshot_of(options)
        columns = plan_batch_columns(options, newest)
        is_outdated = not _is_expected(schema, columns)
        snapshot: Snapshot | None = newest
        if is_outdated:
            snapshot = find_earlier_version(
                newest, lambda version: _is_expected(schema, plan_batch_columns(options, version))
            )
        if snapshot is None:
            raise _refuse_columns("stream", schema, columns, newest)
        plan = plan_stream(options, snapshot, is_outdated=is_outdated)
        return StreamReader(options, plan, plan_batch_columns(options, snapshot))

    def writer(self, schema: SparkSchema, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        sink = find_sink_options(self.options)
        if sink is not None:
            return IngestBatchWriter(sink, from_spark(schema), is_overwrite=overwrite)
        options = parse_source_options(self.options, "write")
        return BatchWriter(plan_write(options, from_spark(schema), is_overwrite=overwrite))

    def streamWriter(self, schema: SparkSchema, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream.

        Raises:
            DataSourceRefused: Spark 4.0 cannot do this, or the table has rules that only Spark can evaluate.
        """
        sink = find_sink_options(self.options)
        if not HAS_STREAM_WRITER:
            reason = "Spark 4.0 does not pass the rows of streams in Arrow"
            fix = f"Use Spark 4.1 or later, or {'foreachBatch with Table.append' if sink is None else _INGEST}."
            raise DataSourceRefused(verb="write", location=self.options.get("path"), reason=reason, fix=fix)
        options = sink or parse_source_options(self.options, "write")
        options.ensure_no_transaction()
        if sink is not None:
            return IngestStreamWriter(sink, from_spark(schema), is_overwrite=overwrite)
        return StreamWriter(plan_write(options, from_spark(schema), is_overwrite=overwrite))


def _is_expected(given: SparkSchema, columns: TableColumns) -> bool:
    """Return whether a query expects the columns that a version has."""
    return as_nullable(from_spark(given)).sql == columns.schema.sql


def _refuse_columns(verb: str, given: SparkSchema, columns: TableColumns, snapshot: Snapshot) -> DataSourceRefused:
    expected = as_nullable(from_spark(given))
    reason = f"the query expects {expected.sql}, and the table has {columns.schema.sql}"
    fix = "Do not give a schema. If the table has changed since the DataFrame was created, load it again."
    return DataSourceRefused(verb=verb, location=snapshot.location, reason=reason, fix=fix)


class FilteringSource(WidenSource):
    """The data source where Spark pushes filters."""

    reader_class = FilteringReader


@check_arguments
def register(session: SparkSession | None = None) -> None:
    """Register the data source ``widen`` in a session, so that Spark pushes filters to it.

    Where Widen is installed, ``spark.read.format("widen")`` and its siblings work without this. From Spark 4.1 on it
    lets reads skip files by filters, if `spark.sql.python.filterPushdown.enabled` is true when this is called. Call it
    also where Widen is on the path of this process only. `Table.read` is faster: see the guide.

    Args:
        session: The session, classic or Connect; by default the active one, else a local one.

    Source: Spark's Python Data Source API
    """
    spark = find_session(session)
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(FilteringSource if pushes else WidenSource)
