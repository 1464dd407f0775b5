"""Batches of a sink as Spark runs them, without Spark: tasks stage rows, and another process commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from widen.data_source import staging
from widen.data_source.batch_reader import SourceOptions
from widen.data_source.sink_writers import IngestBatchWriter, IngestStreamWriter
from widen.files.expressions import query_locally
from widen.iceberg.catalog import to_table_name
from widen.log.commit_outcome import STAGED_ROWS
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.schema_json import parse_type
from widen.model.types import StructType

VALUE = "struct<value: string>"


class FakeTask:
    """The context of a task that belongs to a batch of a stream."""

    def __init__(self, query_id: str | None, number: int) -> None:
        self._properties = {"sql.streaming.queryId": query_id, "streaming.sql.batchId": str(number)}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties[name]


def writer(options: Mapping[str, Any], schema: str = VALUE, *, kind: type = IngestStreamWriter) -> Any:
    """Return a new writer, as Spark makes one for the tasks and one for the commit."""
    columns = parse_type(schema)
    assert isinstance(columns, StructType)
    given = {"ingest": "json", **{name: str(value) for name, value in options.items()}}
    return kind(SourceOptions({name.lower(): value for name, value in given.items()}), columns, is_overwrite=False)


def stage(
    options: Mapping[str, Any], tasks: Sequence[pa.RecordBatch], number: int, query: str = "q", schema: str = VALUE
) -> list[WriterCommitMessage]:
    """Return what the tasks of a batch have staged; each has one batch of Arrow."""
    found = writer(options, schema)
    with mock.patch.object(staging.TaskContext, "get", return_value=FakeTask(query, number)):
        return [found.write(iter([task])) for task in tasks]


def texts(*values: str | bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values)})


def run_batch(
    options: Mapping[str, Any], tasks: Sequence[pa.RecordBatch], number: int, query: str = "q", schema: str = VALUE
) -> None:
    """Run one batch of a stream."""
    messages = stage(options, tasks, number, query, schema)
    writer(options, schema).commit(messages, number)


def write_batch(options: Mapping[str, Any], tasks: Sequence[pa.RecordBatch], schema: str = VALUE) -> None:
    """Write a DataFrame, with one writer for tasks and commit."""
    found = writer(options, schema, kind=IngestBatchWriter)
    found.commit([found.write(iter([task])) for task in tasks])


def rows_of(place: str | Path) -> list[dict[str, Any]]:
    """Return the rows of the newest version of a Delta table."""
    snapshot = open_snapshot(LogStore(str(place)))
    return query_locally(snapshot, None, ())[1].to_pylist()


def iceberg_rows(name: str, catalog: Path) -> list[dict[str, Any]]:
    """Return the rows of the newest version of an Iceberg table, as PyIceberg reads it."""
    found: list[dict[str, Any]] = to_table_name(name, catalog).load().scan().to_arrow().to_pylist()
    return found


def staged_files(place: Path) -> list[str]:
    """Return the staged files below a folder."""
    return sorted(str(path) for path in place.rglob(f"{STAGED_ROWS}/**/*") if path.is_file())
