"""What two versions of a table differ in: the files that only one of them has, and those that are gone from the store.

Source: PROTOCOL.md#action-reconciliation (a file is told by its path and its deletion vector)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from widen.log.read.file_list import file_keys, to_adds
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.protocol.actions import Add
from widen.protocol.deletion_vector_format import locate_vector

_THREADS = 32


def files_only_in(one: Snapshot, other: Snapshot) -> list[Add]:
    """Return the files of a version that another one does not have, or not with the same deletion vector.

    Raises:
        CorruptLog: a log file is damaged.
        StorageError: the store refused.
    """
    known = set(_keys(other))
    return to_adds(one.files().filter(pa.array([key not in known for key in _keys(one)], pa.bool_())))


def _keys(snapshot: Snapshot) -> list[str]:
    keys: list[str] = []
    for batch in snapshot.files().to_batches():
        keys += file_keys(batch.column("path"), batch.column("deletion_vector"), snapshot.location)
    return keys


def missing_files(store: LogStore, adds: Sequence[Add]) -> list[str]:
    """Return the data files and the files of deletion vectors that are not there, by their paths, in order.

    Raises:
        StorageError: the store refused.
    """
    paths = list(dict.fromkeys(path for add in adds for path in _stored(store, add)))
    with ThreadPoolExecutor(_THREADS, "widen-exists") as pool:
        return [path for path, is_there in zip(paths, pool.map(store.exists, paths), strict=True) if not is_there]


def _stored(store: LogStore, add: Add) -> list[str]:
    vector = add.deletion_vector
    at = locate_vector(vector) if vector else None
    if vector is None or at is None:
        return [store.plain(add.path)]
    return [store.plain(add.path), store.plain(at.path) if vector.storage_type == "p" else at.path]
