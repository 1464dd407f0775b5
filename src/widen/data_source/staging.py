"""Rows of a sink between Spark's tasks and the commit: tasks write them as files, and the commit ingests the files.

The files are in a hidden folder of the table. A commit deletes those that it has ingested, and those that no commit
needs any more: of killed tasks, of batches that Spark has tried again, and of writes that were never committed.

Source: Spark's Python Data Source API
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from widen.errors import MicroBatchTooLarge
from widen.files.arrow_types import to_utc
from widen.files.data_reader import convert_column
from widen.limits import STAGED_FILE_BYTES
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import STAGED_ROWS
from widen.log.log_store import LogStore
from widen.model.types import StructType
from widen.sources.file_ranges import TEXT
from widen.sources.staged_files import OpenStagedFile, StagedFile

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a task that Spark uses to pass the id of the streaming query, and the number of the batch."""

_ABANDONED_MS = 7 * 24 * 3_600_000
"""How old a file is that nobody will commit any more: no task and no commit takes so long."""

_NAME = re.compile(r"(?P<owner>[^/]+)/(?P<batch>\d+)-[0-9a-f]{32}\.(?:arrow|parquet)")


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
        self._open: OpenStagedFile | None = None
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
            is_text = self._place.column is not None
            self._open = OpenStagedFile(self._place.store, self._prefix, table.schema, is_text=is_text)
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
