"""Post-commit hooks: write the checksum and, if due, a checkpoint; then clean up the log.

A hook that fails does not undo the commit.

Source: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from widen.log.read.commit_timestamps import IN_COMMIT_TIMESTAMP
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.read.version_checksum import VersionChecksum, next_checksum, read_checksum, write_checksum
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_writer import write_checkpoint
from widen.log.write.log_cleanup import clean_up_if_enabled
from widen.protocol.actions import Action, CommitInfo

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_DEFAULT_INTERVAL = 10
_log = logging.getLogger(__name__)


def run_post_commit_hooks(store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action]) -> None:
    """Write the checksum of a version and, if due, a checkpoint; then clean up the log.

    Errors are logged, not raised: the commit is visible, and readers need neither file.

    Args:
        store: The store of the table.
        version: The committed version.
        info: The commitInfo of the version.
        actions: The actions of the version, as written.
    """
    try:
        checksum = _write_checksum(store, version, info, actions)
        if version and version % checkpoint_interval(checksum or open_snapshot(store, version)) == 0:
            snapshot = open_snapshot(store, version)
            write_checkpoint(snapshot)
            clean_up_if_enabled(snapshot)
    except Exception as error:  # any kind: the version is visible, so this must not look like a failed commit
        _log.warning("Version %d is committed, but its checksum or checkpoint could not be written: %s", version, error)


def checkpoint_interval(table: Snapshot | VersionChecksum) -> int:
    """Return how many versions apart checkpoints are written.

    Args:
        table: A version of the table, or its checksum.

    Source: PROTOCOL.md#checkpoints; Delta Spark for the default.
    """
    text = table.metadata.configuration.get(CHECKPOINT_INTERVAL, "")
    return max(1, int(text)) if text.isdecimal() else _DEFAULT_INTERVAL


def _write_checksum(
    store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action]
) -> VersionChecksum | None:
    previous = read_checksum(store, version - 1) if version else None
    if version and previous is None:
        return None
    checksum = next_checksum(
        previous, actions, txn_id=str(info["txnId"]), in_commit_timestamp=info.get(IN_COMMIT_TIMESTAMP)
    )
    if checksum is not None:
        write_checksum(store, version, checksum)
    return checksum
