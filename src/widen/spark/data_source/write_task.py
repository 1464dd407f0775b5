"""What a task of the data source writes: files of the table, apart for each partition.

Source: PROTOCOL.md#add-file-and-remove-file, #partition-value-serialization
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from widen.errors import NotNullViolated, StorageError
from widen.model.types import DataType, Field, find_name
from widen.protocol.column_mapping import NAME
from widen.spark.arrow_types import to_arrow, to_utc
from widen.spark.data_source.write_plan import WritePlan
from widen.spark.read.local_rows import convert_column
from widen.spark.write.iceberg_writer import open_writer
from widen.spark.write.part_file import PartFile, PartWriter

_OPEN_PARTITIONS = 64
"""How many partitions a task writes at a time; each one keeps a row group in memory."""

_QUERY_ID = "sql.streaming.queryId"
"""The property of a task in which Spark passes the id of the streaming query."""


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task has written.

    Args:
        files: The files, each with its partition values as in the log.
        query_id: The id of the streaming query, if the task belongs to one.
    """

    plan: WritePlan
    files: tuple[tuple[PartFile, tuple[str | None, ...]], ...]
    query_id: str | None


def write_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Write the rows of a task.

    Raises:
        NotNullViolated: a column that must not be null has a null.
    """
    writer = _PartitionedWriter(plan)
    try:
        for batch in batches:
            writer.write(batch)
        files = tuple(writer.close())
    except BaseException:
        writer.discard()
        raise
    context = TaskContext.get()
    return WrittenFiles(plan, files, context.getLocalProperty(_QUERY_ID) if context else None)


class _PartitionedWriter:
    """Writes rows to one file after the other for each partition."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        partition_by = plan.metadata.partition_columns
        self._stored = [(name, field) for name, field in plan.stored.items() if name not in partition_by]
        self._partitions = [(name, plan.stored[name]) for name in partition_by]
        self._open: dict[tuple[str | None, ...], PartWriter] = {}
        self._files: list[tuple[PartFile, tuple[str | None, ...]]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, each to the file of its partition."""
        names = batch.schema.names
        given = {name: batch.column(found) for name in self._plan.stored if (found := find_name(names, name))}
        columns, values = (
            [_to_table_type(name, field, given.get(name), batch.num_rows) for name, field in chosen]
            for chosen in (self._stored, self._partitions)
        )
        types = [field.type for _, field in self._partitions]
        texts = [_partition_texts(column, data_type) for column, data_type in zip(values, types, strict=True)]
        rows = pa.Table.from_arrays(columns, schema=self._plan.layout.schema)
        for key, part in _by_partition(rows, texts):
            self._writer(key).write(part)

    def close(self) -> list[tuple[PartFile, tuple[str | None, ...]]]:
        """Finish all files, and return them."""
        for key, writer in self._open.items():
            self._files += [(part, key) for part in writer.close()]
        self._open = {}
        return self._files

    def discard(self) -> None:
        """Delete what is written; storage errors are ignored, because a vacuum deletes such files later."""
        with suppress(StorageError):
            for writer in self._open.values():
                writer.discard()
            self._plan.store.delete([part.path for part, _ in self._files])

    def _writer(self, key: tuple[str | None, ...]) -> PartWriter:
        if key not in self._open:
            if len(self._open) >= _OPEN_PARTITIONS:
                self.close()
            self._open[key] = open_writer(self._plan.layout, key)
        return self._open[key]


def _to_table_type(name: str, field: Field, values: pa.Array | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, to_arrow(field.type))
    if values.null_count and not field.nullable:
        raise NotNullViolated(column=name)
    return convert_column(to_utc(values), field.type, NAME)


def _partition_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return partition values as texts for the log; the empty string is null."""
    pattern = _PATTERNS.get(str(data_type))
    texts = pc.strftime(values, pattern) if pattern else values.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


# Arrow's %S has the fraction of the second.
_PATTERNS = {"timestamp": "%Y-%m-%dT%H:%M:%SZ", "timestamp_ntz": "%Y-%m-%d %H:%M:%S", "date": "%Y-%m-%d"}


def _by_partition(rows: pa.Table, texts: list[pa.Array]) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield the rows of each partition."""
    keys = list(zip(*(column.to_pylist() for column in texts), strict=True)) if texts else [()] * rows.num_rows
    places: dict[tuple[str | None, ...], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    for key, chosen in places.items():
        part = rows if len(places) == 1 else rows.take(pa.array(chosen, pa.int64()))
        for batch in part.combine_chunks().to_batches():
            yield key, batch
