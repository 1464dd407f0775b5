"""The plan: what a batch needs, as one value that is decided, explained, checked and executed.

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
from widen.model.notebook import MAX_ROWS, html_table, shortened
from widen.model.schema_json import type_to_value
from widen.model.types import StructType
from widen.observe.observation import RecordPosition
from widen.planning.evolution.unmatched_fields import Unmatched
from widen.planning.table.operation import Operation

QUARANTINED = "numQuarantinedRecords"
"""The metric that says how many records an interval kept out of the table."""

CORRUPT_TEXTS = "numCorruptTexts"
"""The metric that says how many texts of an interval are not records. The statistics of files tell it only where the
column of these texts is among the first ones of the table."""


class Grade(str, Enum):
    """How much a change means for those who read the table."""

    ADDITIVE = "additive"
    """A field that was not there before."""
    WIDENING = "widening"
    """A column holds more than before; what it held it holds as before."""
    CONFLICT = "conflict"
    """A field has values of types that one column does not hold."""
    STRUCTURAL = "structural"
    """A field changes between single values, arrays and records."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One thing that the plan does, and what in the batch made it necessary.

    Args:
        rules: The rules that ask for it, e.g. ``("U8",)``.
        source: The path of the source field; empty for lines that are no record.
        kinds: The kinds that it is for, e.g. ``("long[]",)``.
        column: Where the column stands, with steps into arrays.
        count: How many values the batch has of these kinds.
        first: The file and the position of the first of them.
        sample: The beginning of that value.
        grade: How much it means.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    column: Path
    count: int
    first: RecordPosition | None
    sample: str
    grade: Grade


@dataclass(frozen=True, slots=True)
class RescuedField:
    """Values that go to the rescue column, since no other may be made for them.

    Args:
        source: The path of the source field.
        kinds: Their kinds.
        count: How many they are.
        first: The file and the position of the first of them.
        sample: The beginning of that value.
        reason: Why: the mode, or the bound on columns.
    """

    source: Path
    kinds: tuple[str, ...]
    count: int
    first: RecordPosition | None
    sample: str
    reason: str


@dataclass(frozen=True, slots=True)
class QuarantinedField:
    """Values that keep their records out of the table, since their columns cannot yield.

    Args:
        source: The path of the source field.
        column: Why its column cannot: what it is.
        kinds: The kinds of the values; ``null`` for one that has to be there.
        count: How many they are.
        first: The file and the position of the first of them.
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
    """A field of which the batch has only what no column can be made for.

    Args:
        source: The path of the source field.
        nulls: How many nulls, those in arrays too.
        empty: How many ``[]`` that no column of the field holds.
        empty_records: How many ``{}`` that no column of the field holds.
    """

    source: Path
    nulls: int
    empty: int
    empty_records: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch needs.

    Args:
        operations: The changes to the schema, in the order to apply them.
        schema: The schema after them.
        events: What they are for.
        pending: The fields that wait for their first value.
        rescued: The values for the rescue column.
        refused: The changes that the batch needs and the policy forbids; if there are any, nothing may be written.
        quarantined: The values that keep their records out of the table.
        unmatched: What the policy says of fields that are not there.
    """

    operations: tuple[Operation, ...]
    schema: StructType
    events: tuple[PlanEvent, ...] = ()
    pending: tuple[PendingField, ...] = ()
    rescued: tuple[RescuedField, ...] = ()
    refused: tuple[Operation, ...] = ()
    quarantined: tuple[QuarantinedField, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the schema stays as it is and nothing is refused."""
        return not self.operations and not self.refused

    @property
    def hash(self) -> str:
        """The same text for the same decisions, on every machine, however many values they are for."""
        items: tuple[RescuedField | QuarantinedField, ...] = (*self.rescued, *self.quarantined)
        left = [(*item.source, "", *item.kinds) for item in items]
        decided = {key: self.to_value()[key] for key in ("operations", "refused", "schema")} | {"left": sorted(left)}
        return sha256(msgspec.json.encode(decided, order="deterministic")).hexdigest()

    def __repr__(self) -> str:
        lines = [f"  {operation}" for operation in (*self.operations, *self.refused)]
        refused = f", {len(self.refused)} refused" if self.refused else ""
        head = f"Plan({len(self.operations)} operations{refused}, hash={self.hash[:12]})"
        return "\n".join(
            [head, *(shortened(line) for line in lines[:MAX_ROWS]), *(["  …"] if lines[MAX_ROWS:] else [])]
        )

    def _repr_html_(self) -> str:
        kinds = [(each, "") for each in self.operations] + [(each, "refused") for each in self.refused]
        rows = ((type(each).__name__, shortened(str(each)), note) for each, note in kinds)
        return html_table(f"Plan {self.hash[:12]}", ("operation", "details", ""), rows)

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
        }


def _value(item: object) -> Mapping[str, Any]:
    value: Mapping[str, Any] = msgspec.to_builtins(item)
    return value
