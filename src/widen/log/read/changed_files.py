"""Which rows of which files a version inserted, updated or deleted.

Source: PROTOCOL.md#add-cdc-file; Delta Spark's change data feed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from widen.log.read.version_changes import VersionChanges
from widen.protocol.actions import Add, AddCdc, Remove

INSERT, DELETE = "insert", "delete"


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """A file with rows that one version changed in one way.

    Args:
        change_type: How the rows changed; None if each row of the file says so.
        without: The same file with only the unchanged rows, if there are any.
    """

    version: int
    time_ms: int
    change_type: str | None
    file: Add
    without: Add | None = None


def change_slices(changes: VersionChanges) -> Iterator[ChangeSlice]:
    """Yield the slices of a version, in the order of its log entry.

    If the version has change data files, they have all its changes. Otherwise these follow from its data files.

    Source: PROTOCOL.md#reader-requirements-for-addcdcfile
    """
    version, time_ms = changes.version, changes.time_ms
    if changes.change_files:
        yield from (ChangeSlice(version, time_ms, None, _as_add(cdc)) for cdc in changes.change_files)
        return
    before = {remove.path: _as_file(remove) for remove in changes.removed}
    after = {add.path: add for add in changes.added}
    for add in changes.added:
        yield ChangeSlice(version, time_ms, INSERT, add, before.get(add.path))
    for path, file in before.items():
        yield ChangeSlice(version, time_ms, DELETE, file, after.get(path))


def _as_file(remove: Remove) -> Add:
    return Add(
        path=remove.path,
        partition_values=remove.partition_values or {},
        size=remove.size or 0,
        modification_time=0,
        data_change=False,
        deletion_vector=remove.deletion_vector,
    )


def _as_add(cdc: AddCdc) -> Add:
    values = cdc.partition_values
    return Add(path=cdc.path, partition_values=values, size=cdc.size, modification_time=0, data_change=False)
