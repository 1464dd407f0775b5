"""One table with every pair of the matrix at every depth: its columns before and after, and the same rows in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from support.exact import assert_same
from support.type_change import CASES

DEPTHS = {
    "top": "{t}",
    "inside": "struct<x: {t}, y: string>",
    "items": "array<{t}>",
    "keys": "map<{t}, string>",
    "vals": "map<string, {t}>",
    "deep": "array<struct<z: map<string, {t}>>>",
}
STEPS = {
    "top": "",
    "inside": ".x",
    "items": ".element",
    "keys": ".key",
    "vals": ".value",
    "deep": ".element.z.value",
}
PROPERTIES = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


def columns(which: str) -> str:
    """Return the columns in SQL with their ``old`` or their ``new`` types."""
    shapes = [
        f"{case.name}_{depth} {shape.format(t=getattr(case, which))}"
        for case in CASES
        for depth, shape in DEPTHS.items()
    ]
    return ", ".join(["id int", "p string", *shapes])


def changes() -> Iterator[tuple[str, str]]:
    """Yield the path of every leaf that changes, with its new type."""
    for case in CASES:
        for depth, step in STEPS.items():
            yield f"{case.name}_{depth}{step}", case.new


def rows(which: str, first_id: int = 0) -> list[tuple[Any, ...]]:
    """Return rows of ``before``, ``widened`` or ``after``: edge values at every depth, and nulls."""
    longest = max(len(getattr(case, which)) for case in CASES) + 1
    return [
        (first_id + number, f"p{number % 2}")
        + tuple(_nested(depth, at(getattr(case, which), number)) for case in CASES for depth in DEPTHS)
        for number in range(longest)
    ]


def at(values: tuple[Any, ...], number: int) -> Any:
    """Return one of some values, or null beyond them."""
    return values[number] if number < len(values) else None


def _nested(depth: str, value: Any) -> Any:
    """Return a value as it stands at a depth; NaN and null keys, which no map should have, are left out."""
    if depth == "keys":
        return {} if value is None or value != value else {value: "v"}
    return {
        "top": value,
        "inside": (value, "y"),
        "items": [value, None],
        "vals": {"k": value},
        "deep": [({"k": value},)],
    }[depth]


def assert_holds(found: Iterable[Any], *expected: Iterable[Any]) -> None:
    """Assert that rows are exactly these, in whatever order; struct fields are compared by position."""
    assert_same(map(_plain, found), (_plain(row) for rows_ in expected for row in rows_))


def _plain(value: Any) -> Any:
    """Return a value without the names of struct fields, which are compared through the schema."""
    match value:
        case tuple():
            return tuple(map(_plain, value))
        case list():
            return [_plain(v) for v in value]
        case dict():
            return {_plain(k): _plain(v) for k, v in value.items()}
    return value


def spelled(value: Any) -> str:
    """Return a value as SQL spells it."""
    match value:
        case float():
            return f"double('{value}')" if value - value != 0 else f"{value!r}D"
        case datetime():
            return f"timestamp_ntz'{value}'"
        case date():
            return f"date'{value}'"
        case Decimal():
            return format(value, "f")
    return str(value)
