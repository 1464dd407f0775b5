"""Build the report of a table from its log, and from the footers of files that the log does not count.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from widen.log.read.snapshot import Snapshot
from widen.model.acknowledgement import read_acknowledgements
from widen.model.column_path import Path, fields, leaves, map_fields
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import COMMENT, CORRUPT, EVOLVED_FROM, SOURCE, role_of
from widen.planning.table.column_change import ADDED
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.leaf_counts import read_leaf_counts, stored_leaves
from widen.protocol.type_changes import all_type_changes
from widen.report.column_counts import ColumnCounts, FileFacts, LeafColumn, leaves_of
from widen.report.commit_history import CommitRecord, read_commits, to_interval
from widen.report.file_footers import FooterUse, read_needed_footers
from widen.report.report_model import IntervalRecord, VersionTime
from widen.report.source_fields import drifted_fields, find_origin, with_interval_counts
from widen.report.table_report import ColumnOrigin, Report, ReportColumn


def build_report(snapshot: Snapshot, footers: FooterUse = FooterUse.AUTOMATIC) -> Report:
    """Return the report of one version of a table, without reading rows.

    Args:
        footers: Which footers to read where the log does not count all columns.

    Raises:
        CorruptFile: a data file is not Parquet, and all footers were asked for.
    """
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    columns = leaves_of(snapshot.schema, snapshot.protocol, snapshot.properties, keys)
    counts_by_path = {
        path: _KnownCounts(footer.values, footer.stats)
        for path, footer in read_needed_footers(snapshot, columns, footers).items()
    }
    counts = CommitCounts()
    scan = _CommitScan(columns, _corrupt_column(snapshot.schema), snapshot.partition_keys, counts_by_path, counts)
    from_footers = len(counts_by_path)
    for record in read_commits(snapshot, with_files=True):
        scan.add_commit(record)
    count, size_bytes, deleted, files = _count_live_files(snapshot, columns, scan)
    last = counts.intervals[-1].moment if counts.intervals else VersionTime(snapshot.version, snapshot.timestamp_ms)
    rows = None if count.rows is None else count.rows - deleted
    columns_with_counts = tuple(report_columns(snapshot.schema, count, counts))
    drifted = drifted_fields(snapshot.schema, columns_with_counts, dict(counts.origins()))
    families = tuple(with_interval_counts(family, counts.counts) for family in drifted)
    return Report(
        snapshot.location,
        last,
        rows,
        files,
        size_bytes,
        deleted,
        columns_with_counts,
        tuple(counts.intervals),
        families=families,
        footers=from_footers,
        acknowledged=read_acknowledgements(snapshot.properties, snapshot.location),
    )


@dataclass(frozen=True, slots=True)
class _KnownCounts:
    """What is known of a file beside its statistics in the log: the values of its leaves, and its own statistics."""

    values: Mapping[Path, int] = field(default_factory=dict)
    stats: str | None = None


_UNKNOWN_COUNTS = _KnownCounts()


@dataclass(slots=True)
class CommitCounts:
    """The commits of a table, and what they wrote to its columns, oldest first.

    Args:
        counts: The number of values that each commit wrote, by leaf; leaves without a known count are left out.
        first: The first version that wrote a value, by leaf.
        last: The last version that wrote a value, by leaf.
        uncounted: The leaves whose values at least one commit does not count.
    """

    intervals: list[IntervalRecord] = field(default_factory=list)
    counts: list[tuple[VersionTime, Mapping[Path, int]]] = field(default_factory=list)
    first: dict[Path, VersionTime] = field(default_factory=dict)
    last: dict[Path, VersionTime] = field(default_factory=dict)
    uncounted: set[Path] = field(default_factory=set)

    def add_versions(self, count: ColumnCounts, moment: VersionTime) -> None:
        """Add what the next commit wrote."""
        counted = {}
        for path, tally in count.tallies.items():
            if tally.uncounted:
                self.uncounted.add(path)
            elif tally.values:
                self.first.setdefault(path, moment)
                self.last[path] = moment
            if tally.files and tally.is_known:
                counted[path] = tally.values
        if counted:
            self.counts.append((moment, counted))

    def origins(self) -> Iterator[tuple[Path, ColumnOrigin]]:
        """Yield the origin of each column that an ingestion added, oldest first."""
        for interval in self.intervals:
            for change in interval.changes if not interval.is_first else ():
                for reason in change.reasons[:1] if change.what == ADDED else ():
                    yield change.column, ColumnOrigin(interval.moment, reason)


class _CommitSchema:
    """The schema after a commit: the leaves that its files have, and those that did not exist yet."""

    def __init__(self, schema: StructType, columns: Iterable[LeafColumn], partition_keys: tuple[str, ...]) -> None:
        existing = {path for path, _ in leaves(schema)}
        self.schema = schema
        self.stored = stored_leaves(_physical(schema), partition_keys)
        self.missing = frozenset(leaf.path for leaf in columns if leaf.path not in existing)


@dataclass(slots=True)
class _CommitScan:
    """Counts and changes collected from the commits, oldest first.

    Args:
        corrupt: The column for corrupt records; None if the table has none.
        partition_keys: The physical names of the partition columns.
        counts_by_path: The counts of files that are not in the log, by path; those of commits are added.
        missing: The leaves that did not exist yet when a file was written, by file path.
        schema: What the last commit left; None as long as the log has no schema.
    """

    columns: list[LeafColumn]
    corrupt: Path | None
    partition_keys: tuple[str, ...]
    counts_by_path: dict[str, _KnownCounts]
    result: CommitCounts
    missing: dict[str, frozenset[Path]] = field(default_factory=dict)
    schema: _CommitSchema | None = None

    def add_commit(self, record: CommitRecord) -> None:
        """Add the counts and changes of the next commit."""
        # Most commits do not change the schema, and to find its leaves takes longer than to count a file.
        if record.after is not None and (self.schema is None or self.schema.schema is not record.after):
            self.schema = _CommitSchema(record.after, self.columns, self.partition_keys)
        self._add_known_counts(record)
        count = ColumnCounts(self.columns)
        for add in record.adds:
            if self.schema is not None and self.schema.missing:
                self.missing[add.path] = self.schema.missing
            if add.data_change:
                count.add(self.facts(add.path, add.stats, add.partition_values))
        self.result.add_versions(count, record.moment)
        self.result.intervals.append(self._interval(record, count))

    def facts(self, path: str, stats: str | None, partition_values: Mapping[str, str | None]) -> FileFacts:
        """Return the facts of a file; the statistics of its footer replace those of the log."""
        counts = self.counts_by_path.get(path, _UNKNOWN_COUNTS)
        return FileFacts(counts.stats or stats, partition_values, self.missing.get(path, frozenset()), counts.values)

    def _add_known_counts(self, record: CommitRecord) -> None:
        if self.schema is None:
            return
        for path, values in read_leaf_counts(record.info, record.adds, self.schema.stored).items():
            counts = self.counts_by_path.get(path, _UNKNOWN_COUNTS)
            self.counts_by_path[path] = replace(counts, values=counts.values or values)

    def _interval(self, record: CommitRecord, count: ColumnCounts) -> IntervalRecord:
        adds = [add for add in record.adds if add.data_change]
        corrupt = record.corrupt
        if corrupt is None:
            tally = count.tallies.get(self.corrupt) if self.corrupt is not None else None
            corrupt = 0 if tally is None else tally.values if tally.is_known else None
        size_bytes = sum(add.size for add in adds)
        return replace(to_interval(record), rows=count.rows, corrupt=corrupt, files=len(adds), size_bytes=size_bytes)


def _count_live_files(
    snapshot: Snapshot, columns: list[LeafColumn], scan: _CommitScan
) -> tuple[ColumnCounts, int, int, int]:
    """Return the column counts, the size, the deleted rows and the number of the live files."""
    count, size_bytes, deleted, files = ColumnCounts(columns), 0, 0, 0
    for batch in snapshot.files().select(_NEEDED).to_batches(max_chunksize=1 << 14):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            count.add(scan.facts(row["path"], row["stats"], row["partition_values"] or {}))
            size_bytes += row["size_bytes"]
            deleted += (row["deletion_vector"] or {}).get("cardinality", 0)
            files += 1
    return count, size_bytes, deleted, files


_NEEDED = ["path", "partition_values", "size_bytes", "stats", "deletion_vector"]


def report_columns(schema: StructType, count: ColumnCounts, commits: CommitCounts) -> Iterator[ReportColumn]:
    """Yield the leaf columns of a report, in schema order."""
    fields_by_path = dict(fields(schema))
    types: dict[Path, list[str]] = {}
    for path, change in all_type_changes(schema):
        types.setdefault(path, []).append(change.old.sql)
    origins = dict(commits.origins())
    for leaf in count.columns:
        path, tally = leaf.path, count.tallies[leaf.path]
        low, high = tally.bounds
        written = count.written_rows(leaf)
        is_counted = path not in commits.uncounted
        yield ReportColumn(
            path,
            leaf.type.sql,
            _metadata(fields_by_path, path, EVOLVED_FROM),
            _metadata(fields_by_path, path, COMMENT),
            tuple(types.get(path, ())),
            written,
            None if written is None else tally.rows - written,
            low,
            high,
            commits.first.get(path) if is_counted else None,
            commits.last.get(path) if is_counted else None,
            values=tally.values if tally.is_known else None,
            uncounted=tally.uncounted,
            source=tuple(_nearest(fields_by_path, path, SOURCE) or ()),
            origin=find_origin(origins, path),
        )


def _metadata(fields_by_path: Mapping[Path, Field], path: Path, key: str) -> str:
    """Return the metadata under a key of the innermost field around a leaf that has it; else an empty string."""
    return str(_nearest(fields_by_path, path, key) or "")


def _nearest(fields_by_path: Mapping[Path, Field], path: Path, key: str) -> Any:
    parents = (path[:end] for end in range(len(path), 0, -1))
    values = (fields_by_path[parent].metadata.get(key) for parent in parents if parent in fields_by_path)
    return next((value for value in values if value), None)


def _corrupt_column(schema: StructType) -> Path | None:
    return next(((item.name,) for item in schema if role_of(item) == CORRUPT), None)


def _physical(schema: StructType) -> StructType:
    """Return a schema with its physical names, as far as it has some: its column mapping may be newer than it is."""
    return map_fields(schema, lambda _, item: replace(item, name=item.metadata.get(PHYSICAL_NAME, item.name)))
