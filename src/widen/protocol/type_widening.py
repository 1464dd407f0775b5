"""The matrix: which atomic type may widen into which other one, and who accepts it.

`WIDENINGS` is the rule, and `print_matrix` prints it; a pair that no row of it holds is refused. It is one of leaves,
be they columns, struct fields, array elements, map keys or map values. Nested types are the caller's to walk.

Source: PROTOCOL.md#type-widening
"""

from __future__ import annotations

from dataclasses import dataclass

from widen.model.types import DataType, DecimalType

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
        keeps_scale: Whether a decimal must keep the digits after the point.
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
    return row is not None and row.iceberg


def _name(data_type: DataType) -> str:
    return DECIMAL if isinstance(data_type, DecimalType) else str(data_type)


def _has_room(old: DataType, new: DataType, row: Widening) -> bool:
    if not isinstance(new, DecimalType):
        return True
    digits, scale = row.integer_digits, 0
    if isinstance(old, DecimalType):
        digits, scale = old.precision - old.scale, old.scale
        if row.keeps_scale and new.scale != scale:
            return False
    return new.precision - new.scale >= digits and new.scale >= scale


def print_matrix() -> str:
    """Return the matrix as a Markdown table, a row for each row of `WIDENINGS`.

    A is an explicit change, and an automatic one that is not restricted; F an automatic one within one family of types;
    I one that Iceberg V2 knows too. Of the rows that fit a pair the first one counts.

    Source: PROTOCOL.md#type-widening
    """
    lines = ["| from | to | A | F | I |", "|---|---|---|---|---|"]
    for row in WIDENINGS:
        marks = (True, row.same_family, row.iceberg)
        old, new = _printed(row.old, "decimal(p,s)"), _printed(row.new, _new_decimal(row))
        lines.append(f"| {old} | {new} | " + " | ".join("✓" if mark else "–" for mark in marks) + " |")
    return "\n".join(lines)


def _printed(names: tuple[str, ...], decimal: str) -> str:
    return ", ".join(decimal if name == DECIMAL else name for name in names)


def _new_decimal(row: Widening) -> str:
    if row.keeps_scale:
        return "decimal(p+a, s), a ≥ 0"
    start = f"{row.integer_digits}+a, b" if row.integer_digits else "p+a, s+b"
    return f"decimal({start}), a ≥ b ≥ 0"
