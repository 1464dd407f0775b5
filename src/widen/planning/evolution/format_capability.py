"""What each table format can widen in place, as one table; `print_capabilities` prints it.

Source: PROTOCOL.md#type-widening; Iceberg's table specification, "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from widen.errors import InvalidOption
from widen.model.types import BYTE, DATE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, TIMESTAMP_NTZ, DataType, DecimalType
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


_CHANGES: tuple[tuple[str, str, DataType, DataType], ...] = (
    ("byte", "short", BYTE, SHORT),
    ("byte, short", "integer", SHORT, INTEGER),
    ("byte, short", "long", SHORT, LONG),
    ("integer", "long", INTEGER, LONG),
    ("float", "double", FLOAT, DOUBLE),
    ("byte, short, integer", "double", INTEGER, DOUBLE),
    ("date", "timestamp_ntz", DATE, TIMESTAMP_NTZ),
    ("decimal(p,s)", "decimal(p+a, s), a > 0", DecimalType(5, 2), DecimalType(6, 2)),
    ("decimal(p,s)", "decimal(p+a, s+b), a ≥ b > 0", DecimalType(5, 2), DecimalType(6, 3)),
    ("byte, short, integer", "decimal(10+a, b), a ≥ b ≥ 0", INTEGER, DecimalType(10, 0)),
    ("long", "decimal(20+a, b), a ≥ b ≥ 0", LONG, DecimalType(20, 0)),
)
"""Every change that any format supports: its text, and one pair of types as an example."""


def print_capabilities() -> str:
    """Return the table in Markdown. A pair of types that is not in it cannot be widened in any format."""
    formats = tuple(each for each in TableFormat if each is not TableFormat.DELTA_FIXED)
    lines = [f"| from | to | {' | '.join(each.value for each in formats)} |", "|---" * (2 + len(formats)) + "|"]
    for old, new, old_type, new_type in _CHANGES:
        marks = ("✓" if can_widen(each, old_type, new_type) else "–" for each in formats)
        lines.append(f"| {old} | {new} | {' | '.join(marks)} |")
    return "\n".join(lines)


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
