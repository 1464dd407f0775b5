"""The files of a snapshot that a scan reads, and the delete files that apply to them; read from its manifests.

PyIceberg evaluates the row filter on manifests and data files. Which delete file applies to which data file is decided
here, because PyIceberg refuses equality deletes and does not read which file a deletion vector is for.

Source: Iceberg's table specification, "Scan Planning"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

from widen.errors import UnsupportedFeatureForRead
from widen.iceberg.metadata_files import read_manifests, translate_file_errors
from widen.iceberg.overflowed_truncation import overflowing_truncation
from widen.iceberg.partitions import is_unpartitioned, rounded_sources
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

ice_manifest = import_lazily("pyiceberg.manifest")
ice_table = import_lazily("pyiceberg.table")
ice_transforms = import_lazily("pyiceberg.transforms")


class DeleteKind(str, Enum):
    """How a delete file says which rows are deleted."""

    POSITIONS = "positions"
    VECTORS = "vectors"
    EQUALITY = "equality"


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A data file.

    Args:
        path: Its location, as the manifest has it.
        rows: The number of its rows, deleted ones included.
        partition: A text that is equal for all files of one partition and one spec.
        values: The values of identity partition fields by the id of their source column.
    """

    path: str
    size_bytes: int
    rows: int
    sequence: int
    partition: str
    values: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file.

    Args:
        kind: How it says which rows are deleted.
        partition: The partition that it applies to, as for `ScannedFile`; None for every partition.
        rows: The number of its rows, or of the rows that its vectors delete.
        equality_ids: The ids of the columns whose values name the deleted rows.
        data_file: The only data file that it applies to, if the manifest says so.
    """

    kind: DeleteKind
    path: str
    size_bytes: int
    sequence: int
    partition: str | None
    rows: int
    equality_ids: tuple[int, ...] = ()
    data_file: str | None = None

    def applies_to(self, file: ScannedFile) -> bool:
        """Tell whether it may delete rows of a data file.

        Source: Iceberg's table specification, "Scan Planning"
        """
        is_newer = self.sequence > file.sequence if self.kind is DeleteKind.EQUALITY else self.sequence >= file.sequence
        is_same_partition = self.partition is None or self.partition == file.partition
        return is_newer and is_same_partition and self.data_file in (None, file.path)


@dataclass(frozen=True, slots=True)
class IcebergScan:
    """The files that a scan reads."""

    files: tuple[ScannedFile, ...]
    deletes: tuple[DeleteFile, ...]


def plan_scan(metadata: TableMetadata, io: FileIO, snapshot: Snapshot, row_filter: BooleanExpression) -> IcebergScan:
    """Return the files of a snapshot that may have rows that fulfil a filter.

    Args:
        metadata: The metadata of the table, with the schema of the snapshot as the current one: PyIceberg binds the
            filter to the names of the current schema.

    Raises:
        UnsupportedFeatureForRead: a file is not Parquet.
    """
    manifests = read_manifests(metadata, io, snapshot)
    planner = ice_table.ManifestGroupPlanner(_with_safe_partitions(metadata), io, row_filter)
    with translate_file_errors(snapshot.manifest_list):  # bounds that cannot be compared
        entries = chain.from_iterable(planner.plan_manifest_entries([each for each in manifests if each.is_data]))
        files = tuple(_to_scanned_file(metadata, entry) for entry in entries)
    deletes = (
        _delete_file(metadata, entry)
        for manifest in manifests
        if not manifest.is_data
        for entry in manifest.fetch_manifest_entry()
    )
    return IcebergScan(files, tuple(_find_applying(files, deletes)))


def _with_safe_partitions(metadata: TableMetadata) -> TableMetadata:
    """Return metadata by which no file is skipped for a partition value that was rounded or has overflowed."""
    rounded = rounded_sources(metadata)
    specs = [
        spec.model_copy(update={"fields": tuple(_with_safe_transform(field, rounded) for field in spec.fields)})
        for spec in metadata.partition_specs
    ]
    return metadata.model_copy(update={"partition_specs": specs})


def _with_safe_transform(field: PartitionField, rounded: frozenset[int]) -> PartitionField:
    transform = field.transform
    if field.source_id in rounded:
        transform = ice_transforms.VoidTransform()
    elif isinstance(transform, ice_transforms.TruncateTransform):
        transform = overflowing_truncation(transform.width)
    return field.model_copy(update={"transform": transform})


def added_by(metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> tuple[ScannedFile, ...]:
    """Return the data files that a snapshot added.

    Raises:
        UnsupportedFeatureForRead: a file is not Parquet.
    """
    return tuple(
        _to_scanned_file(metadata, entry)
        for manifest in read_manifests(metadata, io, snapshot)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.is_data
        for entry in manifest.fetch_manifest_entry()
        if entry.snapshot_id == snapshot.snapshot_id
    )


def _to_scanned_file(metadata: TableMetadata, entry: ManifestEntry) -> ScannedFile:
    file = entry.data_file
    _ensure_parquet(metadata, file, (ice_manifest.FileFormat.PARQUET,))
    fields = metadata.specs()[file.spec_id].fields
    values = tuple(
        (field.source_id, file.partition[at])
        for at, field in enumerate(fields)
        if isinstance(field.transform, ice_transforms.IdentityTransform)
    )
    sequence = entry.sequence_number or 0
    return ScannedFile(
        file.file_path, file.file_size_in_bytes, file.record_count, sequence, _partition(metadata, file), values
    )


def _partition(metadata: TableMetadata, file: DataFile) -> str:
    values = [file.partition[at] for at in range(len(metadata.specs()[file.spec_id].fields))]
    return f"{file.spec_id}:{values!r}"


def _delete_file(metadata: TableMetadata, entry: ManifestEntry) -> DeleteFile:
    file = entry.data_file
    _ensure_parquet(metadata, file, (ice_manifest.FileFormat.PARQUET, ice_manifest.FileFormat.PUFFIN))
    kind = _kind(file)
    is_global = kind is DeleteKind.EQUALITY and is_unpartitioned(metadata.specs()[file.spec_id])
    return DeleteFile(
        kind=kind,
        path=file.file_path,
        size_bytes=file.file_size_in_bytes,
        sequence=entry.sequence_number or 0,
        partition=None if is_global else _partition(metadata, file),
        rows=file.record_count,
        equality_ids=tuple(sorted(file.equality_ids or ())),
        data_file=_only_data_file(file) if kind is not DeleteKind.EQUALITY else None,
    )


def _kind(file: DataFile) -> DeleteKind:
    if file.content == ice_manifest.DataFileContent.EQUALITY_DELETES:
        return DeleteKind.EQUALITY
    return DeleteKind.VECTORS if file.file_format == ice_manifest.FileFormat.PUFFIN else DeleteKind.POSITIONS


_PATH_ID = 2147483546
"""The reserved id of the column ``file_path`` of position deletes."""


def _only_data_file(file: DataFile) -> str | None:
    """Return the data file that both bounds of the paths name; bounds that may be cut off differ."""
    low, high = ((bounds or {}).get(_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return low.decode(errors="replace") if low is not None and low == high else None


def _ensure_parquet(metadata: TableMetadata, file: DataFile, supported: tuple[Any, ...]) -> None:
    if file.file_format not in supported:
        features = f"files in the format {str(file.file_format.value).lower()}, e.g. {file.file_path}"
        raise UnsupportedFeatureForRead(verb="read", location=metadata.location, features=features)


def _find_applying(files: tuple[ScannedFile, ...], deletes: Iterator[DeleteFile]) -> Iterator[DeleteFile]:
    """Yield the delete files that apply to a file; each is compared only with the oldest file of its partition."""
    oldest: dict[str, ScannedFile] = {}
    by_path = {file.path: file for file in files}
    for file in files:
        if file.partition not in oldest or file.sequence < oldest[file.partition].sequence:
            oldest[file.partition] = file
    for delete in deletes:
        candidates = [by_path.get(delete.data_file)] if delete.data_file else oldest.values()
        if delete.partition is not None and not delete.data_file:
            candidates = [oldest.get(delete.partition)]
        if any(file is not None and delete.applies_to(file) for file in candidates):
            yield delete
