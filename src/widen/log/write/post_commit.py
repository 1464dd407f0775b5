"""Post-commit hooks: write the checksum and, if due, a checkpoint; then clean up the log.

A hook that fails does not undo the commit. The checkpoint of a large table takes longer than the commit, so it is
written less often, and in its own thread: the process ends when it is written.

Source: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock, Thread

from widen.log.read.commit_timestamps import IN_COMMIT_TIMESTAMP
from widen.log.read.log_segment import read_last_checkpoint
from widen.log.read.snapshot import open_snapshot
from widen.log.read.version_checksum import next_checksum, read_checksum, write_checksum
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_writer import write_checkpoint
from widen.log.write.log_cleanup import clean_up_if_enabled
from widen.protocol.actions import Action, CommitInfo

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
INTERVALS = ((1_000_000, 100), (100_000, 50), (0, 10))
"""The number of versions between two checkpoints, by the least number of actions in the last one; each is a multiple of
the next."""

SMALL_PART = 1000
"""A commit is small if it has less than this part of the actions in the checkpoint. Readers replay small commits fast,
so only these make checkpoints less frequent."""

MAX_ACTIONS_IN_COMMIT = 50_000
"""From this many actions on, a checkpoint is written in its own thread; fewer take less than a tenth of a second."""

_writing: dict[str, Thread] = {}
_lock = Lock()
_log = logging.getLogger(__name__)


def run_post_commit_hooks(
    store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action], properties: Mapping[str, str]
) -> None:
    """Write the checksum of a version and, if due, a checkpoint; then clean up the log.

    Errors are logged, not raised: the commit is visible, and readers need neither file.
    """
    try:
        _write_checksum(store, version, info, actions)
        text = properties.get(CHECKPOINT_INTERVAL, "")
        # Every longer interval is a multiple of this one, so most commits need not read the size of the last
        # checkpoint.
        if version == 0 or version % (max(1, int(text)) if text.isdecimal() else INTERVALS[-1][1]):
            return
        size = read_last_checkpoint(store).size
        if not text.isdecimal() and version % checkpoint_interval(size, len(actions)):
            return
        if size > MAX_ACTIONS_IN_COMMIT:
            _start_checkpoint(store, version)
        else:
            _write_checkpoint(store, version)
    except Exception as error:  # any kind: the version is visible, so this must not look like a failed commit
        _warn(version, error)


def checkpoint_interval(size: int, commit_size: int) -> int:
    """Return the number of versions between two checkpoints; a property of the table can override it.

    Args:
        size: The number of actions in the last checkpoint.
        commit_size: The number of actions in a commit.

    Source: PROTOCOL.md#checkpoints; Delta Spark for the interval of small tables, 10.
    """
    if commit_size * SMALL_PART >= size:
        return INTERVALS[-1][1]
    return next(interval for least, interval in INTERVALS if size >= least)


def _write_checkpoint(store: LogStore, version: int) -> None:
    snapshot = open_snapshot(store, version)
    write_checkpoint(snapshot)
    clean_up_if_enabled(snapshot)


def _start_checkpoint(store: LogStore, version: int) -> None:
    """Write a checkpoint in a thread, unless one of the table is still being written."""

    def write() -> None:
        try:
            _write_checkpoint(store, version)
        except Exception as error:  # any kind, as above
            _warn(version, error)

    with _lock:
        last = _writing.get(store.location)
        if last is None or not last.is_alive():
            _writing[store.location] = Thread(target=write, name=f"widen-checkpoint-{version}")
            _writing[store.location].start()


def _warn(version: int, error: Exception) -> None:
    _log.warning("Version %d is committed, but its checksum or checkpoint could not be written: %s", version, error)


def _write_checksum(store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action]) -> None:
    previous = read_checksum(store, version - 1) if version else None
    if version and previous is None:
        return
    checksum = next_checksum(
        previous, actions, txn_id=str(info["txnId"]), in_commit_timestamp=info.get(IN_COMMIT_TIMESTAMP)
    )
    if checksum is not None:
        write_checksum(store, version, checksum)
