"""An Iceberg table as the source of a flow.

The versions of a flow are numbers that grow, and ids of snapshots do not. So they are the sequence numbers of the
snapshots.

Source: docs/guide/flow.md; Iceberg's table specification, "Sequence Numbers", "Snapshots"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from widen.errors import InvalidOption, SourceHistoryLost
from widen.frames.iceberg_scan import IcebergSource, read_iceberg_files
from widen.iceberg.catalog import TableName
from widen.iceberg.properties import read_sources
from widen.iceberg.scan_plan import IcebergScan, ScannedFile, added_by, plan_scan
from widen.iceberg.schema_conversion import to_readable
from widen.iceberg.snapshots import ReadPoint, SnapshotReference, ancestors, find_read_point, summary_count
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.schema.growth import is_readable_in
from widen.spark.engine import Session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.targets.iceberg import IcebergLocation
from widen.targets.table_format import (
    FlowSource,
    RangeLimits,
    SourceVersion,
    TableLocation,
    VersionRange,
    split_files,
    take_until_full,
)

if TYPE_CHECKING:
    from widen.iceberg.catalog import Table
    from widen.iceberg.snapshots import Snapshot

_BEFORE_ALL = 0
"""The version of a table that has no snapshot yet; sequence numbers begin with 1."""

_FEATURES = frozenset({"timestampNtz"})
"""The features of Delta that the types of every Iceberg table need."""

_ADDS, _SAME_ROWS = "append", "replace"
"""Operations of snapshots; every other one may remove rows."""


@dataclass(frozen=True, slots=True)
class IcebergFlowSource(FlowSource):
    """An Iceberg table that a flow reads."""

    name: TableName

    @property
    def location(self) -> str:
        return str(self.name)

    def is_at(self, table: TableLocation) -> bool:
        return isinstance(table, IcebergLocation) and table.name == self.name

    def newest(self) -> SourceVersion:
        """Return the newest version.

        Raises:
            InvalidOption: the snapshot is of format version 1.
        """
        metadata = self.name.load().metadata
        snapshot = metadata.current_snapshot()
        if snapshot is not None and not _version(snapshot):
            expected = (
                "Must not be an Iceberg table of format version 1, whose snapshots have no sequence numbers. Upgrade "
                "it to version 2, and write a snapshot."
            )
            raise InvalidOption(option="source", value=self.location, expected=expected)
        version = _BEFORE_ALL if snapshot is None else _version(snapshot)
        return SourceVersion(str(metadata.table_uuid), version, _FEATURES)

    def parts(self, version: int, max_bytes: int | None) -> Sequence[Sequence[str]]:
        files = sorted(self._open(version).scan.files, key=lambda file: (file.sequence, file.path))
        return split_files([(file.path, file.size_bytes) for file in files], max_bytes)

    def rows(self, spark: SparkSession, version: int, paths: Collection[str] | None = None) -> DataFrame:
        opened = self._open(version)
        scan = opened.scan
        if paths is not None:
            wanted = set(paths)
            scan = replace(scan, files=tuple(file for file in scan.files if file.path in wanted))
        return opened.read(spark, scan)

    def range_after(self, version: int, limits: RangeLimits) -> IcebergVersionRange:
        table = self.name.load()
        before, line = self._open(version, table), list(ancestors(table.metadata))
        after = [each for each in reversed(line) if version < _version(each) <= limits.last]
        if not after or not _follows(after[0], before):
            raise self._history_lost_error(version)
        # The last version was read from the same line of snapshots; a rollback since then has cut it off.
        if _version(after[-1]) != limits.last:
            raise self._history_lost_error(limits.last)
        opened = (self._read_point(table, each) for each in after)
        changes = ((each, each.schema, each.added_bytes) for each in opened)
        return IcebergVersionRange(before, tuple(take_until_full(before.schema, changes, limits)))

    def _open(self, version: int, table: Table | None = None) -> _Version:
        """Return a snapshot among the current one and those before it."""
        table = table or self.name.load()
        if version == _BEFORE_ALL:
            return self._read_point(table, None)
        for snapshot in ancestors(table.metadata):
            if _version(snapshot) == version:
                return self._read_point(table, snapshot)
        raise self._history_lost_error(version)

    def _read_point(self, table: Table, snapshot: Snapshot | None) -> _Version:
        """Return a snapshot in the schema that it was written with."""
        point = ReadPoint(table.metadata, None)
        if snapshot is not None:
            point = find_read_point(table.metadata, SnapshotReference(snapshot.snapshot_id))
        return _Version(table, point, to_readable(point.schema, read_sources(table.properties, self.location)))

    def _history_lost_error(self, version: int) -> SourceHistoryLost:
        reason = f"the snapshot with the sequence number {version} has expired, or was rolled back"
        return SourceHistoryLost(location=self.location, reason=reason)


def _version(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _follows(snapshot: Snapshot, before: _Version) -> bool:
    """Return whether one snapshot directly follows another. PyIceberg clears a parent that expires."""
    if before.snapshot_id is None:
        return _version(snapshot) == 1
    return snapshot.parent_snapshot_id == before.snapshot_id


@dataclass(frozen=True)
class _Version:
    """A snapshot of a table.

    Args:
        point: The snapshot; none before the first one.
        schema: Its columns, with field ids and source fields.
    """

    table: Table
    point: ReadPoint
    schema: StructType

    @property
    def snapshot_id(self) -> int | None:
        return self.point.snapshot.snapshot_id if self.point.snapshot else None

    @property
    def number(self) -> int:
        return _version(self.point.snapshot) if self.point.snapshot else _BEFORE_ALL

    @property
    def operation(self) -> str:
        """What the snapshot did; any operation may remove rows if it does not say so."""
        summary = self.point.snapshot.summary if self.point.snapshot else None
        return summary.operation.value if summary else ""

    @property
    def added_bytes(self) -> int:
        """The size of the files that the snapshot added."""
        return summary_count(self.point.snapshot, "added-files-size")

    @cached_property
    def scan(self) -> IcebergScan:
        """The files of the snapshot."""
        return plan_scan(self.point, self.table.io)

    @property
    def added_files(self) -> tuple[ScannedFile, ...]:
        """The files that the snapshot added."""
        point = self.point
        return added_by(point.metadata, self.table.io, point.snapshot) if point.snapshot else ()

    def read(self, spark: Session, scan: IcebergScan) -> DataFrame:
        """Return the rows of files in the schema of this snapshot."""
        return read_iceberg_files(IcebergSource(lambda: spark, self.table.io, self.point), self.schema, scan)


@dataclass(frozen=True)
class IcebergVersionRange(VersionRange):
    """The changes of rows in snapshots of an Iceberg table."""

    before: _Version
    versions: tuple[_Version, ...]

    @property
    def last(self) -> int:
        return self.versions[-1].number

    @property
    def removing_versions(self) -> Sequence[int]:
        return [each.number for each in self.versions if each.operation not in (_ADDS, _SAME_ROWS)]

    @property
    def is_empty(self) -> bool:
        return self._is_growth and all(each.operation == _SAME_ROWS for each in self.versions)

    @property
    def _is_growth(self) -> bool:
        """Whether all rows can be read in the schema of the last version."""
        schemas = [each.schema for each in (self.before, *self.versions)]
        return all(is_readable_in(schema, schemas[-1]) for schema in schemas)

    def added_rows(self, spark: SparkSession) -> DataFrame:
        files = (file for each in self.versions if each.operation == _ADDS for file in each.added_files)
        return self.versions[-1].read(spark, IcebergScan(tuple(files), ()))

    def changed_rows(self, spark: SparkSession) -> Sequence[DataFrame]:
        """Return frames that together have every added and every removed row.

        These are all rows of the files that are not the same before and after, or not with the same delete files. If
        columns were renamed, dropped or replaced, every row may be another one.
        """
        first, last = self.before, self.versions[-1]
        if not self._is_growth:
            return [each.read(spark, each.scan) for each in (first, last)]
        if not self.removing_versions:
            return [self.added_rows(spark)]
        old, new = _with_deletes(first.scan), _with_deletes(last.scan)
        return [
            last.read(spark, replace(scan, files=tuple(file for file, deletes in files - same)))
            # A row whose file and deletes are the same before and after has not changed.
            for scan, files, same in ((first.scan, old, new), (last.scan, new, old))
        ]


def _with_deletes(scan: IcebergScan) -> frozenset[tuple[ScannedFile, tuple[str, ...]]]:
    """Return each file with the delete files that may apply to it."""
    return frozenset(
        (file, tuple(sorted(each.path for each in scan.deletes if each.applies_to(file)))) for file in scan.files
    )
