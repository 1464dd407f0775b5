"""Three-valued skipping: a file is left out only if certainly no row of it matches."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from widen.files.predicates import bind_condition
from widen.model.column_path import Path
from widen.model.schema_json import parse_type
from widen.model.types import INTEGER, LONG, DataType, Field, StructType
from widen.protocol.comparison import bind_comparison
from widen.protocol.data_skipping import And, Compare, ConstantUnlessNull, UnknownPredicate
from widen.protocol.file_statistics import Bounds
from widen.protocol.partition_values import UNKNOWN

SCHEMA = parse_type(
    "struct<i: int, l: bigint, d: decimal(12,2), big: decimal(38,0), f: double, s: string, b: boolean, day: date,"
    " ntz: timestamp_ntz, t: timestamp, st: struct<x: int, `o dd`: string>, arr: array<int>>"
)
assert isinstance(SCHEMA, StructType)

KNOWN = {
    ("i",): Bounds(10, 20, may_be_null=False),
    ("l",): Bounds(10, 20),
    ("d",): Bounds(Decimal("1.50"), Decimal("2.50"), may_be_null=False),
    ("big",): Bounds(Decimal(10), Decimal(20)),
    ("f",): Bounds(1.0, 2.0, may_be_null=False, may_be_nan=True),
    ("s",): Bounds("b", "d", may_be_null=False),
    ("b",): Bounds(True, True, may_be_null=False),
    ("st", "x"): Bounds(may_be_value=False),
}


def matches(text: str) -> bool:
    assert isinstance(SCHEMA, StructType)

    def of(path: Path, _: DataType) -> Bounds:
        return KNOWN.get(path, Bounds())

    return bind_condition(text, SCHEMA).can_be(of, truth=True)


@pytest.mark.parametrize(
    "text",
    [
        "i = 10",
        "i = 20",
        "i > 19",
        "i >= 20",
        "i < 11",
        "i <= 10",
        "i <> 10",
        "10 = i",
        "19 < i",
        "i in (1, 15)",
        "i between 20 and 30",
        "i is not null",
        "not i = 10",
        "not (i > 15 and i < 18)",
        "i = 5 or s = 'c'",
        "I = 12",
        "`i` = 12",
        "i = 12.0",
        "i = 10L",
        "i = cast(300 as tinyint)",
        "f = 1.5D",
        "f < cast(1.25 as double)",
        "i = 1e1",
        "i = '15'",
        "i + 1 = 100",
        "i = l",
        "abs(i) = 100",
        "l is null",
        "d = 1.5",
        "d > 2.499",
        "big = 1.0000000000000000000000000000000000001",
        "f > 100",
        "f >= 3",
        "f <> 1",
        "not f < 5",
        "f = 2",
        "s > 'c'",
        "s = 'd'",
        "s like 'x%'",
        r"s = 'a\\b'",
        "s <=> 'zzz'",
        "b",
        "b = true",
        "st.x is null",
        "not (st.x is not null)",
        "arr[0] = 1",
        "day = '2024-01-01'",
        "t > '2024-01-01'",
        "nosuch = 1",
        "this is no sql at all (",
        "exists (select 1)",
        "i in (select 1)",
        "i = 100 xor s = 'c'",
    ],
)
def test_kept(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "i = 9",
        "i = 21",
        "i > 20",
        "i < 10",
        "i >= 21",
        "i <= 9",
        "21 = i",
        "20 < i",
        "i in (1, 2, 30)",
        "i between 21 and 30",
        "i between 0 and 9",
        "i is null",
        "not i >= 10",
        "not (i >= 10 and i <= 20)",
        "not (i < 10 or i is not null)",
        "i = 15 and s = 'z'",
        "i = 5 or s = 'z'",
        "i = 9.5",
        "i = -15",
        "i = 9L",
        "i = 9D",
        "f = cast(9 as float)",
        "i = 10.5",
        "i = 10.5D",
        "i > 20.5",
        "i <> 10 and i = double('NaN')",
        "i = null",
        "not i = null",
        "i = cast(9 as int)",
        "f = 2.5D",
        "f < -0.5D",
        "d = 2.51",
        "d > 2.5",
        "f < 0.5",
        "f = 5",
        "f <= 0",
        "not f >= 1",
        "s = 'a'",
        "s < 'b'",
        "b = false",
        "st.x = 3",
        "st.x is not null",
        "not st.x = 3",
        "s = 'zzz' and abs(i) = 1",
    ],
)
def test_skipped(text: str) -> None:
    assert not matches(text)


COLUMN = ("c",)
TWO_53 = 2**53
BOUND: dict[tuple[str, str, Any], Any] = {
    ("int", "<", 5): ("<", 5),
    ("int", "<", Decimal("5.5")): ("<=", 5),
    ("int", "<=", Decimal("5.5")): ("<=", 5),
    ("int", ">", Decimal("5.5")): (">=", 6),
    ("int", ">=", Decimal("-5.5")): (">=", -5),
    ("int", "=", Decimal("5.5")): False,
    ("int", "<>", Decimal("5.5")): True,
    ("int", "=", Decimal("5.0")): ("=", 5),
    ("int", "=", 5.5): False,
    ("int", ">", 5.5): (">=", 6),
    ("int", "<", 2**31): True,
    ("int", ">=", 2**31): False,
    ("int", "<", -(2**31)): ("<", -(2**31)),
    ("int", ">", math.inf): False,
    ("int", "<=", math.nan): ("<=", 2**31 - 1),
    ("int", ">=", math.nan): False,
    ("int", "=", None): None,
    ("int", "=", True): UNKNOWN,
    ("int", "=", "x"): UNKNOWN,
    ("tinyint", "<>", 128): True,
    ("bigint", "=", Decimal("5.5")): False,
    ("bigint", ">", 2**63): UNKNOWN,  # Spark compares null, too
    ("bigint", "<", float(TWO_53)): ("<=", TWO_53 - 1),
    ("bigint", ">", float(TWO_53)): (">=", TWO_53 + 2),
    ("bigint", "<=", float(TWO_53)): ("<=", TWO_53 + 1),
    ("bigint", "=", float(TWO_53)): And(Compare(COLUMN, LONG, ">=", TWO_53), Compare(COLUMN, LONG, "<=", TWO_53 + 1)),
    ("bigint", "<", 2.0**63): ("<=", 2**63 - 513),
    ("decimal(20,0)", "=", 2**63): ("=", Decimal(2**63)),
    ("decimal(5,2)", "<", Decimal("1.255")): ("<=", Decimal("1.25")),
    ("decimal(5,2)", "=", Decimal("1.255")): False,
    ("decimal(5,2)", "<", 10**6): True,
    ("decimal(5,2)", "=", 1.1): ("=", Decimal("1.10")),
    ("decimal(37,0)", "=", Decimal("0.1")): False,
    ("decimal(38,0)", "=", Decimal("0.1")): UNKNOWN,
    ("double", "=", 5): ("=", 5.0),
    ("double", "=", Decimal("0.1")): ("=", 0.1),
    ("double", "=", math.nan): (">", math.inf),
    ("double", "<", math.nan): ("<=", math.inf),
    ("double", "<=", math.nan): True,
    ("double", ">", math.nan): False,
    ("float", "<", 2**24): ("<", 2.0**24),
    ("float", "<", 2**24 + 1): UNKNOWN,
    ("date", "=", datetime(2024, 1, 1)): ("=", date(2024, 1, 1)),
    ("date", "<", datetime(2024, 1, 1, 1)): ("<=", date(2024, 1, 1)),
    ("date", ">=", datetime(2024, 1, 1, 1)): (">", date(2024, 1, 1)),
    ("date", "<>", datetime(2024, 1, 1, 1)): True,
    ("timestamp_ntz", "=", date(2024, 1, 1)): UNKNOWN,
    ("boolean", "=", True): ("=", True),
    ("boolean", "<>", 1): UNKNOWN,
    ("string", "=", 5): UNKNOWN,
}
"""For a type, an operator and a constant: the operator and the constant in that type, or the result for all values."""


@pytest.mark.parametrize(("type_text", "operator", "value"), BOUND)
def test_a_constant_becomes_a_value_of_the_column(type_text: str, operator: str, value: Any) -> None:
    data_type, expected = parse_type(type_text), BOUND[type_text, operator, value]
    if expected is None or isinstance(expected, bool):
        expected = ConstantUnlessNull(COLUMN, data_type, expected)
    elif isinstance(expected, tuple):
        expected = Compare(COLUMN, data_type, *expected)
    elif expected is UNKNOWN:
        expected = UnknownPredicate()
    found = bind_comparison(COLUMN, data_type, operator, value)
    assert found == expected
    assert not isinstance(found, Compare) or type(found.value) is type(expected.value)


def test_what_is_not_understood_keeps_every_file() -> None:
    assert isinstance(SCHEMA, StructType)
    assert bind_condition("rand() < 0.5", SCHEMA) == UnknownPredicate()


@pytest.mark.parametrize(
    "name", ["comment", "set", "describe", "use", "cache", "delete", "merge", "load", "kill", "copy"]
)
def test_a_column_may_have_the_name_of_a_command(name: str, caplog: pytest.LogCaptureFixture) -> None:
    columns = StructType((Field(name, INTEGER),))
    assert bind_condition(f"{name} = 1", columns) == Compare((name,), INTEGER, "=", 1)
    assert not caplog.records
