"""Building the report of a table from its log alone.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, fields, leaves
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import COMMENT, CORRUPT, EVOLVED_FROM, SOURCE, role_of
from widen.protocol.actions import Add
from widen.protocol.type_changes import all_type_changes
from widen.report.column_counts import ColumnCounts, FileFacts, LeafColumn, leaves_of
from widen.report.commit_history import CommitRecord, read_commits
from widen.report.report_model import ADDED, ColumnOrigin, IntervalRecord, Report, ReportColumn, VersionTime
from widen.report.source_fields import drifted_fields, find_origin


def build_report(snapshot: Snapshot) -> Report:
    """Return the report of one version of a table; no data file is read.

    Raises:
        CorruptLog: a log file is damaged.
        StorageError: the store refused.
    """
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    columns = leaves_of(snapshot.schema, snapshot.protocol, snapshot.properties, keys)
    past = _CommitScan(columns, _corrupt_column(snapshot.schema))
    for record in read_commits(snapshot, with_files=True):
        past.take(record)
    count, size_bytes, deleted, files = _live(snapshot, columns, past)
    last = past.intervals[-1].moment if past.intervals else VersionTime(snapshot.version, snapshot.timestamp_ms)
    rows = None if count.rows is None else count.rows - deleted
    told = tuple(_columns(snapshot.schema, count, past))
    drifted = tuple(drifted_fields(snapshot.schema, told, dict(past.births())))
    intervals = tuple(past.intervals)
    return Report(snapshot.location, last, rows, files, size_bytes, deleted, told, intervals, families=drifted)


@dataclass(slots=True)
class _CommitScan:
    """What the commits tell, taken one after the other.

    Args:
        columns: The leaves of the schema that the report is about.
        corrupt: The column that holds lines that are no record.
        intervals: The commits so far.
        first: The first interval that wrote a value to a leaf.
        last: The last one that did.
        lacks: The leaves that were not there yet when a file was written, by the path of the file.
    """

    columns: list[LeafColumn]
    corrupt: Path | None
    intervals: list[IntervalRecord] = field(default_factory=list)
    first: dict[Path, VersionTime] = field(default_factory=dict)
    last: dict[Path, VersionTime] = field(default_factory=dict)
    lacks: dict[str, frozenset[Path]] = field(default_factory=dict)
    doubtful: set[Path] = field(default_factory=set)

    def take(self, record: CommitRecord) -> None:
        known = {path for path, _ in leaves(record.after)} if record.after is not None else None
        lacks = frozenset(leaf.path for leaf in self.columns if known is not None and leaf.path not in known)
        count = ColumnCounts(self.columns)
        for add in record.adds:
            if lacks:
                self.lacks[add.path] = lacks
            if add.data_change:
                count.add(_facts(add, lacks))
        self._remember(count, record.moment)
        self.intervals.append(self._interval(record, count))

    def _remember(self, count: ColumnCounts, moment: VersionTime) -> None:
        for path, tally in count.tallies.items():
            if tally.written is None:
                self.doubtful.add(path)
            elif tally.written:
                self.first.setdefault(path, moment)
                self.last[path] = moment

    def _interval(self, record: CommitRecord, count: ColumnCounts) -> IntervalRecord:
        adds = [add for add in record.adds if add.data_change]
        corrupt = record.corrupt
        if corrupt is None:
            corrupt = count.tallies[self.corrupt].written if self.corrupt in count.tallies else 0
        parameters = record.info.get("operationParameters")
        return IntervalRecord(
            record.moment,
            record.operation,
            count.rows,
            corrupt,
            len(adds),
            sum(add.size for add in adds),
            record.changes,
            parameters if isinstance(parameters, dict) else {},
            is_first=record.is_first,
            quarantined=record.quarantined,
        )

    def births(self) -> Iterator[tuple[Path, ColumnOrigin]]:
        """Yield what made each column that an ingestion made, oldest first."""
        for interval in self.intervals:
            for change in interval.changes if not interval.is_first else ():
                for reason in change.reasons[:1] if change.what == ADDED else ():
                    yield change.column, ColumnOrigin(interval.moment, reason)


def _facts(add: Add, lacks: frozenset[Path]) -> FileFacts:
    return FileFacts(add.stats, add.partition_values, lacks)


def _live(snapshot: Snapshot, columns: list[LeafColumn], past: _CommitScan) -> tuple[ColumnCounts, int, int, int]:
    """Return the counts of the live files, their size, how many of their rows are deleted, and how many they are."""
    count, size_bytes, deleted, files = ColumnCounts(columns), 0, 0, 0
    for batch in snapshot.files().select(_NEEDED).to_batches(max_chunksize=1 << 14):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            lacks = past.lacks.get(row["path"], frozenset())
            count.add(FileFacts(row["stats"], row["partition_values"] or {}, lacks))
            size_bytes += row["size_bytes"]
            deleted += (row["deletion_vector"] or {}).get("cardinality", 0)
            files += 1
    return count, size_bytes, deleted, files


_NEEDED = ["path", "partition_values", "size_bytes", "stats", "deletion_vector"]


def _columns(schema: StructType, count: ColumnCounts, past: _CommitScan) -> Iterator[ReportColumn]:
    above = dict(fields(schema))
    types: dict[Path, list[str]] = {}
    for path, change in all_type_changes(schema):
        types.setdefault(path, []).append(change.old.sql)
    births = dict(past.births())
    for leaf in count.columns:
        path, tally = leaf.path, count.tallies[leaf.path]
        low, high = tally.bounds
        is_sure = path not in past.doubtful
        yield ReportColumn(
            path,
            leaf.type.sql,
            _metadata(above, path, EVOLVED_FROM),
            _metadata(above, path, COMMENT),
            tuple(types.get(path, ())),
            tally.written,
            tally.nulls,
            low,
            high,
            past.first.get(path) if is_sure else None,
            past.last.get(path) if is_sure else None,
            source=tuple(_nearest(above, path, SOURCE) or ()),
            birth=find_origin(births, path),
        )


def _metadata(above: Mapping[Path, Field], path: Path, key: str) -> str:
    """Return what the nearest field that encloses a leaf says under a key; empty if none does."""
    return str(_nearest(above, path, key) or "")


def _nearest(above: Mapping[Path, Field], path: Path, key: str) -> Any:
    nearest = (above[path[:end]].metadata.get(key) for end in range(len(path), 0, -1) if path[:end] in above)
    return next((value for value in nearest if value), None)


def _corrupt_column(schema: StructType) -> Path | None:
    return next(((item.name,) for item in schema if role_of(item) == CORRUPT), None)
