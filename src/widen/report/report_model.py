"""The commits of a report: their versions, records and column changes, with the reasons for them.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from widen.log.read.commit_timestamps import time_text
from widen.planning.table.column_change import ROUTED, ColumnChange
from widen.protocol.partition_values import Scalar


@dataclass(frozen=True, slots=True)
class VersionTime:
    """A version and its commit time in ms since the epoch."""

    version: int
    time_ms: int

    def to_value(self) -> dict[str, Any]:
        """Return the moment as a JSON object."""
        return {"version": self.version, "time": time_text(self.time_ms)}


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
