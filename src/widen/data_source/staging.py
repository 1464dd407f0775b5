"""Rows of a sink between Spark's tasks and the commit: tasks write them as files, and the commit ingests the files.

The files are in a hidden folder of the table. A commit deletes those that it has ingested, and those that no commit
needs any more: of killed tasks, of batches that Spark has tried again, and of writes that were never committed.

Source: Spark's Python Data Source API
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from widen.errors import MicroBatchTooLarge, SourceContentError
from widen.files.arrow_types import to_utc
from widen.limits import STAGED_FILE_BYTES
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import STAGED_ROWS
from widen.log.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.model.types import INTEGER, LONG, STRING, StructType
from widen.model.value_classes import dataclass
from widen.sources.staged_files import STAGED_TEXT, OpenStagedFile, StagedFile, with_load_time

if TYPE_CHECKING:
    from widen.files import data_reader
    from widen.sources import file_ranges
else:  # needed only for rows with types, and for errors
    data_reader = import_lazily("widen.files.data_reader")
    file_ranges = import_lazily("widen.sources.file_ranges")

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a task that Spark uses to pass the id of the streaming query, and the number of the batch."""

_ABANDONED_MS = 7 * 24 * 3_600_000
"""How old a file is that nobody will commit any more: no task and no commit takes so long."""

ROWS_OF_BATCH = "the rows of the batch"
"""What errors call the source of a batch."""

_KAFKA = {"topic": STRING, "partition": INTEGER, "offset": LONG}
"""The columns that say where a record is, in the rows of Spark's source for Kafka."""

_RAISE_LIMIT = "For records of that size, raise the option maxRecordSize, e.g. 256MB."

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
        owner: The name of a write of a batch; streams have the id of their query.
        column: The index of the column with texts; None to stage all columns with their types.
        loaded_at: The time of the load, if rows with types get it as a field.
    """

    store: LogStore
    owner: str
    column: int | None
    schema: StructType
    limit_bytes: int
    max_record_bytes: int
    loaded_at: str | None

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
        self._total_bytes = self._rows = 0

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
            columns = [data_reader.convert_column(to_utc(array), field.type) for array, field in fields]
            rows = pa.table(columns, names=[field.name for field in place.schema])
            return with_load_time(rows, place.loaded_at)
        texts = batch.column(place.column).cast(pa.binary())
        self._ensure_short(texts, batch)
        self._rows += batch.num_rows
        return pa.table({STAGED_TEXT: pc.drop_null(texts)})

    def _ensure_short(self, texts: pa.Array, batch: pa.RecordBatch) -> None:
        """Check that no text is longer than a record may be.

        Raises:
            SourceContentError: one is longer; the error says where its source has it, if the rows do.
        """
        limit = self._place.max_record_bytes
        if texts.nbytes <= limit:
            return
        row = pc.index(pc.greater(pc.binary_length(texts), limit), True).as_py()
        if row >= 0:
            place = self._place
            at = {name: batch.column(place.schema.names.index(name))[row].as_py() for name in _kafka_columns(place)}
            where = f"the row {self._rows + row + 1:,} of a task"
            if at:
                where = "the record at offset {offset} of the partition {partition} of the topic {topic}".format(**at)
            reason = f"{where} is longer than {file_ranges.size_limit_text(limit)}"
            raise SourceContentError(source=ROWS_OF_BATCH, reason=reason, fix=_RAISE_LIMIT)


def _kafka_columns(place: StagingPlace) -> Collection[str]:
    """Return the columns that say where a record is in Kafka, if the rows have all of them."""
    types = {field.name: field.type for field in place.schema}
    return _KAFKA if all(types.get(name) == kind for name, kind in _KAFKA.items()) else ()
