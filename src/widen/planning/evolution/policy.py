"""The policy: what an ingestion may do to the schema, and how it takes the values of single fields.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import STRING, DataType
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.evolution.samples import Samples

MAX_COLUMNS = 2000
"""How many leaves a table may get by ingestion, unless told otherwise."""

ANYWHERE: Path = ()
"""Stands for all fields."""


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


class TextForm(str, Enum):
    """How a field is kept in one column of texts, whatever its values are."""

    TEXT = "text"
    """Texts as they are, other scalars as the source spells them, arrays and records as JSON."""
    JSON = "json"
    """Every value as JSON."""


class EpochUnit(str, Enum):
    """What a whole number that goes to a timestamp counts since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


Pin: TypeAlias = Mode | TextForm | DataType
"""What a field is pinned to."""


@dataclass(frozen=True, slots=True)
class FixedColumn:
    """Why a column of a table cannot yield: it gets no column beside it, and rows that do not fit it are kept out.

    Args:
        column: Its name.
        reason: What it is, e.g. ``a partition column``.
        can_widen: Its type may become wider in place.
        is_required: It must not be null.
    """

    column: str
    reason: str
    can_widen: bool = True
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What an ingestion may do to the schema, and how it takes the values of single fields.

    Fields are named by their path in the source: keys from the root, places in arrays and keys of maps passed over.

    Args:
        mode: What happens when the batch does not fit.
        pins: For single fields: a mode of their own, for them and all below them; or the type or the form of the
            column that they get when they are first seen and that is never widened.
        max_columns: How many leaves ingestion may bring the schema to.
        table_format: What can be widened in place.
        dated: The fields in which, and below which, texts that are dates or instants are taken as such.
        epoch_units: For single fields: what their whole numbers count; of others it is told by the size.
        left_out: The fields that are not looked at.
        masked: The fields whose values nobody is to see.
        guards: The fields whose columns cannot yield.
        file_fields: The names of the fields that the records have from their files.
        samples: How plans, events and commits show values of records.
    """

    mode: Mode = Mode.WIDEN
    pins: Mapping[Path, Pin] = field(default_factory=dict)
    max_columns: int = MAX_COLUMNS
    table_format: TableFormat = TableFormat.DELTA
    dated: frozenset[Path] = frozenset()
    epoch_units: Mapping[Path, EpochUnit] = field(default_factory=dict)
    left_out: frozenset[Path] = frozenset()
    masked: frozenset[Path] = frozenset()
    guards: Mapping[Path, FixedColumn] = field(default_factory=dict)
    file_fields: frozenset[str] = frozenset()
    samples: Samples = Samples.MASKED

    @property
    def refuses_nulls(self) -> bool:
        """Whether a row in which all source fields are null may be one that the table refuses."""
        return any(guard.is_required or not guard.can_widen for guard in self.guards.values())

    def mode_of(self, source: Path) -> Mode:
        """Return the mode for a field: its own pin, else that of the nearest pinned field above it.

        A field that is pinned to a type is never widened: it is split. That says nothing about what is below it.
        """
        pin = self.pins.get(source)
        if pin is not None and not isinstance(pin, Mode):
            above = self.mode_of(source[:-1])
            return Mode.SPLIT if above is Mode.WIDEN else above
        return self._nearest_mode(source)

    def keeps_booleans(self, source: Path) -> bool:
        """Tell whether booleans of a field never become numbers. They do only in mode split.

        A pin to a type does not change that: `true` and 1 stay apart beside a pinned column, too.

        Source: docs/evolution-rules.md#d18
        """
        return self._nearest_mode(source) is not Mode.SPLIT

    def _nearest_mode(self, source: Path) -> Mode:
        for length in range(len(source), 0, -1):
            pin = self.pins.get(source[:length])
            if isinstance(pin, Mode):
                return pin
        return self.mode

    def type_of(self, source: Path) -> DataType | None:
        """Return the type that a field is pinned to, if it is."""
        pin = self.pins.get(source)
        return None if isinstance(pin, Mode) else STRING if isinstance(pin, TextForm) else pin
