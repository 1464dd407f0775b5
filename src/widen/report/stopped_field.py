"""A field that stopped arriving. Each load looks for such fields, and needs nothing else of the report."""

from __future__ import annotations

from typing import Any

from widen.log.commit_files import time_text
from widen.model.column_path import Path, format_path
from widen.model.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class VersionTime:
    """A version and its commit time in ms since the epoch."""

    version: int
    time_ms: int

    def to_value(self) -> dict[str, Any]:
        """Return the point in time as a JSON object."""
        return {"version": self.version, "time": time_text(self.time_ms)}


@dataclass(frozen=True, slots=True)
class StoppedField:
    """A field that had values in earlier loads, and no longer has any.

    Args:
        source: The path of the field.
        last: The last load with a value of it.
        loads: How many loads came since.
        successor: The field that came when this one stopped, with the same types and values in the same range: likely
            its new name. Empty without such a field.
    """

    source: Path
    last: VersionTime
    loads: int
    successor: Path = ()

    def to_value(self) -> dict[str, Any]:
        """Return the field as a JSON object."""
        successor = format_path(self.successor) if self.successor else None
        return {
            "source": format_path(self.source),
            "last": self.last.to_value(),
            "loads": self.loads,
            "successor": successor,
        }
