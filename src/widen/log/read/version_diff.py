"""Compare versions of a table: files that only one of them has, and files that are missing from the store.

Source: PROTOCOL.md#action-reconciliation (path and deletion vector identify a file)
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


def files_only_in(snapshot: Snapshot, other: Snapshot) -> list[Add]:
    """Return the files of a version that another one does not have with the same deletion vector."""
    other_keys = set(_keys(other))
    return to_adds(snapshot.files().filter(pa.array([key not in other_keys for key in _keys(snapshot)], pa.bool_())))


def _keys(snapshot: Snapshot) -> list[str]:
    keys: list[str] = []
    for batch in snapshot.files().to_batches():
        keys += file_keys(batch.column("path"), batch.column("deletion_vector"), snapshot.location)
    return keys


def missing_files(store: LogStore, adds: Sequence[Add]) -> list[str]:
    """Return the paths of the missing data files and deletion vector files, in the order of the add actions."""
    paths = list(dict.fromkeys(path for add in adds for path in _stored_paths(store, add)))
    with ThreadPoolExecutor(_THREADS, "widen-exists") as pool:
        return [path for path, entry in zip(paths, pool.map(store.find, paths), strict=True) if entry is None]


def _stored_paths(store: LogStore, add: Add) -> list[str]:
    vector = add.deletion_vector
    slice_ = locate_vector(vector) if vector else None
    if vector is None or slice_ is None:
        return [store.plain(add.path)]
    return [store.plain(add.path), store.plain(slice_.path) if vector.storage_type == "p" else slice_.path]
