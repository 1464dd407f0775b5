"""The result of an interval, and its events: one for each change of its plan, and one for its end.

Source: docs/evolution-rules.md#one-interval, #d17
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from widen.evolution.key_rules import KeyCounts
from widen.evolution.plan import BadFile, Grade, Plan, PlanEvent, Unmatched
from widen.model.display import html_table
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.report.stopped_field import StoppedField
from widen.sources.file_comparison import NO_COMPARISON, FileComparison

if TYPE_CHECKING:
    from widen.verification.records import Verification


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of an interval.

    Args:
        version: The version of the table that holds it; None if there is no table, and no new file for one.
        plan: The changes that it brought.
        records: The records written.
        corrupt: The lines that are not records, kept in the corrupt-record column.
        corrupt_reason: Which kind of record the first of these lines is not, and why; empty without such lines.
        not_objects: How many of these lines are JSON, but not an object, such as ``5`` or ``[1]``.
        multi_line: The position of the first line of a large file that begins a record and does not end it: the file
            needs the option ``multiLine``. None without such a line.
        files: The files written.
        size_bytes: Their size.
        left_out: Files of the source that are ignored, because their names are not of its format.
        bad_files: Files of the source that cannot be read; the quarantine names them.
        verification: The result of the verification, if requested.
        interval: Its number in its stream; None outside of a stream.
        is_repeated: Whether the table had the interval already; then nothing was written.
        quarantined: The records written to the quarantine.
        quarantine: The location of the quarantine; None without quarantined records.
        compared: The files of the source, compared with those that the table had loaded.
        is_unchanged: Whether nothing was written, because the source has no new files.
        keys: What the records did to the rows of their keys, for an ingestion by key.
    """

    version: int | None
    plan: Plan
    _: KW_ONLY
    records: int = 0
    corrupt: int = 0
    corrupt_reason: str = ""
    not_objects: int = 0
    multi_line: str | None = None
    files: int = 0
    size_bytes: int = 0
    left_out: tuple[str, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    verification: Verification | None = None
    interval: int | None = None
    is_repeated: bool = False
    quarantined: int = 0
    quarantine: str | None = None
    compared: FileComparison = NO_COMPARISON
    is_unchanged: bool = False
    keys: KeyCounts | None = None
    unavailable: Mapping[str, int] = field(default_factory=dict)

    @property
    def empty_as_null(self) -> int:
        """The number of ``[]`` and ``{}`` that no column of their field can hold: they are null in the table.

        Source: docs/evolution-rules.md#d7, #d19
        """
        return sum(each.empty + each.empty_records for each in self.plan.pending)

    def __repr__(self) -> str:
        repeated = ", repeated" if self.is_repeated else ""
        counts = f"records={self.records}, corrupt={self.corrupt}, quarantined={self.quarantined}, files={self.files}"
        keyed = "" if self.keys is None else f", {self.keys}"
        return f"IngestResult(version={self.version}, {counts}{keyed}{repeated})\n{self.plan!r}"

    def _repr_html_(self) -> str:
        names = ("version", "records", "corrupt", "quarantined", "files", "size_bytes")
        rows = ((name, getattr(self, name)) for name in names)
        return html_table("IngestResult", ("", "value"), rows) + self.plan._repr_html_()

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        proof = {} if self.verification is None else {"verification": self.verification.to_value()}
        number = {} if self.interval is None else {"interval": self.interval, "isRepeated": self.is_repeated}
        numbers = {"records": self.records, "corrupt": self.corrupt, "files": self.files, "bytes": self.size_bytes}
        numbers |= {"notObjects": self.not_objects, "quarantined": self.quarantined, "emptyAsNull": self.empty_as_null}
        numbers |= {"roundedValues": self.plan.rounded_values}
        plan, multi_line = self.plan.to_value(), {} if self.multi_line is None else {"multiLine": self.multi_line}
        files = {"leftOut": list(self.left_out), "badFiles": plan["badFiles"], "sourceFiles": self.compared.to_value()}
        keys: dict[str, Any] = {} if self.keys is None else {"keys": self.keys.to_value()}
        keys |= {"corruptReason": self.corrupt_reason} if self.corrupt else {}
        keys |= {"unavailableValues": dict(self.unavailable)} if self.unavailable else {}
        return {"version": self.version, **number, **numbers, **keys, **multi_line, **files, "plan": plan, **proof}


@dataclass(frozen=True, slots=True)
class LoadEvent:
    """The event of every interval that is committed: what it has loaded.

    Args:
        is_repeated: Whether the table had the interval already. Then nothing was written, and the other numbers are 0.
        keys: What the records did to the rows of their keys, for an ingestion by key.
        duration_ms: How long the load took, from the look at its source to the commit.
        schema: The columns of the table after the load; not part of the JSON form.
    """

    records: int
    corrupt: int
    quarantined: int
    files: int
    size_bytes: int
    is_repeated: bool = False
    keys: KeyCounts | None = None
    duration_ms: int | None = None
    schema: StructType | None = None

    @classmethod
    def of(cls, result: IngestResult, duration_ms: int) -> LoadEvent:
        counts = (result.records, result.corrupt, result.quarantined, result.files, result.size_bytes)
        return cls(*counts, result.is_repeated, result.keys, duration_ms, result.plan.schema)

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        counts = {"records": self.records, "corrupt": self.corrupt, "quarantined": self.quarantined}
        keys = {} if self.keys is None else {"keys": self.keys.to_value()}
        files = {"files": self.files, "bytes": self.size_bytes, "durationMs": self.duration_ms}
        return {**counts, **files, "isRepeated": self.is_repeated, **keys}


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """The event of an interval that fails.

    Args:
        code: The code of the error; of an error that is not one of Widen, its class.
        duration_ms: How long the load took until it failed.
    """

    code: str
    message: str
    duration_ms: int | None = None

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return {"code": self.code, "message": self.message, "durationMs": self.duration_ms}


EventDetail: TypeAlias = PlanEvent | Unmatched | BadFile | StoppedField | LoadEvent | FailureEvent
"""What an event is about."""

_KINDS: Mapping[type, str] = {
    PlanEvent: "change",
    Unmatched: "unmatched",
    BadFile: "badFile",
    StoppedField: "stopped",
    LoadEvent: "load",
    FailureEvent: "failure",
}
"""The word for each kind of event."""


@dataclass(frozen=True, slots=True)
class IntervalEvent:
    """One event of an interval: a change that it has made to a table, its end, or its failure.

    Args:
        table: The location of the table.
        version: The version that the interval made; None if it failed and nothing is visible.
        interval: The number of the interval in its stream; None outside of a stream.
        event: The change and its reason in the records; an option without effect; a file that is skipped; a field
            that has stopped arriving; what the
            interval has loaded, which is the last event of each; or why it failed.
        time_ms: When it was published, in ms since 1970 UTC.
    """

    table: str
    version: int | None
    interval: int | None
    event: EventDetail
    time_ms: int

    @property
    def kind(self) -> str:
        """The kind of the event: ``change``, ``unmatched``, ``badFile``, ``stopped``, ``load`` or ``failure``."""
        return _KINDS[type(self.event)]

    @property
    def time(self) -> datetime:
        """When it was published, in UTC."""
        return datetime.fromtimestamp(self.time_ms / 1000, timezone.utc)

    @property
    def grade(self) -> Grade | None:
        """How much the change means to readers of the table; None if the table does not change."""
        return self.event.grade if isinstance(self.event, PlanEvent) else None

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        origin = {"table": self.table, "version": self.version, "interval": self.interval}
        event = self.event
        detail = msgspec.to_builtins(event) if isinstance(event, (Unmatched, BadFile)) else event.to_value()
        return {
            "event": self.kind,
            "time": self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **origin,
            **detail,
        }


OnEvent: TypeAlias = Callable[[IntervalEvent], object]
"""Called with each event of an interval after its commit, and with an event of each interval that fails."""

OnInterval: TypeAlias = Callable[[IngestResult], object]
"""Called with the result of each interval after its commit."""
