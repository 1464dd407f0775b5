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

from widen.data_source.batch_reader import (
    FilteringReader,
    SourceOptions,
    TableColumns,
    TableReader,
    find_sink_options,
    parse_source_options,
    plan_batch_columns,
    read_snapshot_of,
)
from widen.data_source.stream_reader import StreamReader, plan_stream
from widen.data_source.writer import HAS_STREAM_WRITER, BatchWriter, StreamWriter, plan_write
from widen.errors import DataSourceRefused
from widen.log.snapshot import Snapshot
from widen.model.argument_types import check_arguments
from widen.model.lazy_module import import_lazily
from widen.spark.engine import find_session
from widen.spark.spark_types import SparkSession, as_nullable, from_spark, to_spark

if TYPE_CHECKING:
    from widen.data_source import ingest_sink
else:  # ingestions take longer to import than what reads and writes tables
    ingest_sink = import_lazily("widen.data_source.ingest_sink")

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
        return self.reader_class(*self._plan_read(schema))

    def streamReader(self, schema: SparkSchema) -> DataSourceStreamReader:
        """Return the reader of new rows, or of all changes."""
        options, snapshot, columns = self._plan_read(schema)
        return StreamReader(options, plan_stream(options, snapshot), columns)

    def writer(self, schema: SparkSchema, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        sink = find_sink_options(self.options)
        if sink is not None:
            return ingest_sink.IngestBatchWriter(sink, from_spark(schema), is_overwrite=overwrite)
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
        if sink is not None:
            return ingest_sink.IngestStreamWriter(sink, from_spark(schema), is_overwrite=overwrite)
        options = parse_source_options(self.options, "write")
        return StreamWriter(plan_write(options, from_spark(schema), is_overwrite=overwrite))

    def _plan_read(self, given: SparkSchema) -> tuple[SourceOptions, Snapshot, TableColumns]:
        """Check that Spark expects the columns that the table has now, and return what a reader needs."""
        options = parse_source_options(self.options)
        snapshot = read_snapshot_of(options)
        columns = plan_batch_columns(options, snapshot)
        expected, actual = as_nullable(from_spark(given)), columns.schema
        if expected.sql != actual.sql:
            reason = f"the query expects {expected.sql}, and the table has {actual.sql}"
            fix = "Do not give a schema. If the table has changed since the DataFrame was created, load it again."
            raise DataSourceRefused(verb="read", location=snapshot.location, reason=reason, fix=fix)
        return options, snapshot, columns


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
