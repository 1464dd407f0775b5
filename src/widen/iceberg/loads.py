"""The record of loads of an Iceberg table: which source files it has loaded, in which snapshot.

The record files have the form that those of Delta tables have; see `widen.log.read.loads`. A table property of the same
commit names the newest one. They are in a folder below the location of the table whose name begins with an underscore:
`remove_orphan_files` of Iceberg leaves such folders alone.

A rollback to an older snapshot keeps the table properties. So loads count only as long as the current snapshot comes
after them; where snapshots between the two have expired, older metadata files tell.

Source: docs/guide/iceberg.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from widen.errors import CorruptLog, CorruptMetadata, FileMissing
from widen.iceberg.snapshot_history import summary_count
from widen.iceberg.snapshots import ancestors_since
from widen.log.read.loads import Load, Record, RecordFolder, record_file
from widen.log.store.log_store import LogStore
from widen.log.write.record_loads import put_record, write_record
from widen.log.write.staged_files import StagedFiles

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from widen.iceberg.catalog import Table

LOADS = "widen.loads"
"""Table property: the number of the newest record file; see `widen.log.read.loads.record_file`."""

FOLDER = "_widen/loads"
"""The folder of the record files, below the location of the table."""

_CHERRY_PICKED = "source-snapshot-id"


def read_loads(table: Table, store: LogStore) -> tuple[Load, ...]:
    """Return the loads whose rows the current snapshot has, oldest first.

    Raises:
        CorruptMetadata: the record of loads is missing or damaged.
    """
    head = _find_head(table.properties, table.location())
    if head is None:
        return ()
    try:
        return _current(table, RecordFolder(store, FOLDER).read_loads(head))
    except CorruptLog as error:
        raise _corrupt(table.location(), f"{error.fields['path']}: {error.fields['reason']}") from error


def record_load(
    before: Table | None, snapshot: Snapshot, store: LogStore, load: Load, staged: StagedFiles
) -> dict[str, str]:
    """Write the record of a load, and return the table property that names it.

    Args:
        before: The table before the commit; None for a new one.
        load: The load; its version and time are replaced.
        staged: Deletes the record if the commit is not made.

    Raises:
        CorruptMetadata: the record of the loads before is damaged.
    """
    folder, number = RecordFolder(store, FOLDER), snapshot.sequence_number or 0
    load = msgspec.structs.replace(load, version=snapshot.snapshot_id, loaded_ms=snapshot.timestamp_ms)
    head = None if before is None else _find_head(before.properties, before.location())
    if before is not None and head is not None and _was_rolled_back(before, folder, head):
        written = put_record(folder, number, Record(loads=(*read_loads(before, store), load)), staged)
    else:
        written = write_record(folder, head, load, number, staged)
    return {LOADS: str(written)}


def _was_rolled_back(table: Table, folder: RecordFolder, head: str) -> bool:
    """Tell whether the newest load of a record does not count any more; those before it may."""
    try:
        newest = folder.read(head).loads[-1:]
    except FileMissing:
        return False
    return _current(table, newest) != newest


def _find_head(properties: Mapping[str, str], location: str) -> str | None:
    """Return the name of the newest record file; None if no load is recorded."""
    number = properties.get(LOADS)
    if number is None:
        return None
    if not number.isdecimal():
        raise _corrupt(location, f"{number!r} is not a number")
    return record_file(int(number))


def _corrupt(location: str, reason: str) -> CorruptMetadata:
    fix = "Load files by name, without new; that begins a new record. Move a table with all its files."
    return CorruptMetadata(location=location, name=LOADS, reason=reason, fix=fix)


def _current(table: Table, loads: Sequence[Load]) -> tuple[Load, ...]:
    """Return the loads before the current snapshot, also those whose snapshots have expired.

    A load that was rolled back and has expired is newer than the snapshots that the rollback went back to.
    """
    metadata = table.metadata
    line = ancestors_since(metadata, table.io, max((load.loaded_ms for load in loads), default=0))
    kept = {each.snapshot_id for each in line}
    kept |= {summary_count(each, _CHERRY_PICKED) for each in line}
    oldest_ms = line[-1].timestamp_ms if line else 0
    expired = [load for load in loads if metadata.snapshot_by_id(load.version) is None]
    kept |= {load.version for load in expired if load.loaded_ms < oldest_ms}
    return tuple(load for load in loads if load.version in kept)
