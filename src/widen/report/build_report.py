"""Build the report of a table from its log, and from the footers of files that the log does not count.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from difflib import SequenceMatcher
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from widen.errors import CorruptFile, CorruptLog, StorageError, VersionNotFound
from widen.evolution.plan import CORRUPT_TEXTS, QUARANTINED, ROUNDED
from widen.evolution.schema_changes import ADDED, ColumnChange, recorded_reasons, schema_changes
from widen.log.commit_files import METADATA, decode_commit, read_non_file_actions
from widen.log.log_segment import commit_path
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.acknowledgement import read_acknowledgements
from widen.model.column_path import Path, fields, format_path, leaves, map_fields
from widen.model.lazy_module import import_lazily
from widen.model.schema_json import from_json
from widen.model.types import Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, CommitInfo, Metadata
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.file_statistics import FileStatistics
from widen.protocol.parquet_files import read_leaf_counts, stored_leaves
from widen.protocol.type_widening import all_type_changes
from widen.report.stopped_field import StoppedField, VersionTime
from widen.report.table_report import (
    QUIET_LOADS,
    ColumnCounts,
    ColumnOrigin,
    FileFacts,
    InexactBounds,
    IntervalCount,
    IntervalRecord,
    LeafColumn,
    Report,
    ReportColumn,
    SourceField,
    leaves_of,
)
from widen.report.text_format import brief_type
from widen.schema.source_metadata import COMMENT, CORRUPT, EVOLVED_FROM, SOURCE, role_of

if TYPE_CHECKING:
    from widen.files import footers, statistics_repair
    from widen.files.footers import LeafFooter
    from widen.frames.column_profile import ColumnFacts
    from widen.spark.spark_types import DataFrame
else:
    footers = import_lazily("widen.files.footers")
    statistics_repair = import_lazily("widen.files.statistics_repair")


# Source fields with several columns, because the kinds of their values drifted.
#
# Source: docs/evolution-rules.md#u3, #u20


def drifted_fields(
    schema: StructType, columns: Sequence[ReportColumn], origins: Mapping[Path, ColumnOrigin]
) -> Iterator[SourceField]:
    """Yield the source fields with several sibling columns, in schema order."""
    siblings: dict[tuple[Path, tuple[str, ...]], list[ReportColumn]] = {}
    for path, item in fields(schema):
        if SOURCE in item.metadata and (len(path) > 1 or role_of(item) is None):
            key = path[:-1], tuple(item.metadata[SOURCE])
            siblings.setdefault(key, []).append(_column(path, item, columns, origins))
    for (_, source), members in siblings.items():
        if len(members) > 1:
            yield SourceField(source, tuple(members))


def with_interval_counts(family: SourceField, counts: Sequence[tuple[VersionTime, Mapping[Path, int]]]) -> SourceField:
    """Return a source field with the values that each interval wrote to its columns.

    Args:
        counts: The number of values of each leaf that each interval wrote, oldest first.
    """
    history = []
    for moment, by_leaf in counts:
        values = [_largest(by_leaf, column.path) for column in family.columns]
        if any(values):
            history.append(IntervalCount(moment.version, tuple(_own_values(family.columns, values))))
    return replace(family, history=tuple(history))


def stopped_fields(columns: Sequence[ReportColumn], counts: CommitCounts) -> Iterator[StoppedField]:
    """Yield the fields that had values in each of several loads, and no values in the last ones.

    A field that only some records have may be missing for a few loads, so it must have been in each load before.
    """
    by_version = {moment.version: by_leaf for moment, by_leaf in counts.counts}
    loads = [each.moment for each in counts.intervals if each.is_load and each.moment.version in by_version]
    if len(loads) <= QUIET_LOADS:
        return
    leaves_of_field: dict[Path, list[ReportColumn]] = {}
    for column in columns:
        if column.source:
            leaves_of_field.setdefault(column.source, []).append(column)
    seen = {
        source: [any(by_version[load.version].get(leaf.path, 0) for leaf in members) for load in loads]
        for source, members in leaves_of_field.items()
        if not any(leaf.path in counts.uncounted for leaf in members)
    }
    for source, has_values in seen.items():
        last = max((at for at, has_value in enumerate(has_values) if has_value), default=-1)
        before = has_values[max(0, last - QUIET_LOADS + 1) : last + 1]
        if len(loads) - last > QUIET_LOADS and len(before) > 1 and all(before):
            came = [each for each, values in seen.items() if values[last + 1] and not any(values[: last + 1])]
            successor = _find_successor(source, came, leaves_of_field)
            yield StoppedField(source, loads[last], len(loads) - last - 1, successor)


RECENT_COMMITS = 4 * QUIET_LOADS
"""The number of commits that tell whether a field has stopped arriving with the last of them."""


def just_stopped(columns: Sequence[ReportColumn], counts: CommitCounts) -> list[StoppedField]:
    """Return the fields that have stopped arriving with the last load. Each field is returned for one load only."""
    return [each for each in stopped_fields(columns, counts) if each.loads == QUIET_LOADS]


def find_just_stopped(snapshot: Snapshot) -> list[StoppedField]:
    """Return `just_stopped` for the load that made a version of a Delta table, from the last commits alone."""
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    columns = leaves_of(snapshot.configuration, keys)
    counts, count = CommitCounts(), ColumnCounts(columns)
    scan = _CommitScan(columns, _corrupt_column(snapshot.schema), snapshot.partition_keys, {}, counts)
    for record in read_commits(snapshot, RECENT_COMMITS, with_files=True):
        scan.add_commit(record)
        for add in record.adds:
            count.add(scan.facts(add.path, add.stats, add.partition_values))
    return just_stopped(tuple(report_columns(snapshot.schema, count, counts)), counts)


def _find_successor(source: Path, came: Iterable[Path], leaves_of_field: Mapping[Path, Sequence[ReportColumn]]) -> Path:
    """Return the one of the fields that came with the same types, and with values in the same range; the most similar
    by name.
    """
    own = leaves_of_field[source]
    alike = [
        each
        for each in came
        if [leaf.type for leaf in leaves_of_field[each]] == [leaf.type for leaf in own]
        and all(_may_be_same(one, other) for one, other in zip(own, leaves_of_field[each], strict=True))
    ]
    return max(
        alike, key=lambda each: SequenceMatcher(None, format_path(source), format_path(each)).ratio(), default=()
    )


def _may_be_same(one: ReportColumn, other: ReportColumn) -> bool:
    """Return whether the values of two columns lie in ranges that overlap, if the ranges are known."""
    lows: list[Any] = [one.low, other.low]
    highs: list[Any] = [one.high, other.high]
    return None in lows or None in highs or bool(max(lows) <= min(highs))


def _own_values(columns: Sequence[ReportColumn], values: Sequence[int]) -> Iterator[int]:
    """Yield how many values belong to each column alone.

    A sibling of strings, or of arrays of them, also receives the values of the columns before it, as texts or items.

    Source: docs/evolution-rules.md#u14
    """
    for column, count in zip(columns, values, strict=True):
        received = sum(n for other, n in zip(columns, values, strict=True) if _receives(column, other))
        yield max(0, count - received)


def _receives(column: ReportColumn, other: ReportColumn) -> bool:
    """Return whether a column of strings also receives the values of another column of its field."""
    if not column.evolved_from or "string" not in column.type or "struct" in other.type:
        return False
    depths = (_array_depth(other.type), _array_depth(column.type))
    return depths[0] < depths[1] or (depths[0] == depths[1] and "string" not in other.type)


def _array_depth(brief: str) -> int:
    return brief.count("array<")


def _largest(by_leaf: Mapping[Path, int], path: Path) -> int:
    """Return the values of a column; a struct has the values of its leaf with the most."""
    return max((count for leaf, count in by_leaf.items() if leaf[: len(path)] == path), default=0)


def find_origin(origins: Mapping[Path, ColumnOrigin], path: Path) -> ColumnOrigin | None:
    """Return the origin of a column or of the innermost column around it; None if it is not known."""
    return next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), None)


def _column(
    path: Path, item: Field, columns: Sequence[ReportColumn], origins: Mapping[Path, ColumnOrigin]
) -> ReportColumn:
    """Return a column of a source field; a struct gets the counts of its leaf with the most values."""
    inside = [column for column in columns if column.path[: len(path)] == path]
    fullest = max((column for column in inside if column.values is not None), key=_values, default=inside[0])
    evolved_from = str(item.metadata.get(EVOLVED_FROM) or "")
    origin = find_origin(origins, path)
    return replace(fullest, path=path, type=brief_type(item.type), evolved_from=evolved_from, origin=origin)


def _values(column: ReportColumn) -> int:
    return column.values or 0


# Replace the numbers of a report by exact ones from a scan of all rows.
#
# Source: docs/evolution-rules.md#report


def scan_report(rows: DataFrame, schema: StructType, report: Report) -> Report:
    """Return the report with numbers from all rows; deleted rows do not count, values inside arrays do."""
    from widen.frames.column_profile import profile_columns

    number, facts = profile_columns(rows, schema)
    columns = tuple(_scanned_column(column, facts[column.path]) for column in report.columns)
    origins = {column.path: column.origin for family in report.families for column in family.columns if column.origin}
    drifted = tuple(drifted_fields(schema, columns, origins))
    return replace(report, rows=number, columns=columns, is_scanned=True, families=drifted)


def _scanned_column(column: ReportColumn, facts: ColumnFacts) -> ReportColumn:
    return replace(
        column,
        written=facts.written,
        nulls=facts.nulls,
        low=facts.low,
        high=facts.high,
        distinct=facts.distinct,
        samples=facts.samples,
        uncounted=0,
    )


# The footers of live files, for the counts and bounds that the log does not have.
#
# Source: docs/evolution-rules.md#report


AUTOMATIC_FILES = 64
"""Up to this number of files, their footers are read without being asked for."""

_THREADS = 16
_COLUMNS = ["path", "stats"]


class FooterUse(str, Enum):
    """Which footers a report reads: the footers of small tables, of every table, or no footers."""

    AUTOMATIC = "automatic"
    ALL = "all"
    NONE = "none"


def read_needed_footers(snapshot: Snapshot, columns: Sequence[LeafColumn], use: FooterUse) -> Mapping[str, LeafFooter]:
    """Return the footers of the live files whose statistics do not count every leaf, by path.

    Args:
        use: Which footers to read. `AUTOMATIC` leaves out files that cannot be read.
    """
    if use is FooterUse.NONE or (use is FooterUse.AUTOMATIC and snapshot.files().num_rows > AUTOMATIC_FILES):
        return {}
    rows = snapshot.files().select(_COLUMNS).to_pylist()
    needed = [row["path"] for row in rows if not _counts_all(row["stats"], columns)]
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        read = partial(_read, snapshot.store, is_strict=use is FooterUse.ALL)
        footers = zip(needed, pool.map(read, needed), strict=True)
        return {path: footer for path, footer in footers if footer is not None}


def _counts_all(stats: str | None, columns: Sequence[LeafColumn]) -> bool:
    file = FileStatistics(stats)
    stored = (leaf for leaf in columns if not leaf.partition_key)
    return all(leaf.is_counted and file.column(leaf.physical, leaf.type).nulls is not None for leaf in stored)


def _read(store: LogStore, path: str, *, is_strict: bool) -> LeafFooter | None:
    try:
        return footers.read_leaf_footer(store, store.plain(path))
    except (CorruptFile, StorageError):
        if is_strict:
            raise
        return None


def _count_inexact(snapshot: Snapshot, use: FooterUse) -> InexactBounds:
    """Return how many files have inexact bounds; where too many may have them, no footer is read."""
    from widen.spark.engine import open_session

    columns = statistics_repair.doubtful_columns(snapshot)
    files = snapshot.files()
    count = statistics_repair.doubtful_files(files, columns).num_rows if columns else 0
    if use is FooterUse.NONE or (use is FooterUse.AUTOMATIC and count > AUTOMATIC_FILES):
        return InexactBounds(count, is_checked=not count)
    repair = statistics_repair.StatisticsRepair(partial(open_session, None), driver_files=count)
    try:
        return InexactBounds(len(repair.find(snapshot)))
    except (CorruptFile, StorageError):
        if use is FooterUse.ALL:
            raise
        return InexactBounds(count, is_checked=False)


def build_report(snapshot: Snapshot, footers: FooterUse = FooterUse.AUTOMATIC) -> Report:
    """Return the report of one version of a table, without reading rows.

    Args:
        footers: Which footers to read where the log does not count all columns.
    """
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    columns = leaves_of(snapshot.configuration, keys)
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
    stopped = tuple(stopped_fields(columns_with_counts, counts))
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
        stopped=stopped,
        inexact=_count_inexact(snapshot, footers),
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
        corrupt: The column for corrupt records; None without such a column.
        partition_keys: The physical names of the partition columns.
        counts_by_path: The counts of files that are not in the log, by path; counts of commits are added.
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
        """Return the facts of a file; the statistics of its footer replace the log's."""
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
    """Return a schema with the physical names that it has: its column mapping may be newer than it is."""
    return map_fields(schema, lambda _, item: replace(item, name=item.metadata.get(PHYSICAL_NAME, item.name)))


# The commits of the log in order, each with the schema before and after it.
#
# Source: PROTOCOL.md#delta-log-entries


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit.

    Args:
        before: The schema before it; None if the table did not exist or the log no longer has that schema.
        after: The schema after it; None if the log does not have it.
        adds: The files that it added; empty unless read with files.
    """

    moment: VersionTime
    info: CommitInfo
    before: StructType | None
    after: StructType | None
    adds: tuple[Add, ...] = ()

    @property
    def operation(self) -> str:
        """The operation name in the commit info."""
        return str(self.info.get("operation") or "")

    @property
    def quarantined(self) -> int | None:
        """How many records its ingestion quarantined; None if the commit does not record it."""
        return self._metric(QUARANTINED)

    @property
    def corrupt(self) -> int | None:
        """How many strings its ingestion stored as corrupt records; None if the commit does not record it."""
        return self._metric(CORRUPT_TEXTS)

    @property
    def rounded(self) -> int:
        """How many numbers its ingestion rounded to doubles."""
        return self._metric(ROUNDED) or 0

    @property
    def changed_rows(self) -> dict[str, int]:
        """How many rows it inserted, updated and deleted, if the commit records it; zeros are left out."""
        counts = {word: next(filter(None, map(self._metric, names)), 0) for word, names in _ROW_METRICS.items()}
        return {word: count for word, count in counts.items() if count}

    def _metric(self, name: str) -> int | None:
        metrics = self.info.get("operationMetrics")
        return _number(metrics.get(name)) if isinstance(metrics, dict) else None

    @property
    def is_first(self) -> bool:
        """Whether it created the table."""
        return self.moment.version == 0

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        """Its column changes; empty if the schema before it is not known."""
        if self.after is None or (self.before is None and not self.is_first):
            return ()
        return schema_changes(self.before or StructType(), self.after, recorded_reasons(self.info))


def read_commits(snapshot: Snapshot, limit: int | None = None, *, with_files: bool = False) -> Iterator[CommitRecord]:
    """Yield the commits up to a version of a table, oldest first.

    Args:
        limit: The most commits to return, counted from the newest.
        with_files: Whether to read the added files too, which is slower.
    """
    history = snapshot.history(limit)[::-1]
    paths = [commit_path(version) for version, _, _ in history]
    schema = _schema_before(snapshot, history[0][0]) if history else None
    for (version, time_ms, info), path, data in zip(history, paths, snapshot.store.read_many(paths), strict=True):
        metadata, adds = _read_with_files(path, data) if with_files else (_read_metadata(path, data), ())
        after = from_json(metadata.schema_string) if metadata else schema
        yield CommitRecord(VersionTime(version, time_ms), info, schema, after, adds)
        schema = after


def read_history(snapshot: Snapshot, limit: int | None = None) -> list[IntervalRecord]:
    """Return the commits up to a version of a table, newest first, with the metrics that they record."""
    return [to_interval(record) for record in read_commits(snapshot, limit)][::-1]


def to_interval(record: CommitRecord) -> IntervalRecord:
    """Return a commit as a history shows it, with the metrics that it records."""
    metrics, parameters = (record.info.get(key) for key in ("operationMetrics", "operationParameters"))
    numbers = metrics if isinstance(metrics, dict) else {}
    return IntervalRecord(
        record.moment,
        record.operation,
        _number(numbers.get("numOutputRows")),
        record.corrupt,
        _number(numbers.get("numFiles")) or _number(numbers.get("numAddedFiles")) or 0,
        _number(numbers.get("numOutputBytes")) or _number(numbers.get("numAddedBytes")) or 0,
        record.changes,
        parameters if isinstance(parameters, dict) else {},
        is_first=record.is_first,
        quarantined=record.quarantined,
        changed_rows=record.changed_rows,
        rounded=record.rounded,
    )


_ROW_METRICS: Mapping[str, tuple[str, ...]] = {
    "inserted": ("numTargetRowsInserted",),
    "updated": ("numUpdatedRows", "numTargetRowsUpdated"),
    "deleted": ("numDeletedRows", "numTargetRowsDeleted"),
}
"""The metrics of commits that count changed rows, as Delta Lake names them."""


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, (str, int)) and str(text).isdecimal() else None


def _schema_before(snapshot: Snapshot, version: int) -> StructType | None:
    if version == 0:
        return None
    try:
        return open_snapshot(snapshot.store, version - 1).schema
    except (VersionNotFound, CorruptLog):
        return None


def _read_metadata(path: str, data: bytes) -> Metadata | None:
    return _last(line.meta_data for line in read_non_file_actions(path, data, METADATA))


def _read_with_files(path: str, data: bytes) -> tuple[Metadata | None, tuple[Add, ...]]:
    lines = decode_commit(path, data)
    return _last(line.meta_data for line in lines), tuple(line.add for line in lines if line.add is not None)


def _last(candidates: Iterable[Metadata | None]) -> Metadata | None:
    return next((metadata for metadata in reversed(list(candidates)) if metadata is not None), None)
