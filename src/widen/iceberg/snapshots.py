"""Snapshots of an Iceberg table: the current one, or one by id, time, branch or tag, with the schema to read it in.

Source: Iceberg's table specification, "Snapshots", "Snapshot References" and "Point in Time Reads (Time Travel)"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from widen.errors import CorruptFile, InvalidOption, VersionNotFound
from widen.iceberg.metadata_files import ensure_regular, translate_file_errors
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata as TableMetadata
    from pyiceberg.table.snapshots import Snapshot as Snapshot

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


@dataclass(frozen=True)
class ReadPoint:
    """What a read sees.

    Args:
        metadata: The metadata of the table, with the schema to read in as the current one.
        snapshot: The snapshot; None if the table has none yet.
    """

    metadata: TableMetadata
    snapshot: Snapshot | None

    @property
    def schema(self) -> Schema:
        """The schema to read in."""
        return self.metadata.schema()


def find_read_point(metadata: TableMetadata, wanted: SnapshotReference) -> ReadPoint:
    """Return the snapshot that is wanted, with its schema.

    The current snapshot and branches are read in the current schema of the table, everything else in the schema of
    the snapshot.

    Raises:
        InvalidOption: more than one argument is given.
        VersionNotFound: the table does not have the snapshot.

    Source: Spark's queries of Iceberg tables, "Schema selection in time travel queries"
    """
    given = wanted.given
    if len(given) > 1:
        names = " and ".join(name.removesuffix("_ms") for name in given)
        raise InvalidOption(option=names, value=tuple(given.values()), expected="Give only one of them.")
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
    """Yield a snapshot and those before it, newest first, as far as they have not expired.

    Args:
        newest: The snapshot; by default the current one.
    """
    snapshot = newest or metadata.current_snapshot()
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    while snapshot is not None:
        yield snapshot
        by_id.pop(snapshot.snapshot_id, None)  # damaged metadata may say that a snapshot comes before itself
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)


def ancestors_since(metadata: TableMetadata, io: FileIO, time_ms: int) -> list[Snapshot]:
    """Return the current snapshot and those before it, newest first, up to the first one that is not after a time.

    Expired ones are found in older metadata files, as far as these exist.

    Args:
        io: Reads older metadata files.
    """
    line, older_snapshots = list(ancestors(metadata)), dict[int, "Snapshot"]()
    older = [entry.metadata_file for entry in metadata.metadata_log]
    while line and line[-1].timestamp_ms > time_ms:
        # PyIceberg takes the parent from a snapshot when it expires the parent, so older metadata may know better.
        parent = older_snapshots.get(line[-1].snapshot_id, line[-1]).parent_snapshot_id
        if parent in older_snapshots:
            line.append(older_snapshots[parent])
        elif older and line[-1].sequence_number != 1:
            older_snapshots |= _snapshots_in(older.pop(), io)
        else:
            break
    return line


def _snapshots_in(file: str, io: FileIO) -> dict[int, Snapshot]:
    """Return the snapshots in a metadata file; none if it was deleted or is damaged."""
    try:
        with translate_file_errors(file):
            ensure_regular(file)
            metadata = ice_serializers.FromInputFile.table_metadata(io.new_input(file))
    except CorruptFile:
        return {}
    return {each.snapshot_id: each for each in metadata.snapshots}
