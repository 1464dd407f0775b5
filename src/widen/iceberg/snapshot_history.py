"""The history and the files of an Iceberg table, as its metadata has them.

Source: Iceberg's table specification, "Snapshots" and "Manifests"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from widen.iceberg import properties as names
from widen.iceberg.snapshots import ancestors
from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.planning.table.column_change import ChangeReason
from widen.planning.table.schema_changes import EVENTS, recorded_reasons

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as DataFile
    from pyiceberg.manifest import ManifestEntry as ManifestEntry
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

ice_manifest = import_lazily("pyiceberg.manifest")

_COUNTS = ("added-", "deleted-", "removed-", "total-", "changed-")


def snapshot_commits(metadata: TableMetadata, limit: int | None = None) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the id, the time in ms and the description of each snapshot, newest first, as Delta's history has it."""
    for number, snapshot in enumerate(ancestors(metadata)):
        if limit is not None and number >= limit:
            return
        yield snapshot.snapshot_id, snapshot.timestamp_ms, _describe(snapshot)


def _describe(snapshot: Snapshot) -> dict[str, Any]:
    summary = snapshot.summary
    if summary is None:
        return {"operation": ""}
    properties: Mapping[str, str] = summary.additional_properties
    metrics = {key: value for key, value in properties.items() if key.startswith(_COUNTS)}
    parameters = {key: value for key, value in properties.items() if key not in metrics}
    return {"operation": summary.operation.value, "operationParameters": parameters, "operationMetrics": metrics}


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Return the summary of a snapshot without its operation; empty if it has none."""
    return snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}


def event_reasons(snapshot: Snapshot) -> list[tuple[Path, ChangeReason]]:
    """Return why columns changed in the interval of a snapshot, as far as its summary says so."""
    return recorded_reasons({"operationParameters": {EVENTS: summary_of(snapshot).get(names.EVENTS)}})


def reasons_between(
    metadata: TableMetadata, old: Snapshot | None, new: Snapshot | None
) -> Iterator[tuple[Path, ChangeReason]]:
    """Yield why columns changed after a snapshot until a later one, oldest first; nothing if it is not later.

    Args:
        old: The snapshot; None for the time before the first one.
        new: The later snapshot; None for no snapshot.
    """
    line = [] if new is None else list(ancestors(metadata, new))
    ids = [each.snapshot_id for each in line]
    if old is not None and old.snapshot_id not in ids:
        return
    after = line if old is None else line[: ids.index(old.snapshot_id)]
    for snapshot in reversed(after):
        yield from event_reasons(snapshot)


FILE_COLUMNS = ("path", "partition", "rows", "size_bytes", "spec_id", "sequence")
"""The columns of `list_files`."""


def list_files(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> Iterator[tuple[Any, ...]]:
    """Yield the data files of a snapshot, with the values of `FILE_COLUMNS`; the partition is a text like ``day=5``.

    Args:
        snapshot: The snapshot; None yields nothing.
    """
    for entry in live_entries(io, snapshot):
        file = entry.data_file
        partition = _partition_text(metadata, file)
        size_bytes, sequence = file.file_size_in_bytes, entry.sequence_number or 0
        yield file.file_path, partition, file.record_count, size_bytes, file.spec_id, sequence


def live_entries(io: FileIO, snapshot: Snapshot | None) -> Iterator[ManifestEntry]:
    """Yield the manifest entries of the data files of a snapshot.

    Args:
        snapshot: The snapshot; None yields nothing.
    """
    for manifest in snapshot.manifests(io) if snapshot is not None else ():
        if manifest.content == ice_manifest.ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(io, discard_deleted=True)


def _partition_text(metadata: TableMetadata, file: DataFile) -> str:
    spec = metadata.specs()[file.spec_id]
    try:
        return str(spec.partition_to_path(file.partition, metadata.schema())) if spec.fields else ""
    except OverflowError:  # PyIceberg writes a day as a date of Python, which has none before the year 1
        return "/".join(f"{field.name}={file.partition[at]}" for at, field in enumerate(spec.fields))
