"""The plan: the schema changes that a batch needs, as one value that is explained, checked and executed.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

import msgspec

from widen.model.column_path import Path
from widen.model.notebook import html_table, list_lines, shorten
from widen.model.schema_json import type_to_value
from widen.model.types import StructType
from widen.observe.observation import RecordPosition
from widen.planning.evolution.map_detection import MapCandidate
from widen.planning.evolution.unmatched_fields import Unmatched
from widen.planning.table.operation import Operation

REPLAY_PREFIX = "widen-replay-"
"""The first letters of the query that a commit names if it moved records from a quarantine to its table."""

QUARANTINED = "numQuarantinedRecords"
"""The metric for the number of records that an interval quarantined."""

BAD_FILES = "numBadFiles"
"""The metric for the number of files that an interval skipped, because they cannot be read."""

ROUNDED = "numRoundedValues"
"""The metric for the number of values that an interval rounded to doubles."""

CORRUPT_TEXTS = "numCorruptTexts"
"""The metric for the number of texts in an interval that are not records. File statistics do not replace it: they exist
only if the column for these texts is among the first ones of the table."""


class Grade(str, Enum):
    """How much a change affects readers of the table."""

    ADDITIVE = "additive"
    """A new field."""
    WIDENING = "widening"
    """A column gets a wider type; its values stay equal."""
    CONFLICT = "conflict"
    """A field has values of types that no single column holds."""
    STRUCTURAL = "structural"
    """A field changes between scalars, arrays and records."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One change of the plan, with the values in the batch that require it.

    Args:
        rules: The rules that require it, e.g. ``("U8",)``.
        source: The path of the source field; empty for texts that are not records.
        kinds: The kinds that it is for, e.g. ``("long[]",)``.
        column: The path of the column, with steps into arrays.
        count: The number of values of these kinds in the batch.
        first: The file and position of the first of them.
        sample: The beginning of that value.
        grade: How much it affects readers.
        at_least: Whether there may be more values: a large batch is not counted to its end.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    column: Path
    count: int
    first: RecordPosition | None
    sample: str
    grade: Grade
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class RescuedField:
    """Values that go to the rescue column, since no column may be added for them.

    Args:
        source: The path of the source field.
        kinds: Their kinds.
        count: The number of values.
        first: The file and position of the first of them.
        sample: The beginning of that value.
        reason: The mode ``freeze``, ``max_columns``, or ``max_levels`` for what is nested too deeply.
        at_least: As in `PlanEvent`.
    """

    source: Path
    kinds: tuple[str, ...]
    count: int
    first: RecordPosition | None
    sample: str
    reason: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class RoundedField:
    """Numbers that are rounded to doubles, since the policy asks for that."""

    source: Path
    count: int


@dataclass(frozen=True, slots=True)
class QuarantinedField:
    """Values that do not fit a fixed column, so that their records are quarantined.

    Args:
        source: The path of the source field.
        column: Why the column is fixed, e.g. ``a partition column``.
        kinds: The kinds of the values; ``null`` for a missing value of a NOT NULL column.
        count: The number of values.
        first: The file and position of the first of them.
        sample: The beginning of that value.
    """

    source: Path
    column: str
    kinds: tuple[str, ...]
    count: int
    first: RecordPosition | None
    sample: str


@dataclass(frozen=True, slots=True)
class PendingField:
    """A field with only nulls and empties in the batch, for which no column can be created yet.

    Args:
        source: The path of the source field.
        nulls: The number of nulls, including those in arrays.
        empty: The number of ``[]`` that no column of the field holds.
        empty_records: The number of ``{}`` that no column of the field holds.
    """

    source: Path
    nulls: int
    empty: int
    empty_records: int


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file of the source that cannot be read or is parked; the quarantine names it.

    Args:
        modified_ms: The time of its last modification, in ms since 1970 UTC.
        content: A hash of its content; empty if it was not computed.
        is_parked: Whether the file can be read, but a batch with it is over a limit.
    """

    path: str
    reason: str
    size_bytes: int = 0
    modified_ms: int = 0
    content: str = ""
    is_parked: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The schema changes that a batch needs, and what happens to values without a column.

    Args:
        operations: The changes of the schema, in the order to apply them.
        schema: The schema after the operations.
        events: The reasons for the operations.
        pending: The fields that wait for their first value.
        rescued: The values for the rescue column.
        refused: The changes that the policy forbids. If there are any, nothing may be written.
        quarantined: The values whose records are quarantined.
        unmatched: The rules of the policy that have no effect.
        bad_files: The files that cannot be read and are skipped.
        maps: The fields whose objects look like maps, but become records.
        rounded: The fields with numbers that are rounded to doubles.
        source_table: The version of a table that was read as the source; empty for other sources.
    """

    operations: tuple[Operation, ...]
    schema: StructType
    events: tuple[PlanEvent, ...] = ()
    pending: tuple[PendingField, ...] = ()
    rescued: tuple[RescuedField, ...] = ()
    refused: tuple[Operation, ...] = ()
    quarantined: tuple[QuarantinedField, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    maps: tuple[MapCandidate, ...] = ()
    rounded: tuple[RoundedField, ...] = ()
    source_table: str = ""

    @property
    def rounded_values(self) -> int:
        """How many numbers of the batch are rounded to doubles."""
        return sum(each.count for each in self.rounded)

    @property
    def is_empty(self) -> bool:
        """Whether the schema does not change and nothing is refused."""
        return not self.operations and not self.refused

    @property
    def keeps_values_out(self) -> bool:
        """Whether the policy refuses changes, or values go to the rescue column or their records to the quarantine."""
        return bool(self.refused or self.rescued or self.quarantined)

    @property
    def hash(self) -> str:
        """A hash of the decisions. It is the same on every machine, and does not depend on counts and samples."""
        items: tuple[RescuedField | QuarantinedField, ...] = (*self.rescued, *self.quarantined)
        remaining = [(*item.source, "", *item.kinds) for item in items]
        decided = {key: self.to_value()[key] for key in ("operations", "refused", "schema")} | {
            "left": sorted(remaining)
        }
        return sha256(msgspec.json.encode(decided, order="deterministic")).hexdigest()

    def __repr__(self) -> str:
        refused = f", {len(self.refused)} refused" if self.refused else ""
        head = f"Plan({len(self.operations)} operations{refused}, hash={self.hash[:12]})"
        return list_lines(head, (shorten(str(operation), 98) for operation in (*self.operations, *self.refused)))

    def _repr_html_(self) -> str:
        kinds = [(each, "") for each in self.operations] + [(each, "refused") for each in self.refused]
        rows = ((type(each).__name__, shorten(str(each)), note) for each, note in kinds)
        return html_table(f"Plan {self.hash[:12]}", ("operation", "details", ""), rows)

    def logged_events(self) -> list[Mapping[str, Any]]:
        """Return the events for the log of the table.

        A field inside a column that the plan adds has no separate event, unless it brings a conflict: a record
        with thousands of fields must not fill the log.
        """
        columns = {event.column for event in self.events}
        return [
            _value(event)
            for event in self.events
            if event.grade is not Grade.ADDITIVE
            or not any(event.column[:length] in columns for length in range(1, len(event.column)))
        ]

    def to_value(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return {
            "operations": [operation.to_value() for operation in self.operations],
            "refused": [operation.to_value() for operation in self.refused],
            "schema": type_to_value(self.schema),
            "events": [_value(event) for event in self.events],
            "pending": [_value(pending) for pending in self.pending],
            "rescued": [_value(rescued) for rescued in self.rescued],
            "quarantined": [_value(quarantined) for quarantined in self.quarantined],
            "unmatched": [_value(unmatched) for unmatched in self.unmatched],
            "badFiles": [_value(file) for file in self.bad_files],
            "maps": [_value(candidate) for candidate in self.maps],
            "rounded": [_value(each) for each in self.rounded],
        }


def _value(item: object) -> Mapping[str, Any]:
    value: Mapping[str, Any] = msgspec.to_builtins(item)
    return value
