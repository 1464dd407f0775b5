"""Checkpoint barriers: an empty commit with a checkpoint, so that readers never need the log before it.

Source: Delta Spark's DROP FEATURE; protocol_rfcs/checkpoint-protection.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from widen.errors import WidenError
from widen.log.read.commit_lines import METADATA, read_non_file_actions
from widen.log.read.log_segment import find_segment, list_log
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_writer import write_checkpoint
from widen.log.write.commit import commit
from widen.log.write.log_cleanup import earliest_reliable_checkpoint
from widen.protocol.actions import Metadata

CHECKPOINT_ATTEMPTS = 3
_log = logging.getLogger(__name__)


def write_barrier_commit(store: LogStore) -> bool:
    """Make an empty commit and a checkpoint of it; return whether the checkpoint exists.

    Raises:
        ContentionError: every commit attempt conflicted, or the outcome of the commit is unknown.
        StorageError: the store rejected the commit.
    """
    version = commit(store, open_snapshot(store), (), "Empty Commit", {}).or_raise().version
    return ensure_checkpoint(store, version)


def ensure_checkpoint(store: LogStore, version: int) -> bool:
    """Write a checkpoint of a version unless it exists, with retries; return whether it exists."""
    for _ in range(CHECKPOINT_ATTEMPTS):
        try:
            if _has_checkpoint(store, version):
                return True
            write_checkpoint(open_snapshot(store, version))
        except WidenError as error:
            _log.warning("Cannot write the checkpoint of version %d: %s", version, error)
    return _has_checkpoint(store, version)


def _has_checkpoint(store: LogStore, version: int) -> bool:
    checkpoint = find_segment(store, version).checkpoint
    return checkpoint is not None and checkpoint.version == version


def history_contains(snapshot: Snapshot, is_trace: Callable[[Metadata], bool]) -> bool:
    """Tell whether the metadata of any readable version, up to this one, contains a trace of a feature.

    Reads the oldest checkpoint from which all later versions can be reconstructed, and every existing commit, also
    those before that checkpoint.

    Source: Delta Spark's DROP FEATURE … TRUNCATE HISTORY
    """
    store, listing = snapshot.store, list_log(snapshot.store)
    earliest = earliest_reliable_checkpoint(listing)
    if is_trace(open_snapshot(store, earliest or min(listing.commits)).metadata):
        return True
    paths = [file.entry.path for file in listing.versions if file.first <= snapshot.version]
    for path, data in zip(paths, store.read_many(paths), strict=True):
        for line in read_non_file_actions(path, data, METADATA):
            if line.meta_data is not None and is_trace(line.meta_data):
                return True
    return False
