"""The commits of a report: their versions, records and column changes, with the reasons for them.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
