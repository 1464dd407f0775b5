"""The model of a report: the contents of every column and source field, and the intervals that wrote them.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from widen.evolution.plan import CORRUPT_REASON
from widen.evolution.schema_changes import ROUTED, ChangeReason, ColumnChange
from widen.model.acknowledgement import Acknowledgement
from widen.model.column_path import Path, format_path, leaves
from widen.model.types import DataType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.file_statistics import ColumnStatistics, FileStatistics
from widen.protocol.partition_values import Scalar, UnknownValue, parse_partition_value
from widen.protocol.table_configuration import TableConfiguration
from widen.report.reader_predictions import Prediction
from widen.report.stopped_field import StoppedField, VersionTime

LOG = "log"
"""Where the numbers about a Delta table are from."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The version that added a column, and why."""

    moment: VersionTime
    reason: ChangeReason

    def to_value(self) -> dict[str, Any]:
        """Return the origin as a JSON object."""
        return {**self.moment.to_value(), **self.reason.to_value()}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One leaf column and the statistics of its values in the live files.

    Args:
        type: Its type in Spark SQL.
        evolved_from: The source field, if the column is a sibling of the column with the plain name; else empty.
        comment: Its comment; empty without one.
        types_before: Its earlier types, oldest first.
        written: How many rows have a value; None if it is not known, as for elements of arrays without a scan.
        nulls: How many rows have a null; None if it is not known.
        low: The smallest value; None if not known. A string may be truncated.
        high: The largest value; None if not known. A string may be truncated.
        first: The first interval that wrote a value to it; None if it does not exist or is not known.
        last: The last interval that wrote a value to it; None if it does not exist or is not known.
        source: The source field of its values; empty without one.
        distinct: The approximate number of distinct values; None without a scan.
        origin: The ingestion change that added it; None for a manual change or if the log no longer has it.
        values: How many values it has; each value in an array or a map counts. None if it is not known.
        uncounted: How many files do not say how many values they have; the counts leave them out.
    """

    path: Path
    type: str
    evolved_from: str = ""
    comment: str = ""
    types_before: tuple[str, ...] = ()
    written: int | None = None
    nulls: int | None = None
    low: Scalar | None = None
    high: Scalar | None = None
    first: VersionTime | None = None
    last: VersionTime | None = None
    source: Path = ()
    distinct: int | None = None
    samples: tuple[str, ...] = ()
    origin: ColumnOrigin | None = None
    values: int | None = None
    uncounted: int = 0

    @property
    def is_approximate(self) -> bool:
        """Whether the counts leave out files, because neither the log nor a footer counts their values."""
        return bool(self.uncounted) and self.values is not None

    @property
    def is_empty(self) -> bool:
        """Whether the counts say that it has no value."""
        return self.values == 0 or self.written == 0

    @property
    def share(self) -> float | None:
        """The share of rows with a value, between 0 and 1; None if it is not known or there are no rows."""
        if self.written is None or self.nulls is None or self.written + self.nulls == 0:
            return None
        return self.written / (self.written + self.nulls)

    def to_value(self) -> dict[str, Any]:
        """Return the column as a JSON object; unknown values are null."""
        return {
            "column": format_path(self.path),
            "type": self.type,
            "evolvedFrom": self.evolved_from or None,
            "comment": self.comment or None,
            "typesBefore": list(self.types_before),
            "written": self.written,
            "share": self.share,
            "nulls": self.nulls,
            "values": self.values,
            "uncountedFiles": self.uncounted,
            "min": json_scalar(self.low),
            "max": json_scalar(self.high),
            "first": self.first and self.first.to_value(),
            "last": self.last and self.last.to_value(),
            "source": format_path(self.source) if self.source else None,
            "distinct": self.distinct,
            "samples": list(self.samples),
            "birth": self.origin and self.origin.to_value(),
        }


@dataclass(frozen=True, slots=True)
class IntervalCount:
    """How many values one interval wrote to each column of a source field.

    Args:
        values: The number of values of each column alone, in their order: a sibling of strings also receives the values
            of the others, which do not count here. The elements of an array count one by one.
    """

    version: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceField:
    """A source field with several columns, because it has values of several kinds.

    Args:
        columns: The columns, in schema order; the row count of a struct column is a lower bound.
        history: The values of each interval whose counts are known and not all 0, oldest first.
    """

    source: Path
    columns: tuple[ReportColumn, ...]
    history: tuple[IntervalCount, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the field as a JSON object."""
        return {
            "source": format_path(self.source),
            "columns": [format_path(each.path) for each in self.columns],
            "history": [{"version": each.version, "values": list(each.values)} for each in self.history],
        }


QUIET_LOADS = 3
"""After this many loads without a value, a column is quiet, or a field has stopped arriving."""


@dataclass(frozen=True, slots=True)
class InexactBounds:
    """How many files have bounds in the log that are not the exact values of the file.

    Args:
        is_checked: Whether the footers say so; otherwise it is the number of files that may have such bounds.
    """

    files: int = 0
    is_checked: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a table and its history.

    Args:
        rows: How many rows it has; None if a file does not record its row count.
        deleted: How many rows are deleted by deletion vectors; without a scan the column counts include them.
        columns: The leaf columns, in schema order.
        intervals: The commits that the log still has, oldest first.
        is_scanned: Whether all rows were scanned; else the numbers come from the log.
        families: The source fields with several columns, in schema order.
        footers: How many files were counted from their footers, because the log does not count all their columns.
        numbers_from: Where the numbers are from if no rows were scanned.
        options: The options that commands for the table need, e.g. its catalog.
        acknowledged: The decisions that were acknowledged.
        stopped: The fields that have stopped arriving, in schema order.
        inexact: How many files have bounds in the log with which other readers may lose rows.
        readers: What other readers do with the table; only of those that the caller asked for.
    """

    location: str
    moment: VersionTime
    rows: int | None
    files: int
    size_bytes: int
    deleted: int
    columns: tuple[ReportColumn, ...]
    intervals: tuple[IntervalRecord, ...]
    is_scanned: bool = False
    families: tuple[SourceField, ...] = ()
    footers: int = 0
    numbers_from: str = LOG
    options: str = ""
    acknowledged: tuple[Acknowledgement, ...] = ()
    stopped: tuple[StoppedField, ...] = ()
    inexact: InexactBounds = field(default_factory=InexactBounds)
    readers: tuple[Prediction, ...] = ()

    def is_acknowledged(self, subject: str, time_ms: int) -> bool:
        """Return whether what a commit of that time did was acknowledged under a subject."""
        return any(each.subject == subject and each.covers(time_ms) for each in self.acknowledged)

    @property
    def command_name(self) -> str:
        """The table as commands name it, with the options that they need."""
        return shlex.quote(self.location) + (f" {self.options}" if self.options else "")

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.location.rstrip("/").rpartition("/")[2] or self.location

    @property
    def evolved(self) -> tuple[ReportColumn, ...]:
        """The columns that are siblings of another column or had another type before."""
        return tuple(column for column in self.columns if column.evolved_from or column.types_before)

    @property
    def is_whole(self) -> bool:
        """Whether the log still has every commit of the table."""
        return bool(self.intervals) and self.intervals[0].is_first

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that say whether numbers are exact, bounds or estimates."""
        return tuple(_notes(self))

    @property
    def corrupt(self) -> int:
        """How many corrupt records its loads wrote, if the log records it."""
        return sum(interval.corrupt or 0 for interval in self.intervals if interval.is_load)

    def to_value(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "location": self.location,
            **self.moment.to_value(),
            "rows": self.rows,
            "files": self.files,
            "bytes": self.size_bytes,
            "deletedRows": self.deleted,
            "scanned": self.is_scanned,
            "notes": list(self.notes),
            "columns": [column.to_value() for column in self.columns],
            "footers": self.footers,
            "families": [family.to_value() for family in self.families],
            "stopped": [field.to_value() for field in self.stopped],
            "intervals": [interval.to_value() for interval in self.intervals],
            **({"readers": [each.to_value() for each in self.readers]} if self.readers else {}),
        }


def _notes(report: Report) -> Iterator[str]:
    if report.is_scanned:
        yield "Rows, nulls, min and max are exact: all rows were scanned. Distinct counts are estimates."
    else:
        truncated = "strings to 32 characters" if report.numbers_from == LOG else "long strings"
        yield f"The numbers are from the {report.numbers_from}{_footers(report)}; min and max truncate {truncated}."
        if any(column.written is None and column.values for column in report.columns):
            yield "Inside arrays and maps each value counts; only a scan counts the rows that have one."
        if report.numbers_from == LOG:
            yield from _footer_notes(report)
        elif any(column.uncounted for column in report.columns):
            yield "A dash or ≈ means that some files have no count; `write.metadata.metrics.default` asks for them."
        if report.deleted:
            yield f"Column counts are upper bounds: they include {report.deleted:,} deleted rows still in the files."
    if any(column.first for column in report.columns):
        early = "" if report.is_whole else f" Earlier intervals are no longer in the {report.numbers_from}."
        yield f"First and last are the intervals that wrote a value, even if it was deleted later.{early}"
    if any(column.origin for column in report.columns):
        yield "The value counts of an added column are from its first interval; later intervals may have more."


def _footer_notes(report: Report) -> Iterator[str]:
    if any(column.values is None for column in report.columns):
        yield "A dash means that neither the log nor a footer has a count; --footers or --scan counts."
    if any(column.is_approximate for column in report.columns):
        yield "Approximate (≈) counts leave out files whose footers were not read; --footers reads them."


def _footers(report: Report) -> str:
    files = "file" if report.footers == 1 else "files"
    return f" and the footers of {report.footers:,} {files}" if report.footers else ""


# The commits of a report: their versions, records and column changes, with the reasons for them.
#
# Source: docs/evolution-rules.md#report


_REWRITES = frozenset({"DELETE", "FOLD COLUMN", "OPTIMIZE", "REORG", "RESTORE", "UPDATE", "replace"})
"""The operations that rewrite rows; the last one is Iceberg's word for a compaction."""


@dataclass(frozen=True, slots=True)
class IntervalRecord:
    """One commit with its written records and column changes.

    Args:
        rows: How many rows its files have; None if the log does not record it.
        corrupt: How many of them keep a line that is not a record; None if the log does not record it.
        quarantined: How many records were quarantined; None if the log does not record it.
        changed_rows: How many rows it inserted, updated and deleted, as its metrics say.
        rounded: How many numbers its ingestion rounded to doubles.
    """

    moment: VersionTime
    operation: str
    rows: int | None
    corrupt: int | None
    files: int
    size_bytes: int
    changes: tuple[ColumnChange, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_first: bool = False
    quarantined: int | None = None
    changed_rows: Mapping[str, int] = field(default_factory=dict)
    rounded: int = 0

    @property
    def records(self) -> int | None:
        """How many records it wrote; None if the log does not record it."""
        return None if self.rows is None else max(0, self.rows - (self.corrupt or 0))

    @property
    def corrupt_reason(self) -> str:
        """Why the first text that it kept whole is not a record; empty if the log does not record it."""
        return str(self.parameters.get(CORRUPT_REASON, ""))

    @property
    def is_load(self) -> bool:
        """Whether it loaded records, also such as it quarantined; what only rewrites rows loads none."""
        return self.operation not in _REWRITES and bool(self.records or self.corrupt or self.quarantined)

    @property
    def schema_changes(self) -> tuple[ColumnChange, ...]:
        """The changes without `ROUTED`, which does not change the schema."""
        return tuple(change for change in self.changes if change.what != ROUTED)

    @property
    def listed_changes(self) -> tuple[ColumnChange, ...]:
        """The schema changes to list one by one: without the plain columns of a new table."""
        return tuple(c for c in self.schema_changes if not (self.is_first and c.grade == "additive"))

    @property
    def events(self) -> int:
        """How many events its ingestion recorded."""
        return sum(len(change.reasons) for change in self.changes)

    def to_value(self) -> dict[str, Any]:
        """Return the interval as a JSON object."""
        return {
            **self.moment.to_value(),
            "operation": self.operation,
            "records": self.records,
            "corrupt": self.corrupt,
            **({"corruptReason": self.corrupt_reason} if self.corrupt_reason else {}),
            "quarantined": self.quarantined,
            "rounded": self.rounded,
            "events": self.events,
            "files": self.files,
            "bytes": self.size_bytes,
            "changes": [change.to_value() for change in self.changes],
        }


def json_scalar(value: Scalar | None) -> Any:
    """Return a bound as an exact JSON value; types that JSON does not have become strings."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return format(value, "f")
        case datetime() | date():
            return value.isoformat().replace("+00:00", "Z")


# Count values and nulls of every leaf column from file statistics; missing statistics make a count unknown.
#
# Source: PROTOCOL.md#per-file-statistics


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf column.

    Args:
        path: Its logical path.
        physical: Its physical path in the files.
        is_counted: Whether statistics can count its nulls, which needs a path without arrays and maps.
        partition_key: The key of its partition values; empty unless it is a partition column.
    """

    path: Path
    physical: Path
    type: DataType
    is_counted: bool
    partition_key: str = ""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts of one file that are counted.

    Args:
        missing: The leaves that did not exist yet when it was written.
        values: How many values each leaf has, by physical path, if the commit or the footer has the number.
    """

    stats: str | None
    partition_values: Mapping[str, str | None]
    missing: frozenset[Path] = frozenset()
    values: Mapping[Path, int] = field(default_factory=dict)


@dataclass(slots=True)
class ColumnTally:
    """The counts and bounds of one leaf over the files counted so far.

    Args:
        rows: How many rows the files have whose count is known.
        values: How many values the leaf has in them; each value in an array or a map counts.
        uncounted: How many files do not say how many values they have.
        is_bounded: Whether each file with a value records its bounds.
    """

    files: int = 0
    rows: int = 0
    values: int = 0
    uncounted: int = 0
    low: Any = None
    high: Any = None
    is_bounded: bool = True

    def add(self, rows: int, values: int | None, statistics: ColumnStatistics) -> None:
        """Count one more file."""
        self.files += 1
        if values is None:
            self.uncounted += 1
        else:
            self.rows += rows
            self.values += values
        if values != 0:
            self._bound(statistics.low, statistics.high)

    @property
    def is_known(self) -> bool:
        """Whether every file says how many values it has, or those that do have some."""
        return not self.uncounted or self.values > 0

    def _bound(self, low: Any, high: Any) -> None:
        self.is_bounded = self.is_bounded and low is not None and high is not None
        if self.is_bounded:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    @property
    def bounds(self) -> tuple[Scalar | None, Scalar | None]:
        """The smallest and the largest value; None if a file does not record its own."""
        return (self.low, self.high) if self.is_bounded else (None, None)


@dataclass(slots=True)
class ColumnCounts:
    """The tallies of all leaves over the files counted so far.

    Args:
        rows: How many rows the files hold; None if a file does not record its row count.
    """

    columns: Sequence[LeafColumn]
    rows: int | None = 0
    tallies: dict[Path, ColumnTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tallies = {leaf.path: ColumnTally() for leaf in self.columns}

    def add(self, file: FileFacts) -> None:
        """Count one more file."""
        stats = FileStatistics(file.stats)
        rows = stats.rows
        self.rows = None if rows is None or self.rows is None else self.rows + rows
        for leaf in self.columns:
            tally = self.tallies[leaf.path]
            if rows is None:
                tally.add(0, None, ColumnStatistics())
            else:
                statistics = _leaf_statistics(stats, leaf, file, rows)
                tally.add(rows, _count_values(leaf, file, rows, statistics), statistics)

    def written_rows(self, leaf: LeafColumn) -> int | None:
        """Return how many rows have a value; None if it is not known, as inside arrays and maps."""
        tally = self.tallies[leaf.path]
        return tally.values if tally.is_known and (leaf.is_counted or not tally.values) else None


def leaves_of(table: TableConfiguration, keys: Mapping[str, str]) -> list[LeafColumn]:
    """Return the leaf columns of a schema in its order.

    Args:
        keys: The partition value keys, by partition column.
    """
    schema, mode = table.schema, table.mapping
    struct_leaves = set(_struct_leaves(schema))
    return [
        LeafColumn(path, to_physical_path(schema, path, mode), leaf, path in struct_leaves, keys.get(path[0], ""))
        for path, leaf in leaves(schema)
    ]


def _struct_leaves(struct: StructType, parent: Path = ()) -> Iterator[Path]:
    """Yield the paths of the fields that only structs enclose."""
    for item in struct:
        if isinstance(item.type, StructType):
            yield from _struct_leaves(item.type, (*parent, item.name))
        else:
            yield (*parent, item.name)


def _leaf_statistics(stats: FileStatistics, leaf: LeafColumn, file: FileFacts, rows: int) -> ColumnStatistics:
    if leaf.path in file.missing:
        return ColumnStatistics(nulls=rows)
    if leaf.partition_key:
        value = parse_partition_value(file.partition_values.get(leaf.partition_key), leaf.type)
        bound = None if isinstance(value, UnknownValue) else value
        return ColumnStatistics(bound, bound, rows if value is None else 0)
    return stats.column(leaf.physical, leaf.type)


def _count_values(leaf: LeafColumn, file: FileFacts, rows: int, statistics: ColumnStatistics) -> int | None:
    """Return how many values a leaf has in a file; None if neither the commit, the footer nor the statistics say so."""
    if leaf.path in file.missing:
        return 0
    if (leaf.is_counted or leaf.partition_key) and statistics.nulls is not None:
        return rows - statistics.nulls
    return file.values.get(leaf.physical)
