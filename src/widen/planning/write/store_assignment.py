"""Which types can be assigned to a column of another type with a cast.

A value that does not fit fails the write. Any other pair of types is refused before the write.

Source: Spark's ANSI store assignment, which defaults follow; Spark's ANSI casts, which Delta Lake's INSERT, UPDATE and
    MERGE follow.
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.model.types import BINARY, STRING, VARIANT, VOID, DataType, is_atomic, plain_name

NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})

FAMILIES = (NUMBERS, TIMES)
"""Types of one family can be assigned to each other. Most types can also be assigned to string."""

_NOT_TO_STRING = (VOID, VARIANT, BINARY)


def can_assign(old: DataType, new: DataType) -> bool:
    """Tell whether a default of one atomic type can be that of a column of another.

    Source: Spark's ANSI store assignment. Differs: binary cannot be assigned to string, since it may not be UTF-8.
    """
    if not is_atomic(old) or not is_atomic(new):
        return False
    if new == STRING:
        return old not in _NOT_TO_STRING
    return any(plain_name(old) in family and plain_name(new) in family for family in FAMILIES)


_CASTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(NUMBERS, NUMBERS | {"boolean", "timestamp"}),
    "boolean": NUMBERS,
    "string": NUMBERS | TIMES | {"boolean", "binary"},
    "date": frozenset({"timestamp", "timestamp_ntz"}),
    "timestamp": NUMBERS | {"date", "timestamp_ntz"},
    "timestamp_ntz": frozenset({"date", "timestamp"}),
}
"""The types that each type can be cast to. Most types can also be cast to string."""


def can_cast(old: DataType, new: DataType) -> bool:
    """Tell whether INSERT, UPDATE and MERGE cast values of one type to another.

    Args:
        old: The type of the value, not of the same structure as the new one.

    Source: Delta Lake's INSERT, UPDATE and MERGE: an explicit cast in ANSI mode, which fails if a value does not fit.
        Differs: binary is not cast to string, since it may not be UTF-8.
    """
    if new == STRING:
        return old not in _NOT_TO_STRING
    return plain_name(new) in _CASTS.get(plain_name(old), frozenset())
