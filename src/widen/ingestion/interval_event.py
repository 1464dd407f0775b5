"""Events of an interval: one for each change of its plan, published after the commit.

Source: docs/evolution-rules.md#d17
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from widen.planning.evolution.plan import BadFile, Grade, PlanEvent
from widen.planning.evolution.unmatched_fields import Unmatched


@dataclass(frozen=True, slots=True)
class IntervalEvent:
    """One change that an interval has made to a table.

    Args:
        table: The location of the table.
        version: The version that the interval made.
        interval: The number of the interval in its stream; None outside of a stream.
        event: The change and its reason in the records; an option without effect; or a file that is skipped.
    """

    table: str
    version: int
    interval: int | None
    event: PlanEvent | Unmatched | BadFile

    @property
    def grade(self) -> Grade | None:
        """How much the change means to readers of the table; None if the table does not change."""
        return self.event.grade if isinstance(self.event, PlanEvent) else None

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        origin = {"table": self.table, "version": self.version, "interval": self.interval}
        return {**origin, **msgspec.to_builtins(self.event)}
