"""Versions that expire while a change is being made: the number after them is free again, and must not be taken.

A cleanup deletes old commits. A commit with the number of a deleted one could be written, but no reader would find it:
newer versions begin with a later checkpoint.

Source: PROTOCOL.md#metadata-cleanup, #delta-log-entries
"""

from __future__ import annotations

from widen.errors import BaseExpired, TableAlreadyExists, WidenError
from widen.log.read.log_segment import commit_path, list_log
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore

PAUSE_MS = 60_000
"""A commit that took longer looks again whether the versions before it have expired: its machine may have slept."""


def find_expired(store: LogStore, base: Snapshot | None) -> BaseExpired | TableAlreadyExists | None:
    """Return why the version after a base must not be written although it is absent, or None if it may be.

    Args:
        store: Of the table.
        base: The version that a change was made for; None if it makes version 0.

    Raises:
        StorageError: the store refused.
    """
    if base is None:
        return TableAlreadyExists(location=store.location) if list_log(store).newest >= 0 else None
    own = [file for file in base.segment.commits if file.first == base.version]
    if own and store.exists(own[0].entry.path):  # a cleanup deletes older commits first
        return None
    listing = list_log(store)
    if listing.newest <= base.version or base.version + 1 in listing.commits:
        return None
    reason = f"version {base.version}, which the change was made for, was cleaned up"
    return BaseExpired(version=listing.newest, location=store.location, reason=reason)


def is_reachable(store: LogStore, version: int) -> bool:
    """Tell whether readers certainly find a version that was just written."""
    try:
        return version == 0 or store.exists(commit_path(version - 1)) or list_log(store).newest == version
    except WidenError:  # the version is written, so this must not look like a failed commit
        return False
