"""RESTORE: plan the commit that restores an earlier version.

Source: Delta Spark's RESTORE
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from widen.errors import FileMissing
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.file_list import to_remove
from widen.log.read.snapshot import Snapshot
from widen.log.read.version_diff import files_only_in, missing_files
from widen.log.write.record_loads import restore_loads
from widen.planning.alter.restore_actions import ensure_removable, restore_actions
from widen.planning.table.table_state import to_table_state
from widen.protocol.actions import Action

_NAMED = 3
"""The number of missing files that an error names."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The commit that restores a version."""

    actions: tuple[Action, ...]
    metrics: dict[str, int]


def plan_restore(now: Snapshot, then: Snapshot) -> RestorePlan | None:
    """Return the plan to restore a version, or None if it is the newest version.

    Args:
        then: The version to restore.

    Raises:
        FileMissing: files of that version no longer exist; the error names some.
        AppendOnlyTable: files would be removed, and the table is append-only.

    Source: Delta Spark's RESTORE
    """
    if now.version == then.version:
        return None
    added, removed = files_only_in(then, now), files_only_in(now, then)
    if removed:
        ensure_removable(to_table_state(now), now.location)
    if missing := missing_files(now.store, added):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        verb = "is" if len(missing) == 1 else "are"
        reason = f"version {then.version} needs {', '.join(missing[:_NAMED])}{more}, which {verb} gone"
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
    head = restore_actions(to_table_state(now), to_table_state(then), now.domains, then.domains)
    removes = [to_remove(add, now_ms, data_change=True) for add in removed]
    loads = restore_loads(now, then, now.version + 1)
    return RestorePlan((*head, *loads, *removes, *added), metrics)
