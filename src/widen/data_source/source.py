"""Widen as a data source of Spark: ``spark.read.format("widen")``, ``readStream``, ``write`` and ``writeStream``.

Spark calls it in separate Python processes, on the driver for plans and commits and on the executors for rows.

Source: Spark's Python Data Source API (Spark 4.0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType as SparkSchema

from widen.errors import DataSourceRefused
from widen.model.argument_types import check_arguments
from widen.model.lazy_module import import_lazily
from widen.spark.spark_types import SparkSession, as_nullable, from_spark, to_spark

if TYPE_CHECKING:
    from widen.data_source import batch_reader, sink_writers, stream_reader
    from widen.data_source import writer as table_writer
    from widen.log.snapshot import Snapshot
    from widen.spark import engine
else:  # Spark starts a process to make the source, and one for each of its parts
    batch_reader = import_lazily("widen.data_source.batch_reader")
    engine = import_lazily("widen.spark.engine")
    sink_writers = import_lazily("widen.data_source.sink_writers")
    stream_reader = import_lazily("widen.data_source.stream_reader")
    table_writer = import_lazily("widen.data_source.writer")

FORMAT = "widen"
_INGEST = "widen.ingest_stream"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark 4.1's switch for filters; if it is off, Spark refuses a source that takes filters."""


class WidenSource(DataSource):
    """The data source ``widen``. Spark finds it by the module ``pyspark_widen``; see also `register`."""

    takes_filters = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> SparkSchema:
        """Return the columns of the table, or of its change feed."""
        options = batch_reader.parse_source_options(self.options)
        return to_spark(batch_reader.plan_batch_columns(options, batch_reader.read_snapshot_of(options)).schema)

    def reader(self, schema: SparkSchema) -> DataSourceReader:
        """Return the reader of one version, or of the changes between two versions."""
        options = batch_reader.parse_source_options(self.options)
        snapshot = batch_reader.read_snapshot_of(options)
        columns = batch_reader.plan_batch_columns(options, snapshot)
        if not _is_expected(schema, columns):
            raise _refuse_columns("read", schema, columns, snapshot)
        reader = batch_reader.FilteringReader if self.takes_filters else batch_reader.TableReader
        return reader(options, snapshot, columns)

    def streamReader(self, schema: SparkSchema) -> DataSourceStreamReader:
        """Return the reader of new rows, or of all changes."""
        options = batch_reader.parse_source_options(self.options)
        newest = batch_reader.read_snapshot_of(options)
        columns = batch_reader.plan_batch_columns(options, newest)
        is_outdated = not _is_expected(schema, columns)
        snapshot: Snapshot | None = newest
        if is_outdated:
            snapshot = stream_reader.find_earlier_version(
                newest, lambda version: _is_expected(schema, batch_reader.plan_batch_columns(options, version))
            )
        if snapshot is None:
            raise _refuse_columns("stream", schema, columns, newest)
        plan = stream_reader.plan_stream(options, snapshot, is_outdated=is_outdated)
        return stream_reader.StreamReader(options, plan, batch_reader.plan_batch_columns(options, snapshot))

    def writer(self, schema: SparkSchema, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        sink = batch_reader.find_sink_options(self.options)
        if sink is not None:
            return sink_writers.IngestBatchWriter(sink, from_spark(schema), is_overwrite=overwrite)
        options = batch_reader.parse_source_options(self.options, "write")
        return table_writer.BatchWriter(table_writer.plan_write(options, from_spark(schema), is_overwrite=overwrite))

    def streamWriter(self, schema: SparkSchema, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream.

        Raises:
            DataSourceRefused: Spark 4.0 cannot do this, or the table has rules that only Spark can evaluate.
        """
        sink = batch_reader.find_sink_options(self.options)
        if not sink_writers.HAS_STREAM_WRITER:
            reason = "Spark 4.0 does not pass the rows of streams in Arrow"
            fix = f"Use Spark 4.1 or later, or {'foreachBatch with Table.append' if sink is None else _INGEST}."
            raise DataSourceRefused(verb="write", location=self.options.get("path"), reason=reason, fix=fix)
        options = sink or batch_reader.parse_source_options(self.options, "write")
        options.ensure_no_transaction()
        if sink is not None:
            return sink_writers.IngestStreamWriter(sink, from_spark(schema), is_overwrite=overwrite)
        return table_writer.StreamWriter(table_writer.plan_write(options, from_spark(schema), is_overwrite=overwrite))


def _is_expected(given: SparkSchema, columns: batch_reader.TableColumns) -> bool:
    """Return whether a query expects the columns that a version has."""
    return as_nullable(from_spark(given)).sql == columns.schema.sql


def _refuse_columns(
    verb: str, given: SparkSchema, columns: batch_reader.TableColumns, snapshot: Snapshot
) -> DataSourceRefused:
    expected = as_nullable(from_spark(given))
    reason = f"the query expects {expected.sql}, and the table has {columns.schema.sql}"
    fix = "Do not give a schema. If the table has changed since the DataFrame was created, load it again."
    return DataSourceRefused(verb=verb, location=snapshot.location, reason=reason, fix=fix)


class FilteringSource(WidenSource):
    """The data source where Spark pushes filters."""

    takes_filters = True


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
    spark = engine.find_session(session)
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(FilteringSource if pushes else WidenSource)
