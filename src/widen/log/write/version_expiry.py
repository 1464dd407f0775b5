"""Detect a base version that expired while a change was prepared.

Log cleanup deletes old commits, so their file names are free again. A slow writer could then create such a file, and
its commit would seem to succeed. But readers start from a later checkpoint and would never see it: its rows would be
lost.

Source: PROTOCOL.md#metadata-cleanup, #delta-log-entries
"""

from __future__ import annotations

from widen.errors import BaseExpired, TableAlreadyExists, WidenError
from widen.log.read.log_segment import list_log
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore

PAUSE_MS = 60_000
"""If a commit takes longer and the store cannot tell whether readers see it, its outcome counts as unknown: the machine
may have slept in between."""


def find_expired(store: LogStore, base: Snapshot | None) -> BaseExpired | TableAlreadyExists | None:
    """Return why a change cannot be committed on a base; None if every commit since the base is there.

    Args:
        base: The version that the change is based on; None for version 0.
    """
    if base is None:
        return TableAlreadyExists(location=store.location) if list_log(store).newest >= 0 else None
    if _has_base(store, base):
        return None
    # The commit after the base proves nothing: another writer with an old base may have written it again.
    newest = list_log(store).newest
    if newest <= base.version:
        return None
    reason = f"version {base.version}, on which the change is based, was cleaned up"
    return BaseExpired(version=newest, location=store.location, reason=reason)


def is_reachable(store: LogStore, base: Snapshot | None, version: int, *, if_unknown: bool) -> bool:
    """Tell whether readers see a version that was just written.

    A cleanup may have deleted the commits of other writers, this version among them, after `find_expired`. Before it
    frees the name of a version it makes sure of a checkpoint of a later one, so the newest version is seen. An older
    one is seen if the commit of its base is still there: a cleanup deletes that one first. The commit before proves
    nothing: another writer with an old base may have written it again.

    Args:
        base: The version that the change is based on.
        if_unknown: What to return if the store fails: the version is written, so this must not look like a failed
            commit.
    """
    try:
        return base is None or _has_base(store, base) or list_log(store).newest == version
    except WidenError:
        return if_unknown


def _has_base(store: LogStore, base: Snapshot) -> bool:
    """Tell whether the commit of a base is the file that was there when the base was opened.

    Then no later commit was deleted: a cleanup deletes them one after the other, oldest first. That holds for Delta
    Lake and Widen; clients that delete many files in one request of an object store give no order.
    """
    commits = base.segment.commits[-1:]
    if not commits or commits[0].first != base.version:
        return False
    listed, current = commits[0].entry, store.find(commits[0].entry.path)
    # Some stores return the time of a single file without milliseconds.
    return (
        current is not None
        and current.size_bytes == listed.size_bytes
        and abs(current.modified_ms - listed.modified_ms) < 1000
    )
