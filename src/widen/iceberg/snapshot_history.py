"""The history and the files of an Iceberg table, as its metadata has them.

Source: Iceberg's table specification, "Snapshots" and "Manifests"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from widen.iceberg import properties as names
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.snapshots import ancestors
from widen.model.column_path import Path
from widen.planning.table.column_change import ChangeReason
from widen.planning.table.schema_changes import EVENTS, recorded_reasons

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as DataFile
    from pyiceberg.manifest import ManifestEntry as ManifestEntry
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_COUNTS = ("added-", "deleted-", "removed-", "total-", "changed-")


def snapshot_commits(metadata: TableMetadata, limit: int | None = None) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the id, the time in ms and the description of each snapshot, newest first, as Delta's history has it."""
    for number, snapshot in enumerate(ancestors(metadata)):
        if limit is not None and number >= limit:
            return
        yield snapshot.snapshot_id, snapshot.timestamp_ms, _describe(snapshot)


def _describe(snapshot: Snapshot) -> dict[str, Any]:
    summary, properties = snapshot.summary, summary_of(snapshot)
    if summary is None:
        return {"operation": ""}
    metrics = {key: value for key, value in properties.items() if key.startswith(_COUNTS)}
    parameters = {key: value for key, value in properties.items() if key not in metrics}
    return {"operation": summary.operation.value, "operationParameters": parameters, "operationMetrics": metrics}


def summary_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Return the summary of a snapshot without its operation; empty if it has none."""
    if snapshot is None or snapshot.summary is None:
        return {}
    # PyIceberg does not check that the values are texts.
    return {key: str(value) for key, value in snapshot.summary.additional_properties.items()}


def summary_count(snapshot: Snapshot | None, name: str) -> int:
    """Return a number in the summary of a snapshot; 0 if it is missing or not a number."""
    text = summary_of(snapshot).get(name, "0")
    return int(text) if text.isdecimal() and len(text) <= _LONG_DIGITS else 0


_LONG_DIGITS = 19


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
