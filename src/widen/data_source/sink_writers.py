"""The writers of the sink that ingests. Tasks import this module and no other one that an ingestion needs.

Source: Spark's Python Data Source API, with streams in Arrow from Spark 4.1 on
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from widen.data_source.staging import StagedRows
from widen.errors import InternalError
from widen.model.lazy_module import import_lazily
from widen.model.types import StructType
from widen.spark.ship import freeze_imports

if TYPE_CHECKING:
    from widen.data_source import batch_reader, ingest_sink
else:  # each Python process of a task would import them, for two seconds
    batch_reader = import_lazily("widen.data_source.batch_reader")
    ingest_sink = import_lazily("widen.data_source.ingest_sink")

StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
HAS_STREAM_WRITER = StreamArrowWriter is not DataSourceStreamWriter
"""Whether this Spark passes the rows of streams to a data source in Arrow."""


class _IngestWriter:
    """What the writers of batches and streams have in common.

    Args:
        options: The options; the sink is made of them where it is used, so that tasks get the place alone.
    """

    def __init__(self, options: batch_reader.SourceOptions, schema: StructType, *, is_overwrite: bool) -> None:
        self._given = options.given
        self._place = ingest_sink.parse_sink(options, is_overwrite=is_overwrite).place(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        freeze_imports()
        return self._place.stage(iterator)

    @property
    def _options(self) -> batch_reader.SourceOptions:
        return batch_reader.SourceOptions(self._given)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks have staged: the batch is committed as a whole, or Spark stages it again."""
        self._place.store.delete(file.path for each in _staged(messages) for file in each.files)


class IngestBatchWriter(_IngestWriter, DataSourceArrowWriter):
    """Ingests the rows of a batch in one commit."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Ingest what all tasks have staged, unless the table has the batch that the option ``txnAppId`` names."""
        staged, interval = _staged(messages), self._options.transaction()
        ingest_sink.commit_staged(self._options, self._place, staged, self._place.owner, 0, interval)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks have staged."""
        self._abort(messages)


class IngestStreamWriter(_IngestWriter, StreamArrowWriter):  # type: ignore[misc]
    """Ingests each batch of a stream in one commit, and a batch that Spark repeats only once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Ingest what the tasks of a batch have staged, unless the table has the batch already.

        Raises:
            InternalError: Spark did not pass the id of the query to its tasks.
        """
        staged = _staged(messages)
        if not any(each.files for each in staged):
            return
        query_id = staged[0].query_id
        if query_id is None:
            raise InternalError(reason="Spark did not pass the id of the streaming query to its tasks")
        interval = query_id, batchId
        ingest_sink.commit_staged(self._options, self._place, staged, query_id, batchId, interval)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks have staged."""
        self._abort(messages)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]
