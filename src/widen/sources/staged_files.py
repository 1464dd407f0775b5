"""Files of records that wait for their ingestion: rows of a sink, and data that is in memory.

Texts are files of Arrow's stream format, and rows with types are Parquet files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import StorageError
from widen.log.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from widen.json import field_rules
    from widen.sources import file_ranges, listing
    from widen.spark import engine
else:  # a task of a sink only writes files, and each Python process of one would import them
    engine = import_lazily("widen.spark.engine")
    field_rules = import_lazily("widen.json.field_rules")
    file_ranges = import_lazily("widen.sources.file_ranges")
    listing = import_lazily("widen.sources.listing")

STAGED_TEXT = "text"
"""The column of a file with texts."""

_CREATE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file with staged records.

    Args:
        path: Its path in the store.
        data_bytes: The size of the rows without compression.
    """

    path: str
    rows: int
    size_bytes: int
    data_bytes: int


class OpenStagedFile:
    """A new file that gets records.

    Args:
        prefix: The beginning of its path in the store.
        compression: The codec of its pages or batches; None to compress nothing.
    """

    def __init__(
        self, store: LogStore, prefix: str, schema: pa.Schema, *, is_text: bool, compression: str | None = "zstd"
    ) -> None:
        self.path = f"{prefix}-{uuid.uuid4().hex}.{'arrow' if is_text else 'parquet'}"
        self._store, self.rows, self.data_bytes = store, 0, 0
        self._file = _create(store, self.path)
        self._writer: Any
        if is_text:
            options = pa.ipc.IpcWriteOptions(compression=compression)
            self._writer = pa.ipc.new_stream(self._file, schema, options=options)
        elif compression is None:
            # The file is read once, by this process: encoding costs more than it saves.
            self._writer = pq.ParquetWriter(
                self._file, schema, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
            )
        else:
            self._writer = pq.ParquetWriter(self._file, schema, compression=compression, store_schema=False)

    def write(self, table: pa.Table) -> None:
        """Write rows; those of a Parquet file become a row group."""
        self._writer.write_table(table)
        self.rows += table.num_rows
        self.data_bytes += table.nbytes

    def close(self) -> StagedFile:
        """Finish the file."""
        self._writer.close()
        self._file.close()
        found = self._store.find(self.path)
        size_bytes = self.data_bytes if found is None else found.size_bytes
        return StagedFile(self.path, self.rows, size_bytes, self.data_bytes)

    def abandon(self) -> None:
        """Close the file, which is deleted next: what cannot be written any more does not matter."""
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


def read_staged_texts(session: engine.Session, store: LogStore, files: Sequence[StagedFile]) -> file_ranges.RawTexts:
    """Return the texts of staged files as a raw batch, with a task for each file."""
    paths = [file.path for file in files]
    numbers: file_ranges.RawTexts = engine.start_tasks(session, len(paths))
    return numbers.mapInArrow(partial(_read_texts, store, paths), file_ranges.RAW_SCHEMA)


def _read_texts(store: LogStore, paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        with store.open(paths[number]) as file, pa.ipc.open_stream(file) as texts:
            for batch in texts:
                count = batch.num_rows
                columns = {
                    file_ranges.TEXT: batch.column(0),
                    file_ranges.FILE: pa.repeat(pa.scalar(""), count),
                    file_ranges.PART: pa.repeat(pa.scalar(0, pa.int64()), count),
                    file_ranges.WHOLE: pa.repeat(pa.scalar(False), count),
                }
                yield pa.RecordBatch.from_pydict(columns)


def with_load_time(rows: pa.Table, loaded_at: str | None) -> pa.Table:
    """Return rows with the time of the load, if they get it, as the field that records have it in."""
    if loaded_at is None:
        return rows
    time = pa.scalar(datetime.fromisoformat(loaded_at.replace("Z", "+00:00")), pa.timestamp("us", "UTC"))
    return rows.append_column(f"{field_rules.LOADED_AT}{field_rules.SIGN}", pa.repeat(time, rows.num_rows))


def as_sources(store: LogStore, files: Sequence[StagedFile]) -> list[listing.SourceFile]:
    """Return staged files as files of a source."""
    uris = [(store.uri(file.path), file) for file in files]
    return [listing.SourceFile(uri, file.size_bytes, uri=uri) for uri, file in uris]
