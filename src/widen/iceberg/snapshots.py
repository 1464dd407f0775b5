"""Snapshots of an Iceberg table: the current one, or one by id, time, branch or tag, with the schema to read it in.

Source: Iceberg's table specification, "Snapshots", "Snapshot References" and "Point in Time Reads (Time Travel)"
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CorruptFile, CorruptLog, CorruptMetadata, FileMissing, OptionConflict, VersionNotFound
from widen.evolution.schema_changes import EVENTS, ChangeReason, recorded_reasons
from widen.iceberg import properties as names
from widen.iceberg.metadata_files import ensure_regular, live_entries, translate_file_errors
from widen.log.commit_outcome import StagedFiles
from widen.log.load_segments import Load, LoadedFiles, sort_segment, to_loads
from widen.log.loads import RecordFolder, put_record, record_file, write_record
from widen.log.log_store import LogStore
from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as DataFile
    from pyiceberg.manifest import ManifestEntry as ManifestEntry
    from pyiceberg.schema import Schema as Schema
    from pyiceberg.table.metadata import TableMetadata as TableMetadata
    from pyiceberg.table.snapshots import Snapshot as Snapshot

    from widen.iceberg.catalog import Table

ice_serializers = import_lazily("pyiceberg.serializers")


@dataclass(frozen=True)
class SnapshotReference:
    """Which snapshot is wanted: at most one of these, and none for the current one.

    Args:
        version: A snapshot id.
        timestamp_ms: The newest snapshot that was current at that time.
        branch: The newest snapshot of a branch.
    """

    version: int | None = None
    timestamp_ms: int | None = None
    branch: str | None = None
    tag: str | None = None

    @property
    def given(self) -> dict[str, object]:
        """The arguments that are given, by name."""
        return {
            name: value
            for name in ("version", "timestamp_ms", "branch", "tag")
            if (value := getattr(self, name)) is not None
        }


MAIN_BRANCH = "main"
"""The name of the branch that a table without branches has."""


@dataclass(frozen=True)
class ReadPoint:
    """What a read sees.

    Args:
        metadata: The metadata of the table, with the schema to read in as the current one.
    """

    metadata: TableMetadata
    snapshot: Snapshot | None

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()


def find_read_point(metadata: TableMetadata, wanted: SnapshotReference) -> ReadPoint:
    """Return the snapshot that is wanted, with its schema.

    The current snapshot and branches are read in the current schema of the table, everything else in the schema of
    the snapshot.

    Raises:
        VersionNotFound: the table does not have the snapshot.

    Source: Spark's queries of Iceberg tables, "Schema selection in time travel queries"
    """
    given = wanted.given
    if len(given) > 1:
        first, *others = (name.removesuffix("_ms") for name in given)
        raise OptionConflict(option=first, other_option=" and ".join(others), expected="Give only one of them.")
    if not given:
        return ReadPoint(metadata, metadata.current_snapshot())
    if wanted.branch is not None:
        return ReadPoint(metadata, _find_named(metadata, wanted.branch, "branch"))
    if wanted.tag is not None:
        snapshot = _find_named(metadata, wanted.tag, "tag")
    elif wanted.version is not None:
        snapshot = _by_id(metadata, wanted.version, f"the snapshot {wanted.version}")
    else:
        snapshot = _as_of(metadata, wanted.timestamp_ms or 0)
    if snapshot.schema_id is None:
        return ReadPoint(metadata, snapshot)
    if metadata.schema_by_id(snapshot.schema_id) is None:
        raise VersionNotFound(
            location=metadata.location,
            wanted=f"the snapshot {snapshot.snapshot_id}",
            reason=f"the table does not have its schema {snapshot.schema_id}",
            fix="Read a newer snapshot.",
        )
    return ReadPoint(metadata.model_copy(update={"current_schema_id": snapshot.schema_id}), snapshot)


def _by_id(metadata: TableMetadata, snapshot_id: int, wanted: str) -> Snapshot:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        fix = "The history of the table lists its snapshots; expired ones cannot be read."
        raise VersionNotFound(
            location=metadata.location, wanted=wanted, reason="it has expired or never existed", fix=fix
        )
    return snapshot


def _find_named(metadata: TableMetadata, name: str, kind: str) -> Snapshot:
    reference = metadata.refs.get(name)
    if reference is None or reference.snapshot_ref_type.value != kind:
        names = ", ".join(sorted(key for key, ref in metadata.refs.items() if ref.snapshot_ref_type.value == kind))
        raise VersionNotFound(
            location=metadata.location,
            wanted=f"the {kind} {name}",
            reason=f"it has {f'only {names}' if names else f'no {kind}'}",
            fix="Check the name.",
        )
    return _by_id(metadata, reference.snapshot_id, f"the {kind} {name}")


def _as_of(metadata: TableMetadata, timestamp_ms: int) -> Snapshot:
    """Return the snapshot that was current at a time, by the log of snapshots, which also records rollbacks."""
    earlier = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= timestamp_ms]
    moment = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc).isoformat()
    if not earlier:
        raise VersionNotFound(
            location=metadata.location,
            wanted=f"a snapshot of {moment}",
            reason="all its snapshots are newer, or have expired",
            fix="Read a later time.",
        )
    return _by_id(metadata, earlier[-1].snapshot_id, f"the snapshot of {moment}")


def ancestors(metadata: TableMetadata, newest: Snapshot | None = None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors that have not expired, newest first."""
    snapshot = newest or metadata.current_snapshot()
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    while snapshot is not None:
        yield snapshot
        by_id.pop(snapshot.snapshot_id, None)  # damaged metadata may say that a snapshot comes before itself
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)


class OlderSnapshots:
    """The snapshots in the older metadata files of a table, which also have those that have expired since.

    Args:
        io: Reads the files, newest first, each when it is needed.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._files, self._io = [entry.metadata_file for entry in metadata.metadata_log], io
        self.by_id: dict[int, Snapshot] = {}

    def read_more(self) -> bool:
        """Read the next file; return False if there is no next file."""
        if not self._files:
            return False
        self.by_id |= _snapshots_in(self._files.pop(), self._io)
        return True


def all_ancestors(metadata: TableMetadata, older: OlderSnapshots, newest: Snapshot | None = None) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it, newest first, also expired ones that older metadata files have."""
    last, seen = None, set[int]()
    for last in ancestors(metadata, newest):
        seen.add(last.snapshot_id)
        yield last
    while last is not None:
        # PyIceberg takes the parent from a snapshot when it expires the parent, so older metadata may know better.
        parent = older.by_id.get(last.snapshot_id, last).parent_snapshot_id
        if parent in older.by_id and parent not in seen:
            last = older.by_id[parent]
            seen.add(last.snapshot_id)
            yield last
        elif last.sequence_number == 1 or not older.read_more():
            return


def _snapshots_in(file: str, io: FileIO) -> dict[int, Snapshot]:
    """Return the snapshots in a metadata file; none if it was deleted or is damaged."""
    metadata = _read_older(file, io)
    return {} if metadata is None else {each.snapshot_id: each for each in metadata.snapshots}


def _read_older(file: str, io: FileIO) -> TableMetadata | None:
    """Return the content of a metadata file; None if it was deleted or is damaged."""
    try:
        with translate_file_errors(file):
            ensure_regular(file)
            metadata: TableMetadata = ice_serializers.FromInputFile.table_metadata(io.new_input(file))
    except CorruptFile:
        return None
    return metadata


def find_sources(metadata: TableMetadata, io: FileIO, location: str) -> tuple[Mapping[int, names.ColumnSource], str]:
    """Return the source field of each column, by field id, and a message if a client has removed this record.

    The record is then taken from the newest metadata file that has it, since a column keeps its field id.
    """
    if names.SOURCES in metadata.properties or not any(_is_of_load(each) for each in metadata.snapshots):
        return names.read_sources(metadata.properties, location), ""
    for entry in reversed(metadata.metadata_log):
        older = _read_older(entry.metadata_file, io)
        if older is not None and names.SOURCES in older.properties:
            return names.read_sources(older.properties, location), _SOURCES_FOUND
    return {}, _SOURCES_LOST


_SOURCES_FOUND = f"A client removed the property {names.SOURCES}. It is taken from older metadata of the table."
_SOURCES_LOST = (
    f"A client removed the property {names.SOURCES}, and no older metadata has it. "
    "Fields are matched with columns by name."
)


def _is_of_load(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and names.MODE in snapshot.summary.additional_properties


# The history and the files of an Iceberg table, as its metadata has them.
#
# Source: Iceberg's table specification, "Snapshots" and "Manifests"


_COUNTS = ("added-", "deleted-", "removed-", "total-", "changed-")


def snapshot_commits(
    metadata: TableMetadata, limit: int | None = None, newest: Snapshot | None = None, store: LogStore | None = None
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the id, the time in ms and the description of each snapshot, newest first, as Delta's history has it.

    Args:
        store: The store of the table, which has the events that a summary is too small for.
    """
    for number, snapshot in enumerate(ancestors(metadata, newest)):
        if limit is not None and number >= limit:
            return
        yield snapshot.snapshot_id, snapshot.timestamp_ms, _describe(snapshot, store)


def stream_marks_at(metadata: TableMetadata, snapshot_id: int, newest: Snapshot | None = None) -> dict[str, int | None]:
    """Return the last intervals of streams, by their ids, from an earlier snapshot; None without one.

    Only those are returned that later snapshots have changed. The numbers of a stream grow, so all before the first one
    that is undone are in the table.
    """
    kept = {each.snapshot_id for each in ancestors(metadata, metadata.snapshot_by_id(snapshot_id))}
    undone: dict[str, int] = {}
    for snapshot in ancestors(metadata, newest):
        if snapshot.snapshot_id in kept:
            break
        summary = summary_of(snapshot)
        if names.APP_ID in summary:
            undone[summary[names.APP_ID]] = summary_count(snapshot, names.INTERVAL)
    return {app_id: first - 1 if first > 0 else None for app_id, first in undone.items()}


def find_last_interval(table: Table, app_id: str, branch: str | None = None) -> int | None:
    """Return the number of the last interval of a stream that a branch has; None if it has no interval.

    The interval belongs to a snapshot, and counts if that is an ancestor of the newest one: another client may move a
    branch back, or to what a second branch has loaded, and leaves the table properties as they are. A property counts
    for snapshots that have expired. Older metadata files show whether they were ancestors.
    """
    metadata = table.metadata
    newest = find_read_point(metadata, SnapshotReference(branch=branch)).snapshot
    recorded = {each: names.last_interval(metadata.properties, app_id, each) for each in {None, branch}}
    if newest is None:
        return recorded[None]
    older, line = OlderSnapshots(metadata, table.io), set[int]()
    wanted = {number for number in recorded.values() if number is not None}
    for snapshot in all_ancestors(metadata, older, newest) if wanted else ancestors(metadata, newest):
        line.add(snapshot.snapshot_id)
        if _app_of(snapshot) == app_id:
            return summary_count(snapshot, names.INTERVAL)

    def others() -> Iterator[Snapshot]:
        known = {**older.by_id, **{each.snapshot_id: each for each in metadata.snapshots}}
        return (each for number, each in known.items() if number not in line and _app_of(each) == app_id)

    while wanted.difference(summary_count(each, names.INTERVAL) for each in others()) and older.read_more():
        pass
    undone: dict[str | None, list[int]] = {}
    for snapshot in others():
        own = summary_of(snapshot).get(names.BRANCH)
        undone.setdefault(own, []).append(summary_count(snapshot, names.INTERVAL))
    found = []
    for each, number in recorded.items():
        if number is None:
            continue
        if number in undone.get(each, ()):
            # The numbers of a stream grow, so all before the first one that is undone are in the table.
            number = min(undone[each]) - 1
        found.append(number)
    return max((number for number in found if number >= 0), default=None)


def _app_of(snapshot: Snapshot) -> str | None:
    return summary_of(snapshot).get(names.APP_ID)


def marks_of_branch(table: Table, branch: str) -> dict[str, int]:
    """Return the last intervals of streams that only a branch has, not the main branch, by the ids of streams."""
    prefix = names.branch_prefix(branch)
    own = {key.removeprefix(prefix) for key in table.properties if key.startswith(prefix)}
    found = ((app_id, find_last_interval(table, app_id, branch)) for app_id in own)
    return {app_id: number for app_id, number in found if number is not None}


def _describe(snapshot: Snapshot, store: LogStore | None) -> dict[str, Any]:
    summary, properties = snapshot.summary, dict(summary_of(snapshot))
    if names.EVENTS in properties:
        properties[names.EVENTS] = read_events(snapshot, store)
    if summary is None:
        return {"operation": ""}
    metrics = {key: value for key, value in properties.items() if key.startswith(_COUNTS)}
    parameters = {key: value for key, value in properties.items() if key not in metrics}
    return {"operation": summary.operation.value, "operationParameters": parameters, "operationMetrics": metrics}


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Return the summary of a snapshot without its operation; empty without a summary."""
    if snapshot is None or snapshot.summary is None:
        return {}
    # PyIceberg does not check that the values are texts.
    return {key: str(value) for key, value in snapshot.summary.additional_properties.items()}


def summary_count(snapshot: Snapshot | None, name: str) -> int:
    """Return a number in the summary of a snapshot; 0 if it is missing or not a number."""
    text = summary_of(snapshot).get(name, "0")
    return int(text) if text.isdecimal() and len(text) <= _LONG_DIGITS else 0


_LONG_DIGITS = 19


def event_reasons(snapshot: Snapshot, store: LogStore | None) -> list[tuple[Path, ChangeReason]]:
    """Return why columns changed in the interval of a snapshot.

    Args:
        store: The store of the table; without it, and if it lacks the file, the summary says a part.
    """
    return recorded_reasons({"operationParameters": {EVENTS: read_events(snapshot, store)}})


def read_events(snapshot: Snapshot, store: LogStore | None) -> str:
    """Return the events of the interval of a snapshot as JSON; a long list is in a file of its own.

    Raises:
        CorruptFile: the file is damaged.
    """
    summary = summary_of(snapshot)
    path, part = summary.get(names.EVENT_FILE), summary.get(names.EVENTS, "")
    if path is None or store is None:
        return part
    try:
        return zlib.decompress(store.read(path)).decode()
    except FileMissing:  # the table was copied without it
        return part
    except (zlib.error, UnicodeDecodeError) as error:
        raise CorruptFile(path=path, reason=str(error), fix="Delete the file; the summary has a part of it.") from error


def write_events(store: LogStore, events: list[Any], staged: StagedFiles) -> dict[str, str]:
    """Write a list of events that a summary is too small for, and return the entry of the summary that names it."""
    path = f"{EVENTS_FOLDER}/{uuid4().hex}.json.z"
    store.put(path, names.encode_events(events))
    staged.add_undo(lambda: store.delete([path]))
    return {names.EVENT_FILE: path}


EVENTS_FOLDER = "_widen/events"
"""The folder of the files with events, below the location of the table; see `FOLDER`."""


def reasons_between(
    metadata: TableMetadata, old: Snapshot | None, new: Snapshot | None, store: LogStore | None
) -> Iterator[tuple[Path, ChangeReason]]:
    """Yield why columns changed after a snapshot until a later one, oldest first; nothing if it is not later.

    Args:
        old: The snapshot; None for the time before the first one.
    """
    line = [] if new is None else list(ancestors(metadata, new))
    ids = [each.snapshot_id for each in line]
    if old is not None and old.snapshot_id not in ids:
        return
    after = line if old is None else line[: ids.index(old.snapshot_id)]
    for snapshot in reversed(after):
        yield from event_reasons(snapshot, store)


FILE_COLUMNS = ("path", "partition", "rows", "size_bytes", "spec_id", "sequence")
"""The columns of `list_snapshot_files`."""


def list_snapshot_files(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> Iterator[tuple[Any, ...]]:
    """Yield the data files of a snapshot, with the values of `FILE_COLUMNS`; the partition is a text like ``day=5``."""
    for entry in live_entries(metadata, io, snapshot):
        file = entry.data_file
        partition = _partition_text(metadata, file)
        size_bytes, sequence = file.file_size_in_bytes, entry.sequence_number or 0
        yield file.file_path, partition, file.record_count, size_bytes, file.spec_id, sequence


def _partition_text(metadata: TableMetadata, file: DataFile) -> str:
    spec = metadata.specs()[file.spec_id]
    try:
        return str(spec.partition_to_path(file.partition, metadata.schema())) if spec.fields else ""
    except (OverflowError, ValueError, TypeError):  # PyIceberg writes days as dates of Python: none before the year 1
        return "/".join(f"{field.name}={file.partition[at]}" for at, field in enumerate(spec.fields))


# The record of loads of an Iceberg table: the loaded source files and their snapshots.
#
# The record files have the same form as for Delta tables; see `widen.log.loads`. A table property of the same commit
# names the newest one. They are in a folder below the location of the table. Its name begins with an underscore,
# because Iceberg's `remove_orphan_files` leaves such folders alone.
#
# A rollback to an older snapshot keeps the table properties, and a branch shares them with the others. So loads count
# only for a snapshot that comes after them; where snapshots between the two have expired, older metadata files tell.
#
# Source: docs/guide/iceberg.md


LOADS = "widen.loads"
"""Table property: the number of the newest record file; see `widen.log.loads.record_file`."""

FOLDER = "_widen/loads"
"""The folder of the record files, below the location of the table."""

_CHERRY_PICKED = "source-snapshot-id"


def read_snapshot_loads(table: Table, store: LogStore, newest: Snapshot | None = None) -> tuple[Load, ...]:
    """Return the loads whose rows a snapshot has, oldest first."""
    folder = RecordFolder(store, FOLDER)
    with _naming_property(table) as head:
        loads = () if head is None else folder.read_loads(head)
        line = _Lineage.of(table, max((load.loaded_ms for load in loads), default=0), newest)
        again = () if head is None else to_loads(folder.recover(folder.read(head), line.kept.__contains__)[0])
    counted = (load for load in loads if line.has(load.version, load.loaded_ms))
    return tuple(sorted((*counted, *again), key=lambda load: load.loaded_ms))


def open_snapshot_loads(table: Table, store: LogStore, newest: Snapshot | None = None) -> LoadedFiles:
    """Return which files a snapshot has the rows of."""
    with _naming_property(table) as head:
        if head is None:
            return LoadedFiles()
        folder = RecordFolder(store, FOLDER)
        loaded = folder.open_loads(head)
        line = _Lineage.of(table, loaded.loaded_ms, newest)
        again, _ = folder.recover(folder.read(head), line.kept.__contains__)
    if (last := loaded.newest_load) is not None and not line.has(*last):
        # An audit may have been one of the loads that a rollback has undone.
        loaded.audits = replace(loaded.audits, times={})
    return replace(loaded, held=pa.concat_tables([loaded.held, again]), counts=line.counts)


@contextmanager
def _naming_property(table: Table) -> Iterator[str | None]:
    """Yield the name of the newest record file; an error names the property."""
    try:
        yield _find_head(table.properties, table.location())
    except CorruptLog as error:
        reason, fix = f"{error.fields['path']}: {error.fields['reason']}", str(error.fields["fix"])
        raise CorruptMetadata(location=table.location(), name=LOADS, reason=reason, fix=fix) from error


def record_load(
    before: Table | None, snapshot: Snapshot, store: LogStore, load: Load, staged: StagedFiles
) -> dict[str, str]:
    """Write the record of a load, and return the table property that names it."""
    folder, number = RecordFolder(store, FOLDER), snapshot.sequence_number or 0
    load = msgspec.structs.replace(load, version=snapshot.snapshot_id, loaded_ms=snapshot.timestamp_ms)
    head = None if before is None else _find_head(before.properties, before.location())
    if before is not None and head is not None and _was_rolled_back(before, folder, head):
        with _naming_property(before):
            line = _Lineage.of_branches(before, folder.open_loads(head).loaded_ms)
            record = folder.filtered(head, line.counts, number, staged)
            again, others = folder.recover(record, line.keeps)
            if again.num_rows:
                segments = folder.add_rows(record.segments, sort_segment(again), number, staged)
                record = msgspec.structs.replace(record, segments=segments, replaced=others)
            head = record_file(put_record(folder, number, record, staged))
    written = write_record(folder, head, load, number, staged)
    return {LOADS: str(written)}


def _was_rolled_back(table: Table, folder: RecordFolder, head: str) -> bool:
    """Return whether the newest load of a record does not count any more; those before it may."""
    try:
        loaded = folder.open_loads(head)
    except CorruptLog:
        return False
    newest = loaded.newest_load
    return newest is not None and not _Lineage.of_branches(table, loaded.loaded_ms).has(*newest)


def _find_head(properties: Mapping[str, str], location: str) -> str | None:
    """Return the name of the newest record file; None if no load is recorded."""
    number = properties.get(LOADS)
    if number is None:
        return None
    if not number.isdecimal():
        raise _corrupt(location, f"{number!r} is not a number")
    return record_file(int(number))


def _corrupt(location: str, reason: str) -> CorruptMetadata:
    fix = "Load files by name, without new; that starts a new record. If you move a table, move all its files."
    return CorruptMetadata(location=location, name=LOADS, reason=reason, fix=fix)


@dataclass(frozen=True)
class _Lineage:
    """The snapshots before some snapshot, which tell whether a load counts, also where its snapshot has expired.

    A load that was rolled back and has expired is newer than the snapshots that the rollback went back to.

    Args:
        kept: The ids of the snapshots, and of those whose files they have picked.
        known: The ids of all snapshots that have not expired.
        oldest_ms: The time of the oldest one; a load that has expired counts if it is older.
    """

    kept: frozenset[int]
    known: frozenset[int]
    oldest_ms: int

    @classmethod
    def of(cls, table: Table, newest_ms: int, newest: Snapshot | None = None) -> _Lineage:
        """Return the line of a snapshot."""
        metadata = table.metadata
        line = list(ancestors(metadata, newest))
        if line and line[-1].timestamp_ms > newest_ms:
            every = all_ancestors(metadata, OlderSnapshots(metadata, table.io), newest)
            for expired_one in islice(every, len(line), None):
                line.append(expired_one)
                if expired_one.timestamp_ms <= newest_ms:
                    break
        kept = {each.snapshot_id for each in line} | {summary_count(each, _CHERRY_PICKED) for each in line}
        known = frozenset(each.snapshot_id for each in metadata.snapshots)
        return cls(frozenset(filter(None, kept)), known, line[-1].timestamp_ms if line else 0)

    @classmethod
    def of_branches(cls, table: Table, newest_ms: int) -> _Lineages:
        """Return the lines of all branches and tags: one record serves all of them, since they may move."""
        metadata = table.metadata
        heads = {each.snapshot_id for each in metadata.refs.values()} | {metadata.current_snapshot_id}
        found = [metadata.snapshot_by_id(head) for head in heads if head is not None]
        return _Lineages([cls.of(table, newest_ms, each) for each in found if each is not None])

    def has(self, version: int, loaded_ms: int) -> bool:
        """Return whether a load counts."""
        return version in self.kept or (version not in self.known and loaded_ms < self.oldest_ms)

    def counts(self, rows: pa.Table) -> pa.Array:
        """Return which rows of a record count; see `widen.log.load_segments.RowFilter`."""
        return _filter_rows(self.has, rows)


@dataclass(frozen=True)
class _Lineages:
    """Several lines: a load counts that one of them has."""

    lines: Sequence[_Lineage]

    def keeps(self, version: int) -> bool:
        """Return whether one of them has a snapshot, also where it has expired."""
        return any(version in line.kept for line in self.lines)

    def has(self, version: int, loaded_ms: int) -> bool:
        """Return whether a load counts."""
        return any(line.has(version, loaded_ms) for line in self.lines)

    def counts(self, rows: pa.Table) -> pa.Array:
        """Return which rows of a record count."""
        return _filter_rows(self.has, rows)


def _filter_rows(has: Callable[[int, int], bool], rows: pa.Table) -> pa.Array:
    """Ask once for each load: each row group has few loads."""
    loads = rows.group_by(["version", "loaded_ms"]).aggregate([])
    kept = [has(*load) for load in zip(loads["version"].to_pylist(), loads["loaded_ms"].to_pylist(), strict=True)]
    return pc.is_in(rows["version"], value_set=loads["version"].filter(pa.array(kept, pa.bool_())).combine_chunks())
