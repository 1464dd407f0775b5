"""Which values may be assigned to a column of another type, where a cast is asked for.

A value that turns out not to fit fails the write; what is not here cannot be assigned at all.

Source: Spark's ANSI store assignment, which INSERT follows; Spark's ANSI casts, which UPDATE and MERGE follow.
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.model.types import BINARY, STRING, VARIANT, VOID, DataType, DecimalType, is_atomic

NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})

FAMILIES = (NUMBERS, TIMES)
"""Types of one family can be assigned to each other; besides, what can be printed can be assigned to text."""

_UNPRINTED = (VOID, VARIANT, BINARY)


def can_assign(old: DataType, new: DataType) -> bool:
    """Tell whether values of one atomic type can be cast to the other one when they are written.

    Source: Spark's ANSI store assignment. Differs: bytes are not taken for text, for not all of them are.
    """
    if not is_atomic(old) or not is_atomic(new):
        return False
    if new == STRING:
        return old not in _UNPRINTED
    return any(_name(old) in family and _name(new) in family for family in FAMILIES)


_CASTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(NUMBERS, NUMBERS | {"boolean", "timestamp"}),
    "boolean": NUMBERS,
    "string": NUMBERS | TIMES | {"boolean", "binary"},
    "date": frozenset({"timestamp", "timestamp_ntz"}),
    "timestamp": NUMBERS | {"date", "timestamp_ntz"},
    "timestamp_ntz": frozenset({"date", "timestamp"}),
}
"""The types that values of a type are cast to; besides, what can be printed is cast to text."""


def can_cast(old: DataType, new: DataType) -> bool:
    """Tell whether UPDATE and MERGE cast values of one type to the other one.

    Args:
        old: The type of the value, not of the same structure as the new one.
        new: The type of the column.

    Source: Delta Lake's UPDATE and MERGE: an explicit cast in ANSI mode, which fails for a value that does not fit.
        Differs: bytes are not cast to text, for not all of them are text.
    """
    if new == STRING:
        return old not in _UNPRINTED
    return _name(new) in _CASTS.get(_name(old), frozenset())


def _name(data_type: DataType) -> str:
    return "decimal" if isinstance(data_type, DecimalType) else str(data_type)
