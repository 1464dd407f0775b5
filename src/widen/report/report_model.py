"""The model of a report: the contents of every column, and the changes of each interval.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from widen.model.column_path import Path, format_path
from widen.protocol.partition_values import Scalar

ADDED, WIDENED, RETYPED, RENAMED, REMOVED, ROUTED = "added", "widened", "retyped", "renamed", "removed", "routed"
MOVED, CHANGED = "moved", "changed"
"""The kinds of column changes. `RETYPED` is a change of type that is not a widening. `ROUTED` means that a column
receives values of a new kind without a schema change. `CHANGED` is a new comment, nullability or default."""


@dataclass(frozen=True, slots=True)
class VersionTime:
    """A version and its commit time in ms since the epoch."""

    version: int
    time_ms: int

    def to_value(self) -> dict[str, Any]:
        """Return the moment as a JSON object."""
        return {"version": self.version, "time": time_text(self.time_ms)}


@dataclass(frozen=True, slots=True)
class ChangeReason:
    """Why a batch needed a change, as the ingestion recorded it.

    Args:
        rules: The codes of the rules that apply.
        source: The path of the source field.
        kinds: The kinds of the values.
        count: How many such values the batch has.
        grade: The effect on readers: additive, widening, conflict or structural.
        file: The file of the first such value; empty if not known.
        position: The line or record number in that file, from 1; 0 if not known.
        sample: The beginning of the first such value.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    count: int
    grade: str
    file: str = ""
    position: int = 0
    sample: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the reason as a JSON object."""
        reason = {"rules": list(self.rules), "source": format_path(self.source), "kinds": list(self.kinds)}
        first_seen = {"file": self.file, "position": self.position, "sample": self.sample} if self.file else {}
        return {**reason, "count": self.count, "grade": self.grade, **first_seen}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Args:
        what: `ADDED`, `WIDENED`, `RETYPED`, `RENAMED`, `REMOVED`, `ROUTED`, `MOVED` or `CHANGED`.
        column: Its path.
        old: The old type; for `RENAMED` the old path, for `CHANGED` the old value in words. Empty if there is none.
        new: The new type; for `RENAMED` the new path, for `CHANGED` the new value, for `MOVED` the new position.
        reasons: Why an ingestion made it; empty for a manual change.
    """

    what: str
    column: Path
    old: str = ""
    new: str = ""
    reasons: tuple[ChangeReason, ...] = ()

    @property
    def grade(self) -> str:
        """The most severe grade of the reasons; without reasons the default grade of this kind of change."""
        grades = [reason.grade for reason in self.reasons]
        return max(grades, key=_severity) if grades else _GRADES.get(self.what, "structural")

    def to_value(self) -> dict[str, Any]:
        """Return the change as a JSON object."""
        change = {"change": self.what, "column": format_path(self.column), "grade": self.grade}
        types = {key: text for key, text in (("from", self.old), ("to", self.new)) if text}
        return {**change, **types, "reasons": [reason.to_value() for reason in self.reasons]}


GRADES = ("additive", "widening", "conflict", "structural")
"""The grades of changes by their effect on readers, least severe first."""

_GRADES = {ADDED: "additive", ROUTED: "additive", CHANGED: "additive", MOVED: "additive", WIDENED: "widening"}


def _severity(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else len(GRADES)


@dataclass(frozen=True, slots=True)
class IntervalRecord:
    """One commit with its written records and column changes.

    Args:
        moment: Its version and time.
        operation: The operation name in the history.
        records: How many rows its files have; None if the log does not record it.
        corrupt: How many of them are corrupt records; None if the log does not record it.
        files: How many files it added.
        size_bytes: The size of the added files.
        changes: The column changes, in schema order.
        parameters: The operation parameters in the history.
        is_first: Whether it created the table.
        quarantined: How many records were quarantined; None if the log does not record it.
    """

    moment: VersionTime
    operation: str
    records: int | None
    corrupt: int | None
    files: int
    size_bytes: int
    changes: tuple[ColumnChange, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_first: bool = False
    quarantined: int | None = None

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
            "quarantined": self.quarantined,
            "events": self.events,
            "files": self.files,
            "bytes": self.size_bytes,
            "changes": [change.to_value() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The version that added a column, and why.

    Args:
        moment: The version and its time.
        reason: Why the records needed the column.
    """

    moment: VersionTime
    reason: ChangeReason

    def to_value(self) -> dict[str, Any]:
        """Return the origin as a JSON object."""
        return {**self.moment.to_value(), **self.reason.to_value()}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One leaf column and the statistics of its values in the live files.

    Args:
        path: Its path.
        type: Its type in Spark SQL.
        evolved_from: The source field, if the column is a sibling of the column with the plain name; else empty.
        comment: Its comment; empty if it has none.
        types_before: Its earlier types, oldest first.
        written: How many rows have a value; None if the log does not count them.
        nulls: How many rows have a null; None if the log does not count them.
        low: The smallest value; None if not known. A string may be truncated.
        high: The largest value; None if not known. A string may be truncated.
        first: The first interval that wrote a value to it; None if there is none or it is not known.
        last: The last interval that wrote a value to it; None if there is none or it is not known.
        source: The source field of its values; empty if it has none.
        distinct: The approximate number of distinct values; None without a scan.
        samples: Some of its values, as strings.
        origin: The ingestion change that added it; None for a manual change or if the log no longer has it.
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
class SourceField:
    """A source field with several columns, because it has values of several kinds.

    Args:
        source: Its path.
        columns: The columns, in schema order; the row count of a struct column is a lower bound.
    """

    source: Path
    columns: tuple[ReportColumn, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a table and its history.

    Args:
        location: The location of the table.
        moment: The reported version and its time.
        rows: How many rows it has; None if a file does not record its row count.
        files: How many files it has.
        size_bytes: The size of the files.
        deleted: How many rows are deleted by deletion vectors; without a scan the column counts include them.
        columns: The leaf columns, in schema order.
        intervals: The commits that the log still has, oldest first.
        is_scanned: Whether all rows were scanned; else the numbers come from the log.
        families: The source fields with several columns, in schema order.
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
        """Notes on which numbers are exact and which are bounds or estimates."""
        return tuple(_notes(self))

    @property
    def corrupt(self) -> int:
        """How many corrupt records the intervals wrote, as far as the log records it."""
        return sum(interval.corrupt or 0 for interval in self.intervals)

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
            "families": [
                {"source": format_path(family.source), "columns": [format_path(each.path) for each in family.columns]}
                for family in self.families
            ],
            "intervals": [interval.to_value() for interval in self.intervals],
        }


def _notes(report: Report) -> Iterator[str]:
    if report.is_scanned:
        yield "Rows, nulls, min and max are exact: all rows were scanned. Distinct counts are estimates."
    else:
        yield "All numbers are from the log. Rows and nulls are exact; min and max truncate strings to 32 characters."
        if any(column.written is None for column in report.columns):
            yield "A dash means that the log has no count, as for values inside arrays and maps. A scan counts them."
        if report.deleted:
            yield f"Column counts are upper bounds: they include {report.deleted:,} deleted rows still in the files."
    if any(column.first for column in report.columns):
        early = "" if report.is_whole else " Earlier intervals are no longer in the log."
        yield f"First and last are the intervals that wrote a value, even if it was deleted later.{early}"
    if any(column.origin for column in report.columns):
        yield "The value counts of an added column are from its first interval; later intervals may have more."


def time_text(time_ms: int) -> str:
    """Return a time in ms since the epoch as ISO text in UTC.

    Example:
        >>> time_text(1_700_000_000_123)
        '2023-11-14T22:13:20.123Z'
    """
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
