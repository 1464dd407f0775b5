"""Statistics: PROTOCOL.md#per-file-statistics, and what makes them safe after a change of type."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.errors import InvalidOption
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.protocol.file_statistics import (
    Bounds,
    ColumnStatistics,
    FileStatistics,
    encode_statistics,
    indexed_leaves,
    partition_bounds,
)
from widen.protocol.partition_values import UNKNOWN


def bounds(low: Any, high: Any, type_text: str, rows: int = 10, nulls: int | None = 0) -> Bounds:
    counts = {} if nulls is None else {"a": nulls}
    text = json.dumps({"numRecords": rows, "minValues": {"a": low}, "maxValues": {"a": high}, "nullCount": counts})
    return FileStatistics(text).bounds(("a",), parse_type(type_text))


def test_whole_numbers_are_exact_in_every_wider_type() -> None:
    assert bounds(-128, 127, "byte") == Bounds(-128, 127, may_be_null=False)
    assert bounds(-128, 127, "bigint") == Bounds(-128, 127, may_be_null=False)
    assert bounds(-128, 127, "decimal(12,2)") == Bounds(Decimal(-128), Decimal(127), may_be_null=False)


def decimal_bounds(low: str, high: str, type_text: str) -> tuple[Any, Any]:
    text = f'{{"minValues":{{"a":{low}}},"maxValues":{{"a":{high}}}}}'
    found = FileStatistics(text).bounds(("a",), parse_type(type_text))
    return found.low, found.high


@pytest.mark.parametrize(
    ("text", "type_text"),
    [
        ("0", "decimal(1,0)"),
        ("-1.5", "decimal(5,2)"),
        ("99999999.99", "decimal(10,2)"),
        ("123456789012.345", "decimal(38,3)"),
        ("1e5", "decimal(38,10)"),
    ],
)
def test_a_decimal_of_few_digits_is_exact(text: str, type_text: str) -> None:
    assert decimal_bounds(text, text, type_text) == (Decimal(text), Decimal(text))


@pytest.mark.parametrize(
    ("value", "text", "type_text"),
    [
        ("0.99999999999999999", "1.0", "decimal(38,18)"),
        ("9007199254740993.01", "9007199254740994.0", "decimal(18,2)"),
        ("-9999999999999999.99", "-1e+16", "decimal(18,2)"),
        ("12345678901234567890.123456789012345678", "1.2345678901234567e+19", "decimal(38,18)"),
        ("12345678901234567890.123456789012345678", "12345678901234567890.123456789012345678", "decimal(38,18)"),
        ("9223372036854775806", "9223372036854775807", "decimal(38,0)"),
        ("99999999999999999999", "9223372036854775807", "decimal(38,0)"),
        ("-99999999999999999999", "-9223372036854775808", "decimal(38,0)"),
    ],
)
def test_a_decimal_may_have_been_rounded_to_a_double_or_cut_to_a_long(value: str, text: str, type_text: str) -> None:
    """These are the texts that deltalake writes for these values, and the one that Spark writes."""
    low, high = decimal_bounds(text, text, type_text)
    assert low is UNKNOWN or low <= Decimal(value)
    assert high is UNKNOWN or high >= Decimal(value)


@pytest.mark.parametrize("text", ["1.005", "1e39", "1e400"])
def test_a_decimal_that_the_type_cannot_hold_says_nothing(text: str) -> None:
    assert decimal_bounds(text, text, "decimal(38,2)") == (UNKNOWN, UNKNOWN)


FLOATS = [(3.4, 3.4000000953674316), (3.4028235e38, 3.4028234663852886e38), (1e-45, 1.401298464324817e-45)]


@pytest.mark.parametrize(("text", "value"), [*FLOATS, *((-text, -value) for text, value in FLOATS)])
def test_a_float_text_allows_for_the_float_that_it_stands_for(text: float, value: float) -> None:
    found = bounds(text, text, "double")
    assert isinstance(found.low, float)
    assert isinstance(found.high, float)
    assert found.low < min(text, value) < max(text, value) < found.high
    assert found.may_be_nan


@pytest.mark.parametrize("value", [0.0, 1.4e-45, 3.4028235e38, -3.4028235e38, 1e300])
def test_a_float_step_reaches_beyond_the_value(value: float) -> None:
    found = bounds(value, value, "double")
    assert isinstance(found.low, float)
    assert isinstance(found.high, float)
    assert found.low < value < found.high


def test_the_upper_bound_of_a_time_was_cut_to_milliseconds() -> None:
    found = bounds("2024-01-01T00:00:00.123", "2024-01-01T00:00:00.123", "timestamp_ntz")
    assert found.low == datetime(2024, 1, 1, 0, 0, 0, 123000)
    assert found.high == datetime(2024, 1, 1, 0, 0, 0, 124000)


def test_the_date_of_an_old_file_is_a_midnight() -> None:
    assert bounds("2024-01-01", "2024-01-02", "timestamp_ntz").low == datetime(2024, 1, 1)


def test_times_with_zones_are_compared_in_utc() -> None:
    found = bounds("2024-01-01T02:00:00.000+02:00", "2024-01-01T02:00:00.000Z", "timestamp")
    assert found.low == datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("low", "type_text"),
    [("5", "int"), (5, "string"), (True, "int"), ("NaN", "double"), ("2024-01-01", "timestamp"), ({"x": 1}, "int")],
)
def test_a_bound_of_another_kind_is_unknown(low: Any, type_text: str) -> None:
    assert bounds(low, low, type_text).low is UNKNOWN


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"x"', '{"minValues":7}', '{"minValues":{"a":NaN}}'])
def test_what_cannot_be_read_says_nothing(text: str | None) -> None:
    assert FileStatistics(text).bounds(("a",), parse_type("int")) == Bounds()


def test_nulls() -> None:
    assert not bounds(1, 1, "int", rows=3, nulls=0).may_be_null
    assert bounds(None, None, "int", rows=3, nulls=3) == Bounds(may_be_value=False)
    assert bounds(1, 1, "int", rows=3, nulls=None).may_be_null
    assert bounds(1, 1, "int", rows=3, nulls=None).may_be_value


def test_nested_columns_have_nested_bounds() -> None:
    text = '{"numRecords":2,"minValues":{"s":{"x":1}},"maxValues":{"s":{"x":4}},"nullCount":{"s":{"x":1}}}'
    assert FileStatistics(text).bounds(("s", "x"), parse_type("int")) == Bounds(1, 4)


@pytest.mark.parametrize(
    ("text", "type_text", "expected"),
    [
        ("1", "decimal(12,2)", Bounds(Decimal(1), Decimal(1), may_be_null=False)),
        ("2024-01-01", "date", Bounds(date(2024, 1, 1), date(2024, 1, 1), may_be_null=False)),
        (None, "int", Bounds(may_be_value=False)),
        ("", "string", Bounds(may_be_value=False)),
        ("2024-01-01 00:00:00", "timestamp", Bounds(may_be_nan=True)),
    ],
)
def test_a_partition_is_one_value(text: str | None, type_text: str, expected: Bounds) -> None:
    assert partition_bounds(text, parse_type(type_text)) == expected


def schema(text: str) -> StructType:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, StructType)
    return parsed


def test_the_first_32_leaves_are_indexed_and_partition_columns_never() -> None:
    columns = schema("p int, s struct<x: int, y: struct<z: int>>, " + ", ".join(f"c{n} int" for n in range(40)))
    found = indexed_leaves(columns, {}, ("p",))
    assert found == {("s", "x"), ("s", "y", "z"), *((f"c{n}",) for n in range(30))}


def test_properties_choose_the_indexed_leaves() -> None:
    columns = schema("a int, s struct<x: int, y: int>, `b.c` int")
    assert indexed_leaves(columns, {"delta.dataSkippingNumIndexedCols": "1"}, ()) == {("a",)}
    assert indexed_leaves(columns, {"delta.dataSkippingNumIndexedCols": "0"}, ()) == set()
    assert len(indexed_leaves(columns, {"delta.dataSkippingNumIndexedCols": "-1"}, ())) == 4
    named = {"delta.dataSkippingStatsColumns": "s, `b.c`", "delta.dataSkippingNumIndexedCols": "0"}
    assert indexed_leaves(columns, named, ()) == {("s", "x"), ("s", "y"), ("b.c",)}
    with pytest.raises(InvalidOption):
        indexed_leaves(columns, {"delta.dataSkippingNumIndexedCols": "many"}, ())


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (1, 2, ("1", "2")),
        (Decimal("1.10"), Decimal("2.00"), ("1.10", "2.00")),
        (0.0, -0.0, ("-0.0", "0.0")),
        (date(2024, 1, 1), date(2024, 1, 2), ('"2024-01-01"', '"2024-01-02"')),
        (
            datetime(2024, 1, 1, 0, 0, 0, 1999),
            datetime(2024, 1, 1, 0, 0, 0, 1999),
            ('"2024-01-01T00:00:00.001"', '"2024-01-01T00:00:00.001"'),
        ),
        (
            datetime(2024, 1, 1, tzinfo=timezone.utc),
            datetime(2024, 1, 1, tzinfo=timezone.utc),
            ('"2024-01-01T00:00:00.000Z"', '"2024-01-01T00:00:00.000Z"'),
        ),
        ("a" * 40, "b" * 40, (f'"{"a" * 32}"', f'"{"b" * 31}c"')),
        ("x", "\U0010ffff" * 40, ('"x"', None)),
        ("x", "a\ud7ff" * 16 + "z", ('"x"', '"' + "a\ud7ff" * 15 + 'a\ue000"')),
        (True, True, ("true", "true")),
        (b"x", b"y", (None, None)),
        (float("nan"), float("inf"), (None, None)),
    ],
)
def test_bounds_are_written_as_delta_writes_them(low: Any, high: Any, texts: tuple[str | None, str | None]) -> None:
    parts = ['"minValues":{' + (f'"a":{texts[0]}' if texts[0] else "") + "}"]
    parts += ['"maxValues":{' + (f'"a":{texts[1]}' if texts[1] else "") + "}"]
    expected = '{"numRecords":3,' + ",".join(parts) + ',"nullCount":{"a":1}}'
    assert encode_statistics(3, {("a",): ColumnStatistics(low, high, 1)}) == expected
