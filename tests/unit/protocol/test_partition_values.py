"""Partition texts: PROTOCOL.md#partition-value-serialization; directories as Spark writes and finds them."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.model.schema_json import parse_type
from widen.model.types import BINARY, INTEGER, STRING, Field, StructType
from widen.protocol.partition_values import (
    UNKNOWN,
    directory_values,
    is_hive_path,
    parse_partition_value,
    parse_timestamp,
    partition_limits,
    unescape,
)


@pytest.mark.parametrize(
    ("text", "type_text", "value"),
    [
        (None, "int", None),
        ("", "string", None),
        ("", "decimal(5,2)", None),
        ("1", "int", 1),
        ("-128", "byte", -128),
        ("+9223372036854775807", "bigint", 9223372036854775807),
        ("1", "decimal(12,2)", Decimal("1")),
        ("3.4", "double", 3.4),
        ("3.4", "float", 3.4000000953674316),
        ("Infinity", "double", float("inf")),
        ("-inf", "double", float("-inf")),
        ("1E-7", "double", 1e-7),
        ("1e2", "decimal(3,0)", Decimal("1e2")),
        ("-1.50", "decimal(3,2)", Decimal("-1.50")),
        ("x y", "string", "x y"),
        (" 7 ", "int", 7),
        ("true", "boolean", True),
        ("2024-01-01", "date", date(2024, 1, 1)),
        ("2024-01-01", "timestamp_ntz", datetime(2024, 1, 1)),
        ("2024-01-01 00:00:00", "timestamp_ntz", datetime(2024, 1, 1)),
        ("2024-01-01 12:30:00.5", "timestamp_ntz", datetime(2024, 1, 1, 12, 30, 0, 500000)),
        ("2024-01-01T12:30:00.000001Z", "timestamp", datetime(2024, 1, 1, 12, 30, 0, 1, tzinfo=timezone.utc)),
        ("2024-01-01T12:30:00+02:00", "timestamp", datetime(2024, 1, 1, 10, 30, tzinfo=timezone.utc)),
    ],
)
def test_text_to_value(text: str | None, type_text: str, value: Any) -> None:
    found = parse_partition_value(text, parse_type(type_text))
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "type_text"),
    [
        ("NaN", "double"),
        ("1e50", "float"),
        ("1_0", "double"),
        ("1d", "double"),
        ("abc", "int"),
        ("1.0", "bigint"),
        ("1_0", "int"),
        ("\u0667", "int"),
        ("\u00a07", "int"),
        ("128", "byte"),
        ("-32769", "short"),
        ("2147483648", "int"),
        ("9223372036854775808", "bigint"),
        ("1.239", "decimal(12,2)"),
        ("1000", "decimal(5,2)"),
        ("1e99999", "decimal(38,0)"),
        ("1_0", "decimal(5,2)"),
        ("2024-01-01 12:00:00", "timestamp"),
        ("2024-01-01T12:00:00Z", "timestamp_ntz"),
        ("20240101", "date"),
        ("2024-1-1", "date"),
        ("0000-01-01", "date"),
        ("maybe", "boolean"),
        ("x", "binary"),
    ],
)
def test_what_cannot_be_said_is_unknown(text: str, type_text: str) -> None:
    assert parse_partition_value(text, parse_type(type_text)) is UNKNOWN


def test_a_fraction_is_cut_to_microseconds() -> None:
    assert parse_timestamp("2024-01-01T00:00:00.123456789") == datetime(2024, 1, 1, 0, 0, 0, 123456)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("p=1/f.parquet", (("p", "1"),)),
        ("job/p=1/q=x%20y%252Fz/f.parquet", (("p", "1"), ("q", "x y/z"))),
        ("p=1/job/f.parquet", (("p", "1"),)),
        ("p=1/job/q=2/f.parquet", (("q", "2"),)),
        ("p=__HIVE_DEFAULT_PARTITION__/f.parquet", (("p", None),)),
        ("job/f=1.parquet", ()),
        ("a=b=c/f.parquet", (("a", "b=c"),)),
        ("d=%C3%A9/f.parquet", (("d", "é"),)),
    ],
)
def test_directories_as_spark_finds_them(path: str, values: tuple[tuple[str, str | None], ...]) -> None:
    assert directory_values(path) == values


def test_an_escape_is_one_character_each() -> None:
    assert unescape("a%3Db%2Fc%zz%") == "a=b/c%zz%"


@pytest.mark.parametrize(
    ("path", "values", "is_hive"),
    [
        ("job/p=1/q=x/f.parquet", {"p": "1", "q": "x"}, True),
        ("job/p=1/q=__HIVE_DEFAULT_PARTITION__/f.parquet", {"p": "1", "q": None}, True),
        ("job/p=1/q=__HIVE_DEFAULT_PARTITION__/f.parquet", {"p": "1", "q": ""}, True),
        ("job/q=x/p=1/f.parquet", {"p": "1", "q": "x"}, False),
        ("job/p=1.0/q=x/f.parquet", {"p": "1", "q": "x"}, False),
        ("job/P=1/q=x/f.parquet", {"p": "1", "q": "x"}, False),
        ("ab/f.parquet", {"p": "1", "q": "x"}, False),
        ("o=0/p=1/q=x/f.parquet", {"p": "1", "q": "x"}, False),
        ("_temporary/p=1/q=x/f.parquet", {"p": "1", "q": "x"}, False),
    ],
)
def test_directories_must_say_what_the_log_says(path: str, values: dict[str, str | None], is_hive: bool) -> None:
    assert is_hive_path(path, ("p", "q"), values) is is_hive


def test_partitions_cannot_hold_texts_that_stand_for_null() -> None:
    schema = StructType((Field("the day", STRING), Field("key", BINARY), Field("n", INTEGER), Field("other", STRING)))
    assert partition_limits(schema, ["the day", "key", "n"]) == {
        "partition column the day": (
            "`the day` IS NULL OR (`the day` NOT IN ('', '__HIVE_DEFAULT_PARTITION__') "
            "AND NOT contains(`the day`, char(0)))"
        ),
        "partition column key": (
            "key IS NULL OR (key NOT IN (X'', X'5f5f484956455f44454641554c545f504152544954494f4e5f5f') "
            "AND NOT contains(key, X'00'))"
        ),
    }
