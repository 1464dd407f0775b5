"""The policy: what an ingestion may do to the schema.

Source: spec of evolution, D1, D10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from widen.model.path import Path
from widen.model.type import DataType
from widen.planning.capability import TableFormat

MAX_COLUMNS = 2000
"""How many leaves a table may get by ingestion, unless told otherwise."""


class Mode(str, Enum):
    """What happens when a batch does not fit the schema."""

    WIDEN = "widen"
    """Widen the column in place where that is exact, else add columns."""
    SPLIT = "split"
    """Add columns; never change one."""
    FREEZE = "freeze"
    """Keep the schema; what does not fit goes to the rescue column."""
    FAIL = "fail"
    """Refuse the batch."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What an ingestion may do to the schema.

    Args:
        mode: What happens when the batch does not fit.
        pins: For single fields, by their path in the source: a mode of their own, for them and all below them, or
            the type of the column that they get when they are first seen and that is never widened.
        max_columns: How many leaves ingestion may bring the schema to.
        table_format: What can be widened in place.
    """

    mode: Mode = Mode.WIDEN
    pins: Mapping[Path, Mode | DataType] = field(default_factory=dict)
    max_columns: int = MAX_COLUMNS
    table_format: TableFormat = TableFormat.DELTA

    def mode_of(self, source: Path) -> Mode:
        """Return the mode for a field: its own pin, else that of the nearest pinned field above it.

        A field that is pinned to a type is never widened: it is split. That says nothing about what is below it.
        """
        pin = self.pins.get(source)
        if pin is not None and not isinstance(pin, Mode):
            above = self.mode_of(source[:-1])
            return Mode.SPLIT if above is Mode.WIDEN else above
        for length in range(len(source), 0, -1):
            pin = self.pins.get(source[:length])
            if isinstance(pin, Mode):
                return pin
        return self.mode

    def type_of(self, source: Path) -> DataType | None:
        """Return the type that a field is pinned to, if it is."""
        pin = self.pins.get(source)
        return None if isinstance(pin, Mode) else pin
