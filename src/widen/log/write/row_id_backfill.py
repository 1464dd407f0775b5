"""Backfill: files from before row tracking get their ids, so that it can be switched on.

Source: PROTOCOL.md#writer-requirements-for-row-tracking
"""

from __future__ import annotations

import msgspec

from widen.log.read.file_list import to_adds
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, commit

FILES_AT_ONCE = 100_000
ATTEMPTS = 100
_OPERATION = "ROW TRACKING BACKFILL"


def backfill_row_ids(store: LogStore) -> Snapshot:
    """Commit every file again that has no row ids, with some, and return a version in which all have them.

    The table must support row tracking already, so that no file comes without ids any more. A commit of somebody else
    makes us look again: what was removed meanwhile must not come back.

    Args:
        store: Of the table.

    Raises:
        ContentionError: too many races were lost, or nobody knows how one ended.
        InternalError: a file does not say how many rows it has.
        StorageError: the store refused.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the provenance
    """
    batch, losses = 0, 0
    while True:
        snapshot = open_snapshot(store)
        files = snapshot.files()
        lacking = files.filter(files["base_row_id"].is_null()).slice(0, FILES_AT_ONCE)
        if not lacking.num_rows:
            return snapshot
        adds = [msgspec.structs.replace(add, data_change=False) for add in to_adds(lacking)]
        outcome = commit(store, snapshot, adds, _OPERATION, {"batchId": batch}, max_attempts=1)
        lost = isinstance(outcome, Conflicted)
        batch, losses = (batch, losses + 1) if lost else (batch + 1, 0)
        if not lost or losses == ATTEMPTS:
            outcome.or_raise()
