"""The type widening matrix: which atomic types can be widened to which others.

`WIDENINGS` is the complete rule; docs/type-widening.md shows it. It applies to leaves: columns, struct fields, array
elements, map keys and map values. The caller walks nested types.

Source: PROTOCOL.md#type-widening
"""

from __future__ import annotations

from dataclasses import dataclass

from widen.model.types import DataType, DecimalType, plain_name

DECIMAL = "decimal"
"""Any decimal type in a row of the matrix; `_has_room` checks precision and scale."""


@dataclass(frozen=True, slots=True)
class Widening:
    """One row of the matrix.

    Args:
        old: The names of the old types in the schema JSON.
        new: The names of the new types in the schema JSON.
        same_family: Whether automatic widening that is limited to one family of types applies it.
        integer_digits: For integer to decimal: the minimum number of digits before the decimal point.
        keeps_scale: For decimal to decimal: whether the scale must stay the same.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    same_family: bool
    iceberg: bool
    integer_digits: int = 0
    keeps_scale: bool = False


WIDENINGS = (
    Widening(("byte",), ("short", "integer", "long"), same_family=True, iceberg=True),
    Widening(("short",), ("integer", "long"), same_family=True, iceberg=True),
    Widening(("integer",), ("long",), same_family=True, iceberg=True),
    Widening(("float",), ("double",), same_family=True, iceberg=True),
    Widening(("byte", "short", "integer"), ("double",), same_family=False, iceberg=False),
    Widening(("date",), ("timestamp_ntz",), same_family=True, iceberg=False),
    Widening((DECIMAL,), (DECIMAL,), same_family=True, iceberg=True, keeps_scale=True),
    Widening((DECIMAL,), (DECIMAL,), same_family=True, iceberg=False),
    Widening(("byte", "short", "integer"), (DECIMAL,), same_family=False, iceberg=False, integer_digits=10),
    Widening(("long",), (DECIMAL,), same_family=False, iceberg=False, integer_digits=20),
)


def find_widening(old: DataType, new: DataType) -> Widening | None:
    """Return the row of the matrix that widens one type to the other, or None.

    Equal types are not a widening. Struct, array and map types are never in the matrix.

    Source: PROTOCOL.md#type-widening
    """
    if old == new:
        return None
    for row in WIDENINGS:
        if plain_name(old) in row.old and plain_name(new) in row.new and _has_room(old, new, row):
            return row
    return None


def is_widening(old: DataType, new: DataType) -> bool:
    """Tell whether the change from one type to the other is in the matrix."""
    return find_widening(old, new) is not None


def is_same_family(old: DataType, new: DataType) -> bool:
    """Tell whether automatic widening that is limited to one family of types applies the change."""
    row = find_widening(old, new)
    return row is not None and row.same_family


def is_iceberg_compatible(old: DataType, new: DataType) -> bool:
    """Tell whether Iceberg V2 supports the change too; of decimals, only the precision may grow.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    row = find_widening(old, new)
    return row is not None and row.iceberg


def _has_room(old: DataType, new: DataType, row: Widening) -> bool:
    if not isinstance(new, DecimalType):
        return True
    digits, scale = row.integer_digits, 0
    if isinstance(old, DecimalType):
        digits, scale = old.precision - old.scale, old.scale
        if row.keeps_scale and new.scale != scale:
            return False
    return new.precision - new.scale >= digits and new.scale >= scale
