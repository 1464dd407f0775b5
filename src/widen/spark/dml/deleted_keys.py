"""The keys that an ingestion has deleted, so that a late older record does not bring their rows back.

A transaction identifier of the application `APP_ID` names the newest list. So the list is atomic with the commit, and
two ingestions by key never commit after the same version: each needs the keys of the other. The lists are in `FOLDER`,
a subfolder of the log, which every VACUUM leaves alone.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/keys.md#deletes
"""

from __future__ import annotations

import secrets
import uuid
from contextlib import suppress
from functools import partial, reduce

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from widen.errors import CorruptLog, FileMissing, StorageError
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import StagedFiles, discard_folder
from widen.log.file_list import concat_files, from_adds
from widen.log.snapshot import Snapshot, new_snapshot
from widen.model.schema_json import to_json
from widen.model.types import STRING, DecimalType, Field, StructType
from widen.protocol.actions import Add, Metadata, Protocol, Txn
from widen.spark.dml.keyed_rows import KEY_TEXT, NUMBER, TEXT
from widen.spark.read.scan import read_data_files
from widen.spark.types import DataFrame
from widen.spark.write.parquet_writer import write_parquet

APP_ID = "widen.keys"
FOLDER = "_delta_log/_widen/keys"

MAX_LISTS = 16
"""From how many lists on they become one."""

_NONCE_BITS = 20
_SCHEMA = StructType((Field(KEY_TEXT, STRING), Field(NUMBER, DecimalType(38, 18)), Field(TEXT, STRING)))
_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
_METADATA = Metadata(id="keys", schema_string=to_json(_SCHEMA), partition_columns=())


class _Lists(msgspec.Struct, frozen=True):
    """The files with deleted keys, each with its size; a key may be in several of them."""

    files: tuple[tuple[str, int], ...] = ()
    lists: int = 0


def read_deleted_keys(spark: SparkSession, snapshot: Snapshot | None) -> DataFrame | None:
    """Return the keys that were deleted, each once, with the order of their newest deletion; None if there are none.

    Raises:
        CorruptLog: the list is missing or damaged.
    """
    lists = _read_lists(snapshot)
    if snapshot is None or not lists.files:
        return None
    adds = [
        Add(path=path, partition_values={}, size=size, modification_time=0, data_change=True)
        for path, size in lists.files
    ]
    view = new_snapshot(snapshot.store, _PROTOCOL, _METADATA)
    return _newest(read_data_files(spark, snapshot.store, view, concat_files([from_adds(adds)])))


def _newest(keys: DataFrame) -> DataFrame:
    newest = F.max(F.struct(NUMBER, TEXT)).alias("newest")
    return keys.groupBy(KEY_TEXT).agg(newest).select(KEY_TEXT, f"newest.{NUMBER}", f"newest.{TEXT}")


def record_deleted_keys(
    snapshot: Snapshot | None, new: DataFrame | None, view: Snapshot, staged: StagedFiles
) -> tuple[Txn, ...]:
    """Write the keys that a batch deletes, and return the transaction identifier for its commit.

    Args:
        snapshot: The version that the commit is based on; None to create the table.
        new: The keys with their order; None if there are none.
        view: A version of the table, or of the one to create.
        staged: Deletes the files if the commit is not made.
    """
    number = 0 if snapshot is None else snapshot.version + 1
    lists = _read_lists(snapshot)
    if new is not None:
        store, spark = view.store, new.sparkSession
        rows, files, count = new.select(KEY_TEXT, NUMBER, TEXT), lists.files, lists.lists + 1
        if count > MAX_LISTS:
            old = read_deleted_keys(spark, snapshot)
            rows, files, count = rows if old is None else _newest(reduce(DataFrame.unionAll, (old, rows))), (), 1
        folder = f"{FOLDER}/{uuid.uuid4().hex}"
        staged.add_undo(partial(discard_folder, store, folder))
        adds = write_parquet(rows, store, _PROTOCOL, _METADATA, folder)
        lists = _Lists((*files, *((add.path, add.size) for add in adds)), count)
    if not lists.files:
        return (_to_txn(number << _NONCE_BITS),)
    return (_to_txn(_write_lists(view, number, lists, staged)),)


def _to_txn(head: int) -> Txn:
    return Txn(app_id=APP_ID, version=head, last_updated=current_ms())


def _path(head: int) -> str:
    return f"{FOLDER}/keys.{head >> _NONCE_BITS:020}.{head & ((1 << _NONCE_BITS) - 1):05x}.json"


def _read_lists(snapshot: Snapshot | None) -> _Lists:
    txn = None if snapshot is None else snapshot.transactions.get(APP_ID)
    # Without the low bits no key was deleted yet.
    if snapshot is None or txn is None or not txn.version & ((1 << _NONCE_BITS) - 1):
        return _Lists()
    path = _path(txn.version)
    fix = "Copy a table with its whole log. Without the list, late records could bring deleted rows back."
    try:
        return msgspec.json.decode(snapshot.store.read(path), type=_Lists)
    except (FileMissing, msgspec.DecodeError) as error:
        raise CorruptLog(path=path, reason="the list of deleted keys is missing or damaged", fix=fix) from error


def _write_lists(view: Snapshot, number: int, lists: _Lists, staged: StagedFiles) -> int:
    """Write the list under a name that no other writer uses, and return the number that names it."""
    while True:
        head = number << _NONCE_BITS | (secrets.randbits(_NONCE_BITS) or 1)
        if view.store.put_if_absent(_path(head), msgspec.json.encode(lists)):
            staged.add_undo(partial(_delete, view, _path(head)))
            return head


def _delete(view: Snapshot, path: str) -> None:
    with suppress(StorageError):
        view.store.delete([path])
