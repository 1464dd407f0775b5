"""The matrix: which atomic type may widen into which other one, and who accepts it.

`WIDENINGS` is the rule, printed; a pair that no row of it holds is refused. Nested types are the caller's to walk.

Source: PROTOCOL.md#type-widening
"""

from __future__ import annotations

from dataclasses import dataclass

from widen.model.type import DataType, DecimalType

DECIMAL = "decimal"
"""Stands for any decimal in a row of the matrix; its digits are judged by `_has_room`."""


@dataclass(frozen=True, slots=True)
class Widening:
    """One row of the matrix.

    Args:
        old: The types it starts from, by their names in the schema JSON.
        new: The types it leads to, likewise.
        same_family: Whether automatic changes that are restricted to one family may apply it.
        iceberg: Whether Iceberg V2 knows it too.
        integer_digits: For a decimal made from an integer: the digits before the point that it must have.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    same_family: bool
    iceberg: bool
    integer_digits: int = 0


WIDENINGS = (
    Widening(("byte",), ("short", "integer", "long"), same_family=True, iceberg=True),
    Widening(("short",), ("integer", "long"), same_family=True, iceberg=True),
    Widening(("integer",), ("long",), same_family=True, iceberg=True),
    Widening(("float",), ("double",), same_family=True, iceberg=True),
    Widening(("byte", "short", "integer"), ("double",), same_family=False, iceberg=False),
    Widening(("date",), ("timestamp_ntz",), same_family=True, iceberg=False),
    Widening((DECIMAL,), (DECIMAL,), same_family=True, iceberg=True),
    Widening(("byte", "short", "integer"), (DECIMAL,), same_family=False, iceberg=False, integer_digits=10),
    Widening(("long",), (DECIMAL,), same_family=False, iceberg=False, integer_digits=20),
)


def find_widening(old: DataType, new: DataType) -> Widening | None:
    """Return the row of the matrix that leads from one type to the other, or None.

    Equal types are no widening. Struct, array and map types are never in the matrix.

    Source: PROTOCOL.md#type-widening
    """
    if old == new:
        return None
    for row in WIDENINGS:
        if _name(old) in row.old and _name(new) in row.new and _has_room(old, new, row):
            return row
    return None


def is_widening(old: DataType, new: DataType) -> bool:
    """Tell whether an explicit change from one type to the other is in the matrix."""
    return find_widening(old, new) is not None


def is_same_family(old: DataType, new: DataType) -> bool:
    """Tell whether an automatic change that is restricted to one family of types may apply it."""
    row = find_widening(old, new)
    return row is not None and row.same_family


def is_iceberg_compatible(old: DataType, new: DataType) -> bool:
    """Tell whether Iceberg V2 knows the change too: of decimals, only the precision may grow.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    row = find_widening(old, new)
    same_scale = not isinstance(old, DecimalType) or not isinstance(new, DecimalType) or old.scale == new.scale
    return row is not None and row.iceberg and same_scale


def _name(data_type: DataType) -> str:
    return DECIMAL if isinstance(data_type, DecimalType) else str(data_type)


def _has_room(old: DataType, new: DataType, row: Widening) -> bool:
    if not isinstance(new, DecimalType):
        return True
    digits, scale = row.integer_digits, 0
    if isinstance(old, DecimalType):
        digits, scale = old.precision - old.scale, old.scale
    return new.precision - new.scale >= digits and new.scale >= scale
