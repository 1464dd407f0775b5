"""Rows with the extremes of each type, and generated conditions about them, with literals of all kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from widen.files.arrow_types import to_arrow_schema
from widen.protocol.column_metadata import parse_columns

SCHEMA = parse_columns(
    "y tinyint, h smallint, i int, l bigint, f float, d double, p decimal(9,2), w decimal(38,10), q decimal(20,0),"
    " s string, b boolean, day date, z timestamp, n timestamp_ntz,"
    " r struct<i: int, l: bigint, d: double, p: decimal(5,3)>"
)

_BITS = {"y": 8, "h": 16, "i": 32, "l": 64}
_TIMES = [
    datetime(1970, 1, 1),
    datetime(2024, 2, 29),
    datetime(2024, 2, 29, 23, 59, 59, 999999),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
]
_DOUBLES = [0.0, -0.0, math.nan, math.inf, -math.inf, 5.5, 5.0, -5.0, 6.0, 0.1, 2.0**53, 2.0**53 + 2, 1e308, 5e-324]

VALUES: dict[str, list[Any]] = {
    name: [0, 5, 6, -5, 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 2, 100, 99]
    for name, bits in _BITS.items()
}
VALUES["l"] += [2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**31, 2**62 + 1, 16777217]
VALUES["i"] += [16777217, 16777216, 128, 32768]
VALUES |= {
    "f": [0.0, -0.0, math.nan, math.inf, -math.inf, 5.5, 5.0, -5.0, 0.5, 16777216.0, 1.401298464324817e-45, 2.0**53],
    "d": _DOUBLES,
    "p": [*map(Decimal, ("0.00", "5.50", "5.00", "-5.00", "1.25", "1.26", "9999999.99", "-9999999.99", "0.10"))],
    "w": [
        *map(Decimal, ("0", "5.5", "5", "-5", "0.1", "1e-10", f"{'9' * 28}.{'9' * 10}", f"-{'9' * 28}.{'9' * 10}")),
        Decimal(2**53 + 1),
    ],
    "q": [*map(Decimal, (0, 5, -5, 2**63, 2**63 - 1, 2**53 + 1, 10**20 - 1))],
    "s": ["", " ", "a", "ab", "ab  ", "5", "5.5", "NaN", "é", "\U0001f600", "\uffff", "true", "2024-02-29", "A"]
    + [letter * count for letter in ("a", "\uffff", "\U0010ffff") for count in (16, 17, 33)],
    "b": [True, False],
    "day": [each.date() for each in _TIMES],
    "z": [each.replace(tzinfo=timezone.utc) for each in _TIMES],
    "n": _TIMES,
}
"""The values of each column; the rows have them in turn, and a null."""


def rows() -> pa.Table:
    """Return the rows, which have every value."""
    schema = to_arrow_schema(SCHEMA)
    count = max(map(len, VALUES.values())) + 1
    columns: dict[str, Any] = {name: _in_turn(values, count) for name, values in VALUES.items()}
    parts = (VALUES["i"], VALUES["l"], VALUES["d"], [Decimal("1.255"), Decimal("-0.001")])
    structs = zip(*(_in_turn(each, count) for each in parts), strict=True)
    columns["r"] = [dict(zip("ildp", each, strict=True)) for each in structs]
    columns["r"][-2] = None
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def _in_turn(values: Sequence[Any], count: int) -> list[Any]:
    cycle = [*values, None]
    return [cycle[at % len(cycle)] for at in range(count)]


class Conditions:
    """Generates conditions of Spark SQL about the rows."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def one(self, depth: int = 2) -> str:
        """Return a condition."""
        kind = self._random.random() if depth else 1.0
        if kind < 0.1:
            return f"NOT ({self.one(depth - 1)})"
        if kind < 0.3:
            return f"({self.one(depth - 1)}) {self._random.choice(['AND', 'OR'])} ({self.one(depth - 1)})"
        return self._comparison()

    def _comparison(self) -> str:
        pick = self._random.choice
        column = pick([*VALUES, "r.i", "r.l", "r.d", "r.p"])
        kind, literal = self._random.random(), lambda: self._literal(column)
        operator = pick(["=", "<>", "<", "<=", ">", ">=", "==", "!="])
        if kind < 0.45:
            return f"{column} {operator} {literal()}"
        if kind < 0.65:
            return f"{literal()} {operator} {column}"
        if kind < 0.80:
            items = ", ".join(literal() for _ in range(self._random.randint(1, 4)))
            return f"{column} {pick(['IN', 'NOT IN'])} ({items})"
        if kind < 0.95:
            return f"{column} {pick(['BETWEEN', 'NOT BETWEEN'])} {literal()} AND {literal()}"
        return f"{column} IS {pick(['', 'NOT '])}NULL"

    def _literal(self, column: str) -> str:
        pick = self._random.choice
        values = VALUES.get(column.rpartition(".")[2], VALUES["p"])
        value = pick(values) if self._random.random() < 0.85 else pick(VALUES[pick([*VALUES])])
        if self._random.random() < 0.03:
            return "NULL"
        form = next(form for kind, form in _FORMS.items() if isinstance(value, kind))
        return form(self._random, value)


def _of_boolean(random: Random, value: bool) -> str:
    return random.choice(["TRUE", "FALSE", "'true'", "1"]) if random.random() < 0.3 else str(value)


def _of_number(random: Random, value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        name = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return random.choice([f"double('{name}')", f"CAST('{name}' AS DOUBLE)", f"float('{name}')", f"'{name}'"])
    if abs(value) > 1e30:
        return f"{value:e}"
    number = Decimal(value) + random.choice(_STEPS)
    whole, plain = int(number), f"{number:f}"[:36]
    forms = [
        str(whole),
        plain,
        f"{whole}.0",
        f"{whole}L",
        f"{plain}D",
        f"{float(number)!r}D",
        f"{plain}BD",
        f"({plain})",
    ]
    forms += [f"{whole}.5", f"{float(number):e}", f"{float(number)!r}F", f"'{whole}'", f"'{plain}'", f"{whole}S"]
    forms += [f"CAST({plain} AS DOUBLE)", f"CAST('{plain}' AS DOUBLE)", f"CAST({whole} AS BIGINT)", f"{whole}.00"]
    forms += [f"CAST({plain} AS DECIMAL(38,10))", f"-({plain})"]
    return random.choice(forms)


_STEPS = [*[Decimal(0)] * 6, *map(Decimal, ("1", "-1", "0.5", "-0.5", "0.001", "-0.005", "1e-11", "-2", "1024"))]


def _of_text(random: Random, value: str) -> str:
    return "'" + random.choice([value, value, value + " ", value[:1], value + "a"]) + "'"


def _of_time(random: Random, value: datetime) -> str:
    plain = value.replace(tzinfo=None).isoformat(" ")
    forms = [f"TIMESTAMP '{plain}Z'", f"TIMESTAMP_NTZ '{plain}'", f"'{plain}'", f"TIMESTAMP '{plain}+02:00'"]
    return random.choice([*forms, f"DATE '{plain[:10]}'", f"TIMESTAMP_LTZ '{plain}Z'", f"'{plain}Z'"])


def _of_day(random: Random, value: date) -> str:
    plain = value.isoformat()
    forms = [f"DATE '{plain}'", f"'{plain}'", f"TIMESTAMP_NTZ '{plain} 00:00:00'", f"TIMESTAMP_NTZ '{plain} 12:00:00'"]
    return random.choice([*forms, f"date('{plain}')", f"TIMESTAMP '{plain}T00:00:00Z'"])


_FORMS: Mapping[type, Callable[[Random, Any], str]] = {
    bool: _of_boolean,
    int: _of_number,
    float: _of_number,
    Decimal: _of_number,
    str: _of_text,
    datetime: _of_time,
    date: _of_day,
}
"""How literals of a value, or of one near it, are written."""
