"""Detect a base version that expired while a change was prepared.

Log cleanup deletes old commits, so their file names are free again. A slow writer could then create such a file, and
its commit would seem to succeed. But readers start from a later checkpoint and would never see it: its rows would be
lost.

Source: PROTOCOL.md#metadata-cleanup, #delta-log-entries
"""

from __future__ import annotations

from widen.errors import BaseExpired, TableAlreadyExists, WidenError
from widen.log.read.log_segment import commit_path, list_log
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore

PAUSE_MS = 60_000
"""After a longer commit, a version of which the store cannot tell whether readers see it counts as unknown: the machine
may have slept in between."""


def find_expired(store: LogStore, base: Snapshot | None) -> BaseExpired | TableAlreadyExists | None:
    """Return why the version after a base must not be written, although its file is absent; None if it may be written.

    Args:
        store: The store of the table.
        base: The version that the change is based on; None for version 0.

    Raises:
        StorageError: the store reported an error.
    """
    if base is None:
        return TableAlreadyExists(location=store.location) if list_log(store).newest >= 0 else None
    base_commits = [file for file in base.segment.commits if file.first == base.version]
    if base_commits and store.exists(
        base_commits[0].entry.path
    ):  # cleanup deletes older commits first, so later ones exist, too
        return None
    listing = list_log(store)
    if listing.newest <= base.version or base.version + 1 in listing.commits:
        return None
    reason = f"version {base.version}, on which the change is based, was cleaned up"
    return BaseExpired(version=listing.newest, location=store.location, reason=reason)


def is_reachable(store: LogStore, version: int, *, if_unknown: bool) -> bool:
    """Tell whether readers see a version that was just written.

    A cleanup may have deleted the commits of other writers, this version among them, after `find_expired`.

    Args:
        store: The store of the table.
        version: The version.
        if_unknown: What to return if the store fails: the version is written, so this must not look like a failed
            commit.
    """
    try:
        return version == 0 or store.exists(commit_path(version - 1)) or list_log(store).newest == version
    except WidenError:
        return if_unknown
