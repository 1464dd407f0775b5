"""Row id backfill: assign row ids to existing files, so that row tracking can be enabled.

Source: PROTOCOL.md#writer-requirements-for-row-tracking
"""

from __future__ import annotations

import msgspec

from widen.log.read.file_list import to_adds
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, commit

FILES_PER_COMMIT = 100_000
ATTEMPTS = 100
_OPERATION = "ROW TRACKING BACKFILL"


def backfill_row_ids(store: LogStore) -> Snapshot:
    """Commit every file without row ids again, with row ids; return a version in which all files have them.

    The table must support row tracking already, so that new files always have row ids. After a conflicting commit, the
    files are listed again: adding a file that was removed meanwhile would bring back its rows.

    Raises:
        ContentionError: too many commits conflicted, or the outcome of one is unknown.
        InternalError: a file has no row count.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the provenance
    """
    batch, conflicts = 0, 0
    while True:
        snapshot = open_snapshot(store)
        files = snapshot.files()
        without_ids = files.filter(files["base_row_id"].is_null()).slice(0, FILES_PER_COMMIT)
        if not without_ids.num_rows:
            return snapshot
        adds = [msgspec.structs.replace(add, data_change=False) for add in to_adds(without_ids)]
        outcome = commit(store, snapshot, adds, _OPERATION, {"batchId": batch}, max_attempts=1)
        has_conflict = isinstance(outcome, Conflicted)
        batch, conflicts = (batch, conflicts + 1) if has_conflict else (batch + 1, 0)
        if not has_conflict or conflicts == ATTEMPTS:
            outcome.or_raise()
