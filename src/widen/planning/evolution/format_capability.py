"""What each table format can widen in place, as one table.

Source: PROTOCOL.md#type-widening; Iceberg's table specification, "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from widen.errors import InvalidOption
from widen.model.types import DATE, DOUBLE, FLOAT, INTEGER, LONG, TIMESTAMP_NTZ, DataType, DecimalType
from widen.protocol.type_widening import is_iceberg_compatible, is_same_family, is_widening


class TableFormat(str, Enum):
    """A table format, with the compatibility that it must keep."""

    DELTA = "delta"
    DELTA_FIXED = "delta-without-type-widening"
    DELTA_ICEBERG_COMPAT = "delta-iceberg-compat"
    ICEBERG_V2 = "iceberg-v2"
    ICEBERG_V3 = "iceberg-v3"


class AutomaticWidening(str, Enum):
    """Which types a write may widen automatically."""

    ALWAYS = "always"
    SAME_FAMILY = "same_family"
    NEVER = "never"


ICEBERG_V2_PROMOTIONS = frozenset({(INTEGER, LONG), (FLOAT, DOUBLE)})
"""Iceberg's promotions in every version. The precision of decimals may grow too."""

ICEBERG_V3_PROMOTIONS = ICEBERG_V2_PROMOTIONS | {(DATE, TIMESTAMP_NTZ)}
"""Iceberg's promotions in version 3. Its ``timestamp`` has no time zone."""


def _in_iceberg_v2(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V2_PROMOTIONS or _is_longer_decimal(old, new)


def _in_iceberg_v3(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V3_PROMOTIONS or _is_longer_decimal(old, new)


def _is_longer_decimal(old: DataType, new: DataType) -> bool:
    both = isinstance(old, DecimalType) and isinstance(new, DecimalType)
    return both and old.scale == new.scale and old.precision < new.precision  # type: ignore[union-attr]


def _never(old: DataType, new: DataType) -> bool:
    return False


CAPABILITIES: Mapping[TableFormat, Callable[[DataType, DataType], bool]] = {
    TableFormat.DELTA: is_widening,
    TableFormat.DELTA_FIXED: _never,
    TableFormat.DELTA_ICEBERG_COMPAT: is_iceberg_compatible,
    TableFormat.ICEBERG_V2: _in_iceberg_v2,
    TableFormat.ICEBERG_V3: _in_iceberg_v3,
}
"""For each format, whether it can widen a leaf from one type to another without rewriting files."""


def can_widen(table_format: TableFormat, old: DataType, new: DataType) -> bool:
    """Tell whether a table of the format can widen a leaf from one type to another in place."""
    return CAPABILITIES[table_format](old, new)


AUTOMATIC: Mapping[AutomaticWidening, Callable[[DataType, DataType], bool]] = {
    AutomaticWidening.ALWAYS: is_widening,
    AutomaticWidening.SAME_FAMILY: is_same_family,
    AutomaticWidening.NEVER: _never,
}
"""For each mode, whether a write may widen a leaf automatically, provided that the format can."""


def can_widen_automatically(table_format: TableFormat, mode: AutomaticWidening, old: DataType, new: DataType) -> bool:
    """Tell whether a write may automatically widen a leaf of a table of the format.

    Source: Delta Spark's modes of automatic widening
    """
    return AUTOMATIC[mode](old, new) and can_widen(table_format, old, new)


def parse_automatic_widening(text: str) -> AutomaticWidening:
    """Parse a mode, case-insensitively; Delta Spark's ``SAME_FAMILY_TYPE`` is accepted too.

    Raises:
        InvalidOption: the text is not a mode.
    """
    name = text.strip().lower().removesuffix("_type")
    modes = {mode.value: mode for mode in AutomaticWidening}
    if name not in modes:
        raise InvalidOption(option="widening", value=text, expected=f"Must be one of {', '.join(modes)}.")
    return modes[name]
