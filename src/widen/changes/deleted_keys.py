"""The keys that an ingestion has deleted, so that a late older record does not bring their rows back.

In Delta a transaction identifier of the application `DELETED_KEYS_APP_ID` names the newest list, in Iceberg the table
property `ICEBERG_PROPERTY`. So the list is atomic with the commit, and two ingestions by key never commit after the
same version: each needs the keys of the other. In Delta the lists are in a subfolder of the log, which every VACUUM
leaves alone; in Iceberg they are below the location of the table, beside the record of loads.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/keys.md#deletes
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial, reduce

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import CorruptLog, CorruptMetadata, FileMissing, StorageError
from widen.evolution.key_rules import KEY_TEXT, NUMBER, TEXT
from widen.frames.parquet_writer import write_parquet
from widen.frames.scan import read_data_files
from widen.limits import KEY_LIST_BYTES
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import StagedFiles, discard_folder
from widen.log.file_list import concat_files, from_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, new_snapshot
from widen.model.schema_json import to_json
from widen.model.transaction_id import DELETED_KEYS_APP_ID
from widen.model.types import LONG, STRING, DecimalType, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, Metadata, Protocol, Txn
from widen.protocol.table_configuration import TableConfiguration
from widen.spark.engine import Session, require_spark
from widen.spark.spark_types import DataFrame, F, SparkSession

ICEBERG_PROPERTY = "widen.deleted-keys"
FOLDER, ICEBERG_FOLDER = "_delta_log/_widen/keys", "_widen/keys"

MAX_LISTS = 16
"""Merge the lists once there are this many."""


DELETED_MS = "__widen_deleted_ms"
"""When the table has deleted a key, in ms since the epoch. Files of older versions of Widen have no such column."""

_NONCE_BITS = 20
_DELETION = (KEY_TEXT, NUMBER, TEXT)
_SCHEMA_OF_ARROW = pa.schema(
    {KEY_TEXT: pa.string(), NUMBER: pa.decimal128(38, 18), TEXT: pa.string(), DELETED_MS: pa.int64()}
)
_SCHEMA = StructType(
    (Field(KEY_TEXT, STRING), Field(NUMBER, DecimalType(38, 18)), Field(TEXT, STRING), Field(DELETED_MS, LONG))
)
_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
_METADATA = Metadata(id="keys", schema_string=to_json(_SCHEMA), partition_columns=())
_CONFIGURATION = TableConfiguration(_PROTOCOL, _METADATA)


class _Lists(msgspec.Struct, frozen=True):
    """The files with deleted keys, each with its size; a key may be in several of them."""

    files: tuple[tuple[str, int], ...] = ()
    lists: int = 0


@dataclass(frozen=True, slots=True)
class WrittenKeys:
    """Deleted keys that tasks have written."""

    folder: str
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class KeyLists:
    """The keys that were deleted until a version.

    Args:
        head: The number that names the newest list; 0 if the table has no list.
        every: Whether each deletion of a key is kept, and not only the newest one.
    """

    store: LogStore
    head: int = 0
    folder: str = FOLDER
    every: bool = False

    @staticmethod
    def of(store: LogStore, snapshot: Snapshot | None, *, every: bool = False) -> KeyLists:
        """Return the keys deleted up to a version. Pass None if the table does not exist yet."""
        txn = None if snapshot is None else snapshot.transactions.get(DELETED_KEYS_APP_ID)
        return KeyLists(store, 0 if txn is None else txn.version, every=every)

    @cached_property
    def _lists(self) -> _Lists:
        path = self.list_path
        if path is None:
            return _Lists()
        try:
            return msgspec.json.decode(self.store.read(path), type=_Lists)
        except (FileMissing, msgspec.DecodeError) as error:
            raise CorruptLog(path=path, reason="the list of deleted keys is missing or damaged", fix=_FIX) from error

    def _path(self, head: int) -> str:
        return f"{self.folder}/keys.{head >> _NONCE_BITS:020}.{head & ((1 << _NONCE_BITS) - 1):05x}.json"

    @property
    def has_keys(self) -> bool:
        return bool(self._lists.files)

    @property
    def list_path(self) -> str | None:
        """The file with the newest list; None if no key was deleted yet."""
        # Without the low bits no key was deleted yet.
        return self._path(self.head) if self.head & ((1 << _NONCE_BITS) - 1) else None

    def read(self, spark: SparkSession) -> DataFrame | None:
        """Return the deleted keys with the sequence of their deletions; None if no key was deleted."""
        if not self.has_keys:
            return None
        adds = [
            Add(path=path, partition_values={}, size=size, modification_time=0, data_change=True)
            for path, size in self._lists.files
        ]
        view = new_snapshot(self.store, _CONFIGURATION)
        return self._distinct(read_data_files(spark, self.store, view, concat_files([from_adds(adds)])))

    def _distinct(self, keys: DataFrame) -> DataFrame:
        if self.every:
            return keys.groupBy(*_DELETION).agg(F.max(DELETED_MS).alias(DELETED_MS))
        rest = _SCHEMA.names[1:]
        newest = keys.groupBy(KEY_TEXT).agg(F.max(F.struct(*rest)).alias("newest"))
        return newest.select(KEY_TEXT, *(f"newest.{name}" for name in rest))

    def read_here(self) -> pa.Table | None:
        """Return the same as an Arrow table, without Spark; None if there are too many for this process."""
        if sum(size for _, size in self._lists.files) > KEY_LIST_BYTES:
            return None
        return self._distinct_here([rows for _, _, rows in self.read_files()])

    def _distinct_here(self, parts: Sequence[pa.Table]) -> pa.Table:
        return KeyLists.join(parts, every=self.every)

    @staticmethod
    def join(parts: Sequence[pa.Table], *, every: bool) -> pa.Table:
        """Return the keys of several files once each, or with `every` once for each deletion."""
        keys = pa.concat_tables([_SCHEMA_OF_ARROW.empty_table(), *map(_plain, parts)])
        if not every:
            return _newest(keys)
        return keys.group_by(_DELETION).aggregate([(DELETED_MS, "max")]).rename_columns(_SCHEMA_OF_ARROW.names)

    @property
    def files(self) -> Sequence[tuple[str, int]]:
        """The path and the size of each file with deleted keys."""
        return self._lists.files

    def read_file(self, number: int) -> pa.Table:
        """Return the keys of one of the files, with the sequence and the time of their deletions."""
        return _read_here(self.store, self.files[number][0])

    @staticmethod
    def write_keys(store: LogStore, folder: str, keys: pa.Table) -> tuple[str, int]:
        """Write keys that are deleted now into a new file, and return its path and its size."""
        now = pa.repeat(pa.scalar(current_ms()), len(keys))
        return _write_here(store, folder, keys.append_column(DELETED_MS, now))

    def add(self, new: pa.Table | WrittenKeys | None, number: int, staged: StagedFiles, session: Session) -> int:
        """Write the keys that a batch deletes, and return the number that names the list with them.

        Args:
            new: The keys with their sequence; None if the batch deletes nothing.
        """
        store, known = self.store, self._lists
        if isinstance(new, WrittenKeys):
            staged.add_undo(partial(discard_folder, store, new.folder))
            discard_folder(store, new.folder, but={path for path, _ in new.files})  # Spark may have run a task twice
            known = _Lists((*known.files, *new.files), known.lists + 1)
        elif new is not None:
            files, count = known.files, known.lists + 1
            folder = f"{self.folder}/{uuid.uuid4().hex}"
            staged.add_undo(partial(discard_folder, store, folder))
            keys = new.append_column(DELETED_MS, pa.repeat(pa.scalar(current_ms()), len(new)))
            known_here = self.read_here() if count > MAX_LISTS else None
            if count > MAX_LISTS and known_here is None:
                spark = require_spark(session, "so many keys were deleted")
                rows = spark.createDataFrame(_plain(keys))
                old = self.read(spark)
                rows = self._distinct(rows if old is None else reduce(DataFrame.unionAll, (old, rows)))
                written = [(add.path, add.size) for add in write_parquet(rows, store, _CONFIGURATION, folder)]
                files, count = (), 1
            else:
                files, count = (files, count) if known_here is None else ((), 1)
                keys = keys if known_here is None else self._distinct_here([known_here, keys])
                written = [_write_here(store, folder, keys)]
            known = _Lists((*files, *written), count)
        return self._put(known, number, staged)

    def read_files(self) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield the path and the size of each file, and its keys with the sequence and the time of their deletions."""
        for path, size in self._lists.files:
            yield path, size, _read_here(self.store, path)

    def read_dated_files(self) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield the same with times; rows without one get the time of their file."""
        written = {entry.path: entry.modified_ms for entry in self.store.list(self.folder)}
        for path, size, rows in self.read_files():
            times = pc.fill_null(rows[DELETED_MS], written.get(self.store.plain(path), current_ms()))
            yield path, size, rows.set_column(rows.column_names.index(DELETED_MS), DELETED_MS, times)

    def write_file(self, folder: str, keys: pa.Table) -> tuple[str, int]:
        """Write keys into a new file for `put`, and return its path and its size."""
        return _write_here(self.store, folder, keys)

    def put(self, files: Sequence[tuple[str, int]], number: int, staged: StagedFiles) -> int:
        """Write a list of these files instead of the known ones, and return the number that names it; see `add`."""
        return self._put(_Lists(tuple(files), self._lists.lists if files else 0), number, staged)

    def _put(self, known: _Lists, number: int, staged: StagedFiles) -> int:
        store = self.store
        if not known.files:
            return number << _NONCE_BITS
        # Under a name that no other writer uses.
        while True:
            head = number << _NONCE_BITS | (secrets.randbits(_NONCE_BITS) or 1)
            if store.put_if_absent(self._path(head), msgspec.json.encode(known)):
                staged.add_undo(partial(_delete, store, self._path(head)))
                return head


def iceberg_head(properties: Mapping[str, str], location: str) -> int:
    """Return the number that names the newest list of an Iceberg table; 0 if the table has no list.

    Raises:
        CorruptMetadata: the property is damaged.
    """
    text = properties.get(ICEBERG_PROPERTY, "0")
    if not text.isdecimal():
        reason = f"{text!r} is not a number"
        raise CorruptMetadata(location=location, name=ICEBERG_PROPERTY, reason=reason, fix=_RESTORE_KEYS)
    return int(text)


def record_deleted_keys(
    lists: KeyLists, new: pa.Table | WrittenKeys | None, view: Snapshot, staged: StagedFiles, spark: Session
) -> tuple[Txn, ...]:
    """Write the keys that a batch deletes, and return the transaction identifier for its commit; see `KeyLists.add`.

    Args:
        view: The version of the table that the commit is based on, or one without files if there is no table yet.
    """
    head = lists.add(new, view.version + 1, staged, spark)
    return (Txn(app_id=DELETED_KEYS_APP_ID, version=head, last_updated=current_ms()),)


def _newest(keys: pa.Table) -> pa.Table:
    order = [(KEY_TEXT, "ascending"), *((name, "descending") for name in keys.column_names[1:])]
    keys = keys.sort_by(order).combine_chunks()
    texts = keys[KEY_TEXT]
    is_first = [True, *pc.not_equal(texts[1:], texts[:-1]).to_pylist()] if len(keys) else []
    return keys.filter(pa.array(is_first, pa.bool_()))


def _plain(keys: pa.Table) -> pa.Table:
    return keys.select(_SCHEMA_OF_ARROW.names).cast(_SCHEMA_OF_ARROW)


def _read_here(store: LogStore, path: str) -> pa.Table:
    try:
        content = store.read(store.plain(path))
        file = pq.ParquetFile(pa.BufferReader(content))
        has_times = DELETED_MS in file.schema_arrow.names
        rows = file.read(columns=[*_DELETION, DELETED_MS] if has_times else [*_DELETION])
        rows = rows if has_times else rows.append_column(DELETED_MS, pa.nulls(len(rows), pa.int64()))
        return rows.select(_SCHEMA_OF_ARROW.names).cast(_SCHEMA_OF_ARROW)
    except (FileMissing, pa.ArrowException, KeyError) as error:
        raise CorruptLog(path=path, reason="the list of deleted keys is missing or damaged", fix=_FIX) from error


def _write_here(store: LogStore, folder: str, keys: pa.Table) -> tuple[str, int]:
    buffer, path = pa.BufferOutputStream(), f"{folder}/{uuid.uuid4().hex}.parquet"
    pq.write_table(_plain(keys), buffer)
    content = buffer.getvalue().to_pybytes()
    store.put(path, content)
    return path, len(content)


_FIX = (
    "If `widen forget` ran at the same time, repeat the load. Else restore the list: copy a table with its whole log. "
    "Without it, late records could bring deleted rows back."
)

_RESTORE_KEYS = "Restore the property from an older version of the metadata. Move a table with all its files."


def _delete(store: LogStore, path: str) -> None:
    with suppress(StorageError):
        store.delete([path])
