"""The one table that the engines pass to each other, and its rows as both must give them back."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

NARROW = (
    "id int, city string, small tinyint, amount decimal(10,2), share float, day date, "
    "tags array<int>, prices map<string,int>, who struct<name: string, age: smallint>"
)
WIDE = (
    "id bigint, city string, small smallint, amount decimal(14,4), share double, day timestamp_ntz, "
    "tags array<bigint>, prices map<string,bigint>, who struct<name: string, age: int>"
)

# Path, new type: one change for every column of NARROW that differs in WIDE, in the order of the columns.
CHANGES = [
    ("id", "bigint"),
    ("small", "smallint"),
    ("amount", "decimal(14,4)"),
    ("share", "double"),
    ("day", "timestamp_ntz"),
    ("tags.element", "bigint"),
    ("prices.value", "bigint"),
    ("who.age", "int"),
]

OLD = [
    (
        1,
        "Gent",
        127,
        Decimal("99999999.99"),
        1.5,
        date(2024, 2, 29),
        [2147483647, None],
        {"a": -2147483648},
        ("Ada", 32767),
    ),
    (2, "Brno", -128, Decimal("-0.01"), -0.0, date(1, 1, 1), [], {}, (None, None)),
    (3, None, None, None, None, None, None, None, None),
]
OLD_WIDE = [
    (
        1,
        "Gent",
        127,
        Decimal("99999999.9900"),
        1.5,
        datetime(2024, 2, 29),
        [2147483647, None],
        {"a": -2147483648},
        ("Ada", 32767),
    ),
    (2, "Brno", -128, Decimal("-0.0100"), -0.0, datetime(1, 1, 1), [], {}, (None, None)),
    (3, None, None, None, None, None, None, None, None),
]
NEW = [
    (
        9007199254740993,
        "Oulu",
        32767,
        Decimal("9999999999.9999"),
        0.1,
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        [9223372036854775807],
        {"b": -9223372036854775808},
        ("Emre", 2147483647),
    )
]


def frame(spark: SparkSession, rows: list[Any], schema: str) -> DataFrame:
    return spark.createDataFrame(rows, to_schema(schema))


def to_schema(text: str) -> StructType:
    schema = _parse_datatype_string(text)
    assert isinstance(schema, StructType)
    return schema


def shape(found: DataFrame) -> str:
    """The types as one text, without nullability."""
    return found.schema.simpleString()


def exact(found: DataFrame) -> list[str]:
    """The rows as texts that tell -0.0 from 0.0 and 1.10 from 1.1, in the order of the id."""
    return [repr(_plain(row)) for row in sorted(found.collect(), key=lambda row: row["id"])]


def expected(rows: list[Any]) -> list[str]:
    return [repr(_plain(row)) for row in sorted(rows, key=lambda row: row[0])]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in sorted(value.items())} if isinstance(value, dict) else value
