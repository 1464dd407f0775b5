"""The policy: which schema changes an ingestion may make, and how it reads single fields.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import STRING, VOID, DataType, MapType, StructType
from widen.observe.json_stream_split import MAX_RECORD_BYTES
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.evolution.samples import Samples

MAX_COLUMNS = 2000
MAX_KEYS = 10_000
"""The default limit of leaves in a table that ingestion adds columns to."""

ANYWHERE: Path = ()
"""The path that stands for all fields."""


class Mode(str, Enum):
    """What happens when a batch does not fit the schema."""

    WIDEN = "widen"
    """Widen the column in place if that is exact, else add columns."""
    SPLIT = "split"
    """Add columns; never change existing ones."""
    FREEZE = "freeze"
    """Keep the schema. Values that do not fit go to the rescue column."""
    FAIL = "fail"
    """Refuse the batch."""


class TextForm(str, Enum):
    """How a field is stored in one string column, whatever its values are."""

    TEXT = "text"
    """Strings as they are, other scalars as spelled in the source, arrays and records as JSON."""
    JSON = "json"
    """Every value as JSON."""


class EpochUnit(str, Enum):
    """The unit of integers that are converted to timestamps, counted since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class Numbers(str, Enum):
    """What fractions become."""

    EXACT = "exact"
    """A double where that is exact, else a decimal."""
    DECIMAL = "decimal"
    """A decimal with the digits as written, so that 12.50 stays 12.50."""
    DOUBLE = "double"
    """A double, rounded where a double cannot hold the number, so that a field of fractions stays one column."""


Pin: TypeAlias = Mode | TextForm | DataType
"""What a field can be pinned to."""

ANY_MAP = MapType(STRING, VOID)
"""The pin that reads objects as maps and leaves the type of the values to the rules."""


@dataclass(frozen=True, slots=True)
class FixedColumn:
    """A column that ingestion must not reroute: it gets no evolved column, and records that do not fit are quarantined.

    Args:
        can_widen: Whether its type may be widened in place.
        is_required: Whether it is NOT NULL, and the table does not fill it itself.
        takes_values: Whether it takes values of records; an identity column that is always generated does not.
    """

    column: str
    reason: str
    can_widen: bool = True
    is_required: bool = False
    takes_values: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    """Which schema changes an ingestion may make, and how it reads single fields.

    A field is named by its path in the source: the keys from the root, without array indexes and keys of maps.

    Args:
        pins: For single fields, a mode for the field and everything below it; or the type or text form of its first
            column, which is never widened.
        max_columns: The limit of leaves up to which ingestion may add columns.
        max_keys: The limit of keys in one field of a batch; more of them are data and not names.
        table_format: The format of the table, which decides what can be widened in place.
        date_fields: The fields in and below which strings that are ISO 8601 dates or timestamps are converted.
        local_time_fields: The same for strings that are ISO 8601 dates or timestamps without a time zone.
        epoch_units: For single fields, the unit of integers that become timestamps. For other fields the magnitude of a
            value decides.
        fixed_columns: The columns that must not be rerouted, by their path in the table.
        samples: How plans, events and commits show sample values.
        allows_unmatched: Whether masks and exclusions may name fields that neither the table nor the batch has.
        no_stats: The fields whose columns get no minimum and no maximum, beside those masked and excluded.
        known_fields: The fields that earlier loads into the table have masked or excluded.
        detects_maps: Whether the objects of a new field become maps if they look like maps.
        numbers: What fractions become in columns that ingestion adds or widens.
        layout: The columns that a new table begins with; None for no columns.
        reserved_names: More names that a new top-level column must not have.
        max_record_bytes: The maximum size of a record or a line of text, after decompression.
    """

    mode: Mode = Mode.WIDEN
    pins: Mapping[Path, Pin] = field(default_factory=dict)
    max_columns: int = MAX_COLUMNS
    max_keys: int = MAX_KEYS
    table_format: TableFormat = TableFormat.DELTA
    date_fields: frozenset[Path] = frozenset()
    local_time_fields: frozenset[Path] = frozenset()
    epoch_units: Mapping[Path, EpochUnit] = field(default_factory=dict)
    excluded: frozenset[Path] = frozenset()
    masked: frozenset[Path] = frozenset()
    allows_unmatched: bool = False
    no_stats: frozenset[Path] = frozenset()
    known_fields: frozenset[Path] = frozenset()
    fixed_columns: Mapping[Path, FixedColumn] = field(default_factory=dict)
    file_fields: frozenset[str] = frozenset()
    samples: Samples = Samples.MASKED
    detects_maps: bool = False
    numbers: Numbers = Numbers.EXACT
    layout: StructType | None = None
    reserved_names: frozenset[str] = frozenset()
    max_record_bytes: int = MAX_RECORD_BYTES

    @property
    def refuses_nulls(self) -> bool:
        """Whether the table may refuse a row in which all source fields are null."""
        # A condition, such as `a IS NOT NULL`, may be false for such a row. Only columns with conditions cannot be
        # widened.
        return any(fixed.is_required or not fixed.can_widen for fixed in self.fixed_columns.values())

    def mode_of(self, source: Path) -> Mode:
        """Return the mode of a field: its own pin, else the pin of its nearest pinned ancestor, else the default.

        A field that is pinned to a type is split, never widened. This does not apply to the fields below it.
        """
        pin = self.pins.get(source)
        if pin is not None and not isinstance(pin, Mode) and pin != ANY_MAP:
            above = self.mode_of(source[:-1])
            return Mode.SPLIT if above is Mode.WIDEN else above
        return self._nearest_mode(source)

    def keeps_booleans(self, source: Path) -> bool:
        """Tell whether booleans of a field never become numbers. They do so only in mode split.

        A pin to a type does not change this: `true` and 1 stay apart beside a pinned column, too.

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
        """Return the type that a field is pinned to; None if it has no such pin."""
        pin = self.pins.get(source)
        return None if isinstance(pin, Mode) or pin == ANY_MAP else STRING if isinstance(pin, TextForm) else pin
