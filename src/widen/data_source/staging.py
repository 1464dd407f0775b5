"""Rows of a sink between Spark's tasks and the commit: tasks write them as files, and the commit ingests the files.

The files are in a hidden folder of the table. A commit deletes those that it has ingested, and those that no commit
needs any more: of killed tasks, of batches that Spark has tried again, and of writes that were never committed.

Source: Spark's Python Data Source API
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from widen.errors import MicroBatchTooLarge, StorageError
from widen.files.arrow_types import to_utc
from widen.files.data_reader import convert_column
from widen.limits import STAGED_FILE_BYTES
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import STAGED_ROWS
from widen.log.log_store import LogStore
from widen.model.types import StructType
from widen.sources.file_ranges import FILE, PART, RAW_SCHEMA, TEXT, WHOLE, RawTexts
from widen.sources.listing import SourceFile
from widen.spark.engine import Session, start_tasks

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a task that Spark uses to pass the id of the streaming query, and the number of the batch."""

_ABANDONED_MS = 7 * 24 * 3_600_000
"""How old a file is that nobody will commit any more: no task and no commit takes so long."""

_NAME = re.compile(r"(?P<owner>[^/]+)/(?P<batch>\d+)-[0-9a-f]{32}\.(?:arrow|parquet)")
_CREATE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with rows that a task has got.

    Args:
        path: Its path in the store.
        size_bytes: The size of the file.
        data_bytes: The size of the rows without compression.
    """

    path: str
    rows: int
    size_bytes: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """What a task has staged.

    Args:
        query_id: The id of the streaming query; None in a batch.
    """

    files: tuple[StagedFile, ...]
    query_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingPlace:
    """Where the tasks of a write stage rows, and how. Picklable.

    Args:
        store: The store of the folder.
        owner: The name of a write of a batch; streams have the id of their query.
        column: The index of the column with texts; None to stage all columns with their types.
        schema: The columns of the rows.
        limit_bytes: The maximum size of the rows of all tasks.
    """

    store: LogStore
    owner: str
    column: int | None
    schema: StructType
    limit_bytes: int

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedRows:
        """Write the rows of a task."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context else None
        number = (context.getLocalProperty(_BATCH_ID) if context else None) or "0"
        files = _FileWriter(self, f"{STAGED_ROWS}/{query_id or self.owner}/{number}")
        try:
            for batch in batches:
                files.write(batch)
            return StagedRows(files.close(), query_id)
        except BaseException:
            files.discard()
            raise


def clear_staged(store: LogStore, owner: str, batch: int) -> None:
    """Delete what a batch and earlier ones of the same stream have staged, and what was abandoned long ago."""
    old_ms = current_ms() - _ABANDONED_MS
    entries = list(store.list(STAGED_ROWS))
    store.delete(each.path for each in entries if each.modified_ms < old_ms or _is_done(each.path, owner, batch))


def _is_done(path: str, owner: str, batch: int) -> bool:
    match = _NAME.fullmatch(path.removeprefix(f"{STAGED_ROWS}/"))
    return match is not None and match["owner"] == owner and int(match["batch"]) <= batch


class _FileWriter:
    """Writes the rows of one task as files of a limited size, so that the commit can read them side by side."""

    def __init__(self, place: StagingPlace, prefix: str) -> None:
        self._place, self._prefix = place, prefix
        self._files: list[StagedFile] = []
        self._open: _OpenFile | None = None
        self._total_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        table = self._prepare(batch)
        if not table.num_rows:
            return
        self._total_bytes += table.nbytes
        if self._total_bytes > self._place.limit_bytes:
            raise MicroBatchTooLarge(
                location=self._place.store.location, size=self._total_bytes, limit=self._place.limit_bytes
            )
        if self._open is None:
            self._open = _OpenFile(
                self._place.store, self._prefix, table.schema, is_text=self._place.column is not None
            )
        self._open.write(table)
        if self._open.data_bytes >= STAGED_FILE_BYTES:
            self._close_file()

    def close(self) -> tuple[StagedFile, ...]:
        self._close_file()
        return tuple(self._files)

    def discard(self) -> None:
        paths = [file.path for file in self._files]
        if self._open is not None:
            paths.append(self._open.path)
            self._open.abandon()
        self._place.store.delete(paths)

    def _close_file(self) -> None:
        if self._open is not None:
            self._files.append(self._open.close())
            self._open = None

    def _prepare(self, batch: pa.RecordBatch) -> pa.Table:
        place = self._place
        if place.column is None:
            fields = zip(batch.columns, place.schema, strict=True)
            columns = [convert_column(to_utc(array), field.type) for array, field in fields]
            return pa.table(columns, names=[field.name for field in place.schema])
        texts = pc.drop_null(batch.column(place.column)).cast(pa.binary())
        return pa.table({TEXT: texts})


class _OpenFile:
    def __init__(self, store: LogStore, prefix: str, schema: pa.Schema, *, is_text: bool) -> None:
        self.path = f"{prefix}-{uuid.uuid4().hex}.{'arrow' if is_text else 'parquet'}"
        self._store, self.rows, self.data_bytes = store, 0, 0
        self._file = _create(store, self.path)
        self._writer: Any
        if is_text:
            self._writer = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        else:
            self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", store_schema=False)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self.rows += table.num_rows
        self.data_bytes += table.nbytes

    def close(self) -> StagedFile:
        self._writer.close()
        self._file.close()
        found = self._store.find(self.path)
        size_bytes = self.data_bytes if found is None else found.size_bytes
        return StagedFile(self.path, self.rows, size_bytes, self.data_bytes)

    def abandon(self) -> None:
        # The file is deleted next, so what cannot be written any more does not matter.
        for each in (self._writer, self._file):
            try:
                each.close()
            except (OSError, StorageError, pa.ArrowException):
                continue


def _create(store: LogStore, path: str) -> BinaryIO:
    for _ in range(_CREATE_ATTEMPTS):
        try:
            return store.create(path)
        except StorageError:
            # Another stream may have deleted the last file of the folder, and with it the folder.
            continue
    return store.create(path)


def read_staged_texts(session: Session, store: LogStore, files: Sequence[StagedFile]) -> RawTexts:
    """Return the texts of staged files as a raw batch, with a task for each file."""
    paths = [file.path for file in files]
    numbers: RawTexts = start_tasks(session, len(paths))
    return numbers.mapInArrow(partial(_read_texts, store, paths), RAW_SCHEMA)


def _read_texts(store: LogStore, paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        with store.open(paths[number]) as file, pa.ipc.open_stream(file) as texts:
            for batch in texts:
                count = batch.num_rows
                columns = {
                    TEXT: batch.column(0),
                    FILE: pa.repeat(pa.scalar(""), count),
                    PART: pa.repeat(pa.scalar(0, pa.int64()), count),
                    WHOLE: pa.repeat(pa.scalar(False), count),
                }
                yield pa.RecordBatch.from_pydict(columns)


def as_sources(store: LogStore, files: Sequence[StagedFile]) -> list[SourceFile]:
    """Return staged files as files of a source."""
    uris = [(store.uri(file.path), file) for file in files]
    return [SourceFile(uri, file.size_bytes, uri=uri) for uri, file in uris]
