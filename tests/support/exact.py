"""Exact comparison of rows: length, type, null, NaN and −0.0 count; 1 and 1.0 are not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any


def form(value: Any) -> Any:
    """Return a value in a form that is equal only to exactly the same value."""
    match value:
        case None:
            return "null"
        case bool() | str() | bytes():
            return (type(value).__name__, value)
        case float():
            return ("float", repr(value))
        case Decimal():
            return ("decimal", str(value), value.as_tuple().exponent)
        case dict():
            return ("map", tuple(sorted(((repr(form(k)), repr(form(v))) for k, v in value.items()))))
        case tuple():
            names = getattr(value, "__fields__", None)
            return ("struct", tuple(names or ()), tuple(form(v) for v in value))
        case list():
            return ("array", tuple(form(v) for v in value))
    return (type(value).__name__, repr(value))


def bag(rows: Iterable[Any]) -> Counter[str]:
    """Return rows as a multiset, so that their order does not count."""
    return Counter(repr(form(row)) for row in rows)


def assert_same(actual: Iterable[Any], expected: Iterable[Any]) -> None:
    """Assert that two collections hold exactly the same rows, in whatever order."""
    found, wanted = bag(actual), bag(expected)
    assert (list((found - wanted).elements())[:5], list((wanted - found).elements())[:5]) == ([], [])
