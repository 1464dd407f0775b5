"""Build the report of an Iceberg table from its own metadata: snapshots, and the counts and bounds of its live files.

Source: docs/evolution-rules.md#report; Iceberg's table specification, "Manifests"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from widen.evolution.plan import CORRUPT_REASON
from widen.evolution.schema_changes import ColumnChange, schema_changes
from widen.iceberg import properties as names
from widen.iceberg.catalog import open_store
from widen.iceberg.file_metrics import ColumnIds, column_ids, read_bound
from widen.iceberg.metadata_files import live_entries, read_manifests
from widen.iceberg.schema_conversion import to_readable
from widen.iceberg.snapshots import ancestors, event_reasons, summary_count, summary_of
from widen.model.acknowledgement import read_acknowledgements
from widen.model.column_path import Path, is_struct_path, leaves
from widen.model.types import StructType
from widen.protocol.file_statistics import ColumnStatistics
from widen.report.build_report import (
    RECENT_COMMITS,
    CommitCounts,
    drifted_fields,
    just_stopped,
    report_columns,
    stopped_fields,
    with_interval_counts,
)
from widen.report.stopped_field import StoppedField, VersionTime
from widen.report.table_report import ColumnCounts, IntervalRecord, LeafColumn, Report

if TYPE_CHECKING:
    from widen.iceberg.catalog import Table
    from widen.iceberg.snapshots import DataFile, ManifestEntry, Snapshot, TableMetadata
    from widen.log.log_store import LogStore

METADATA = "metadata of the table"
"""Where the numbers of the report are from."""

_DELETES = "total-position-deletes"
_PARAMETERS = {
    "mode": names.MODE,
    "queryId": names.APP_ID,
    "epochId": names.INTERVAL,
    CORRUPT_REASON: names.CORRUPT_REASON,
}
"""The parameters of a commit, as Delta's history names them, and their names in the summary of a snapshot."""


def build_iceberg_report(table: Table, name: str, options: str = "") -> Report:
    """Return the report of the newest version of an Iceberg table, without opening a data file.

    Args:
        options: The options that commands for the table need, e.g. its catalog.
    """
    metadata = table.metadata
    history = _History(metadata, name, open_store(table.location(), table.io))
    schema = history.schema(metadata.current_schema_id)
    line = list(ancestors(metadata))[::-1]
    counts = CommitCounts(intervals=list(history.intervals(line)))
    leaf_columns = [LeafColumn(path, path, leaf, is_struct_path(schema, path)) for path, leaf in leaves(schema)]
    files = _LiveFiles(metadata, leaf_columns)
    count = files.add_live(list(live_entries(metadata, table.io, table.current_snapshot())), line, counts)
    types = _types_before(metadata)
    columns = tuple(
        replace(column, types_before=types.get(column.path, ())) for column in report_columns(schema, count, counts)
    )
    families = drifted_fields(schema, columns, dict(counts.origins()))
    last = line[-1] if line else None
    deleted = summary_count(last, _DELETES)
    return Report(
        name,
        VersionTime(last.snapshot_id, last.timestamp_ms) if last else VersionTime(0, metadata.last_updated_ms),
        None if count.rows is None else count.rows - deleted,
        files.files,
        files.size_bytes,
        deleted,
        columns,
        tuple(counts.intervals),
        families=tuple(with_interval_counts(family, counts.counts) for family in families),
        numbers_from=METADATA,
        options=options,
        acknowledged=read_acknowledgements(metadata.properties, name),
        stopped=tuple(stopped_fields(columns, counts)),
    )


def find_just_stopped_in_iceberg(table: Table, name: str, snapshot: Snapshot) -> list[StoppedField]:
    """Return `just_stopped` for the load that made a snapshot, from the last snapshots alone."""
    metadata, io = table.metadata, table.io
    history = _History(metadata, name, open_store(table.location(), io))
    schema = history.schema(metadata.current_schema_id)
    line = list(islice(ancestors(metadata, snapshot), RECENT_COMMITS))[::-1]
    counts = CommitCounts(intervals=list(history.intervals(line)))
    leaf_columns = [LeafColumn(path, path, leaf, is_struct_path(schema, path)) for path, leaf in leaves(schema)]
    own = {each.snapshot_id for each in line}
    recent = (each for each in read_manifests(metadata, io, snapshot) if each.is_data and each.added_snapshot_id in own)
    added = [entry for each in recent for entry in each.fetch_manifest_entry() if entry.snapshot_id in own]
    count = _LiveFiles(metadata, leaf_columns).add_live(added, line, counts)
    return just_stopped(tuple(report_columns(schema, count, counts)), counts)


def read_iceberg_history(table: Table, name: str, limit: int | None = None) -> list[IntervalRecord]:
    """Return the snapshots of the main branch, newest first, with what each one changed."""
    history = _History(table.metadata, name, open_store(table.location(), table.io))
    # The snapshot before the oldest one has the columns that it changed.
    line = list(islice(ancestors(table.metadata), None if limit is None else limit + 1))[::-1]
    return list(history.intervals(line))[::-1][:limit]


def _types_before(metadata: TableMetadata) -> dict[Path, tuple[str, ...]]:
    """Return the earlier types of the leaf columns, as the older schemas of the table have them, oldest first."""
    types: dict[int, dict[str, None]] = {}
    for schema in metadata.schemas:
        leaf_types = dict(leaves(to_readable(schema)))
        for path, column in column_ids(schema).items():
            if path in leaf_types:
                types.setdefault(column.number, {})[leaf_types[path].sql] = None
    current = column_ids(metadata.schema())
    return {path: tuple(types[column.number])[:-1] for path, column in current.items() if column.number in types}


class _History:
    """The snapshots of a table as the intervals of a report."""

    def __init__(self, metadata: TableMetadata, name: str, store: LogStore) -> None:
        self._store = store
        self._schemas = {schema.schema_id: schema for schema in metadata.schemas}
        self._sources = names.read_sources(metadata.properties, name)

    def schema(self, number: int) -> StructType:
        """Return a schema of the table, with the source fields of its columns."""
        return to_readable(self._schemas[number], self._sources)

    def intervals(self, line: Sequence[Snapshot]) -> Iterator[IntervalRecord]:
        """Yield an interval for each snapshot; the columns before the oldest one are known only if it is the first."""
        before: int | None = None
        for snapshot in line:
            is_first = snapshot.parent_snapshot_id is None
            yield self._interval(snapshot, before, is_first=is_first)
            before = snapshot.schema_id

    def _interval(self, snapshot: Snapshot, before: int | None, *, is_first: bool) -> IntervalRecord:
        summary, after = summary_of(snapshot), snapshot.schema_id
        changes: tuple[ColumnChange, ...] = ()
        if after in self._schemas and (is_first or before in self._schemas):
            old = StructType() if before is None else self.schema(before)
            changes = schema_changes(old, self.schema(after), event_reasons(snapshot, self._store))
        operation = snapshot.summary.operation.value if snapshot.summary else ""
        return IntervalRecord(
            VersionTime(snapshot.snapshot_id, snapshot.timestamp_ms),
            summary.get(names.OPERATION, operation),
            summary_count(snapshot, "added-records"),
            summary_count(snapshot, names.CORRUPT),
            summary_count(snapshot, "added-data-files"),
            summary_count(snapshot, "added-files-size"),
            changes,
            {key: summary[name] for key, name in _PARAMETERS.items() if name in summary},
            is_first=is_first,
            quarantined=summary_count(snapshot, names.QUARANTINED),
            rounded=summary_count(snapshot, names.ROUNDED),
        )


class _LiveFiles:
    """Counts of the live files."""

    def __init__(self, metadata: TableMetadata, columns: Sequence[LeafColumn]) -> None:
        self.files = self.size_bytes = 0
        schema = metadata.schema()
        self._columns, self._ids = columns, column_ids(schema)
        # Files that lack these columns have a value in them; inside of null structs and lists they do not.
        self._defaults = {each for each in schema.field_ids if schema.find_field(each).initial_default is not None}
        ids_of = {
            schema.schema_id: {each.number for each in column_ids(schema).values()} for schema in metadata.schemas
        }
        # A file can have the columns of its snapshot; they are not known once that has expired.
        self._ids_by_snapshot = {each.snapshot_id: ids_of.get(each.schema_id or 0) for each in metadata.snapshots}

    def add_live(
        self, entries: Sequence[ManifestEntry], line: Sequence[Snapshot], counts: CommitCounts
    ) -> ColumnCounts:
        """Return the counts of all files; the counts of each snapshot are added to the commits."""
        total = ColumnCounts(self._columns)
        by_snapshot: dict[int | None, ColumnCounts] = {}
        for entry in entries:
            own = by_snapshot.setdefault(entry.snapshot_id, ColumnCounts(self._columns))
            self.files += 1
            self.size_bytes += entry.data_file.file_size_in_bytes
            for count in (total, own):
                existing = self._ids_by_snapshot.get(entry.snapshot_id or 0)
                self._add(count, entry.data_file, None if existing is None else existing | self._defaults)
        for snapshot in line:
            if snapshot.snapshot_id in by_snapshot:
                moment = VersionTime(snapshot.snapshot_id, snapshot.timestamp_ms)
                counts.add_versions(by_snapshot.pop(snapshot.snapshot_id), moment)
        for expired in by_snapshot.values():
            counts.uncounted |= {path for path, tally in expired.tallies.items() if tally.values}
        return total

    def _add(self, count: ColumnCounts, file: DataFile, existing: set[int] | None) -> None:
        rows = file.record_count
        count.rows = None if count.rows is None else count.rows + rows
        for path, tally in count.tallies.items():
            tally.add(rows, *_statistics(file, self._ids.get(path), existing))


def _statistics(
    file: DataFile, column: ColumnIds | None, existing: set[int] | None
) -> tuple[int | None, ColumnStatistics]:
    """Return how many values a leaf has in a file, if its metrics have the number, and its bounds."""
    if column is None:  # an empty struct
        return None, ColumnStatistics()
    number, rows = column.number, file.record_count
    if existing is not None and number not in existing:
        return 0, ColumnStatistics(nulls=rows)
    values, nulls = (counts or {} for counts in (file.value_counts, file.null_value_counts))
    if number not in values or number not in nulls:
        return None, ColumnStatistics()
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    return values[number] - nulls[number], ColumnStatistics(read_bound(column, low), read_bound(column, high))
