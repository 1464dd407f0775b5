"""The report as a value: what stands in every column, what changed and when, interval by interval.

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
"""What can happen to a column. To be retyped is to change the type as type widening does not; to be routed is to get
values of a kind that was not seen before, without a change of the schema; to be changed is to get another comment,
nullability or default."""


@dataclass(frozen=True, slots=True)
class VersionTime:
    """A version and when it was committed, in ms since the epoch."""

    version: int
    time_ms: int

    def to_value(self) -> dict[str, Any]:
        """Return the moment as a JSON object."""
        return {"version": self.version, "time": time_text(self.time_ms)}


@dataclass(frozen=True, slots=True)
class ChangeReason:
    """What in a batch made a change necessary, as the ingestion recorded it.

    Args:
        rules: The rules that asked for it.
        source: The path of the source field.
        kinds: The kinds of values that it was for.
        count: How many values the batch had of them.
        grade: How much it means to readers: additive, widening, conflict or structural.
        file: Where the first of them stood; empty if not known.
        position: The line or the record in that file, from 1; 0 if not known.
        sample: The beginning of that value.
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
        told = {"rules": list(self.rules), "source": format_path(self.source), "kinds": list(self.kinds)}
        seen = {"file": self.file, "position": self.position, "sample": self.sample} if self.file else {}
        return {**told, "count": self.count, "grade": self.grade, **seen}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Args:
        what: `ADDED`, `WIDENED`, `RETYPED`, `RENAMED`, `REMOVED`, `ROUTED`, `MOVED` or `CHANGED`.
        column: Its path.
        old: The type before; of what was `RENAMED` the path before, of what was `CHANGED` how it was, in words.
            Empty if there is nothing to say.
        new: The type after; likewise the path, or how it is, and of what was `MOVED` the place.
        reasons: What made it necessary; none if somebody changed the column by hand.
    """

    what: str
    column: Path
    old: str = ""
    new: str = ""
    reasons: tuple[ChangeReason, ...] = ()

    @property
    def grade(self) -> str:
        """The gravest grade of the reasons, else what the change is by itself."""
        known = [reason.grade for reason in self.reasons]
        return max(known, key=_gravity) if known else _GRADES.get(self.what, "structural")

    def to_value(self) -> dict[str, Any]:
        """Return the change as a JSON object."""
        told = {"change": self.what, "column": format_path(self.column), "grade": self.grade}
        types = {key: text for key, text in (("from", self.old), ("to", self.new)) if text}
        return {**told, **types, "reasons": [reason.to_value() for reason in self.reasons]}


GRADES = ("additive", "widening", "conflict", "structural")
"""How much a change means to those who read the table, least first."""

_GRADES = {ADDED: "additive", ROUTED: "additive", CHANGED: "additive", MOVED: "additive", WIDENED: "widening"}


def _gravity(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else len(GRADES)


@dataclass(frozen=True, slots=True)
class IntervalRecord:
    """One commit: what it wrote and what it changed.

    Args:
        moment: When.
        operation: What the history calls it.
        records: How many rows its files hold; None if the log does not say.
        corrupt: How many of them are lines that are no record; None if the log does not say.
        files: How many files it added.
        size_bytes: Their size.
        changes: Of columns, in the order of the schema.
        parameters: What the history says of the operation.
        is_first: Whether it made the table.
        quarantined: How many records were kept out of the table; None if the log does not say.
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
        """The changes of the schema: all but new kinds of values in a column that stays as it is."""
        return tuple(change for change in self.changes if change.what != ROUTED)

    @property
    def told(self) -> tuple[ColumnChange, ...]:
        """Those of them that are told one by one: not the plain columns with which a table begins."""
        return tuple(c for c in self.schema_changes if not (self.is_first and c.grade == "additive"))

    @property
    def events(self) -> int:
        """How many things its ingestion recorded that its records made necessary."""
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
    """What made a column.

    Args:
        moment: When.
        reason: What in the records asked for it.
    """

    moment: VersionTime
    reason: ChangeReason

    def to_value(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**self.moment.to_value(), **self.reason.to_value()}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One leaf column and what the live files hold in it.

    Args:
        path: Where it stands.
        type: Its type in Spark SQL.
        evolved_from: The source field, if the column stands beside the one with the plain name; else empty.
        comment: Its comment; empty if it has none.
        types_before: The types it had, oldest first.
        written: In how many rows it has a value; None if the log does not count that.
        nulls: In how many it has none, likewise.
        low: The smallest value; None if not known. A text may be cut.
        high: The largest value, likewise.
        first: The interval that first wrote a value to it; None if not known, or if none did.
        last: The interval that last did.
        source: The source field whose values it holds; empty if it holds none.
        distinct: How many different values it has, about; None unless somebody has looked.
        samples: Some of its values, as texts.
        birth: What made it; None if that was by hand, or if the log does not say any more.
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
    birth: ColumnOrigin | None = None

    @property
    def share(self) -> float | None:
        """The share of rows that have a value in it, between 0 and 1; None if not known or if there is no row."""
        if self.written is None or self.nulls is None or self.written + self.nulls == 0:
            return None
        return self.written / (self.written + self.nulls)

    def to_value(self) -> dict[str, Any]:
        """Return the column as a JSON object; what is not known is null."""
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
            "birth": self.birth and self.birth.to_value(),
        }


@dataclass(frozen=True, slots=True)
class SourceField:
    """A source field that has several columns, for its values are of several kinds.

    Args:
        source: Its path.
        columns: The columns, in the order of the schema; of one that holds records, how many rows have one at least.
    """

    source: Path
    columns: tuple[ReportColumn, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a table holds, and how it came to be.

    Args:
        location: Where the table lies.
        moment: The version that is told of.
        rows: How many rows it has; None if a file does not say how many it holds.
        files: How many files.
        size_bytes: Their size.
        deleted: How many rows of the files are marked as deleted; the columns count them as if they were not.
        columns: The leaf columns, in the order of the schema.
        intervals: The commits that the log still has, oldest first.
        is_scanned: Whether the rows themselves were looked at; else all is from the log.
        families: The source fields with several columns, in the order of the schema.
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
        """The columns that stand beside another one, or whose type was another one."""
        return tuple(column for column in self.columns if column.evolved_from or column.types_before)

    @property
    def is_whole(self) -> bool:
        """Whether the log still has every commit; else what it tells of the past is only the end of it."""
        return bool(self.intervals) and self.intervals[0].is_first

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the numbers: which are exact, and which only bounds."""
        return tuple(_notes(self))

    @property
    def corrupt(self) -> int:
        """How many lines that are no record the intervals brought, as far as the log says."""
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
        yield "Rows, nulls, min and max are exact: every row was looked at. How many values differ is an estimate."
    else:
        yield "All is from the log: rows and nulls are exact; texts of 32 characters or more are cut in min and max."
        if any(column.written is None for column in report.columns):
            yield "A dash: the log does not say, as for values inside arrays and maps. A scan of the rows does."
        if report.deleted:
            yield f"At most: {report.deleted:,} rows of the files are marked as deleted, and still counted by column."
    if any(column.first for column in report.columns):
        early = "" if report.is_whole else " Earlier intervals are no longer in the log: the first is the first known."
        yield f"First and last are the intervals that wrote a value, whether or not it is still there.{early}"
    if any(column.birth for column in report.columns):
        yield "The values that made a column are those of its first interval: at least so many are of their kind."


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
    """Return a bound as JSON holds it exactly: what is neither whole, finite double, truth value nor text is text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return format(value, "f")
        case datetime() | date():
            return value.isoformat().replace("+00:00", "Z")
