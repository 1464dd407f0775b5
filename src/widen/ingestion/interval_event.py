"""What is told of an interval to those who watch: one event for each thing that its plan has done.

Source: docs/evolution-rules.md#d17
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from widen.planning.evolution.plan import Grade, PlanEvent
from widen.planning.evolution.unmatched_fields import Unmatched


@dataclass(frozen=True, slots=True)
class IntervalEvent:
    """One thing that an interval has done to a table.

    Args:
        table: Where the table lies.
        version: The version that the interval made.
        interval: The number of the interval in its stream; None where it is of no stream.
        event: What was done, and what in the records made it necessary; or what the policy said without effect.
    """

    table: str
    version: int
    interval: int | None
    event: PlanEvent | Unmatched

    @property
    def grade(self) -> Grade | None:
        """How much it means for those who read the table; None for what has no effect on it."""
        return self.event.grade if isinstance(self.event, PlanEvent) else None

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        place = {"table": self.table, "version": self.version, "interval": self.interval}
        return {**place, **msgspec.to_builtins(self.event)}
