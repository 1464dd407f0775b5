"""RESTORE: what must be committed so that an earlier version is the newest one again.

Source: Delta Spark's RESTORE
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from widen.errors import FileMissing
from widen.log.clock import current_ms
from widen.log.difference import missing, only_in
from widen.log.listing import to_remove
from widen.log.snapshot import Snapshot
from widen.planning.restore import ensure_removable, restored
from widen.protocol.action import Action
from widen.table.opened import state_of

_NAMED = 3
"""How many missing files an error names."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """The way back.

    Args:
        actions: What is to be committed.
        metrics: The numbers that the history shows.
    """

    actions: tuple[Action, ...]
    metrics: dict[str, int]


def restoration(now: Snapshot, then: Snapshot) -> Restoration | None:
    """Return the way from one version back to another, or None if they are the same.

    Args:
        now: The newest version.
        then: The version to go back to.

    Raises:
        FileMissing: files of that version are gone from the store; the error names some.
        AppendOnlyTable: files would have to go, and the table is append-only.
        CorruptLog: a log file is damaged.
        StorageError: the store refused.

    Source: Delta Spark's RESTORE
    """
    if now.version == then.version:
        return None
    added, removed = only_in(then, now), only_in(now, then)
    if removed:
        ensure_removable(state_of(now), now.location)
    if gone := missing(now.store, added):
        more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
        reason = f"version {then.version} needs {', '.join(gone[:_NAMED])}{more}, which are gone"
        raise FileMissing(location=now.location, reason=reason, fix="Restore a later version.")
    now_ms = current_ms()
    files = then.files()
    metrics = {
        "tableSizeAfterRestore": pc.sum(files["size_bytes"]).as_py() or 0,
        "numOfFilesAfterRestore": files.num_rows,
        "numRemovedFiles": len(removed),
        "numRestoredFiles": len(added),
        "removedFilesSize": sum(add.size for add in removed),
        "restoredFilesSize": sum(add.size for add in added),
    }
    head = restored(state_of(now), state_of(then), now.domains, then.domains)
    removes = [to_remove(add, now_ms, data_change=True) for add in removed]
    return Restoration((*head, *removes, *added), metrics)
