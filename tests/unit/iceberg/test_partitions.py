"""Partition fields and their values; PyIceberg's transforms are the judge."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField as TheirField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform, TruncateTransform, parse_transform

from widen.errors import InvalidOption, RequestError
from widen.iceberg.partitions import (
    PartitionField,
    bucket_of,
    decode_partition,
    encode_partition,
    hashed_bytes,
    parse_partition_by,
    partition_columns,
    read_partition_fields,
    resolve_partition_fields,
    to_partition_spec,
    truncate_value,
    truncation_limits,
)
from widen.iceberg.schema_conversion import from_model
from widen.model.types import (
    BINARY,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    StructType,
)

LARGEST = Decimal(10) ** 24 - 1
DECIMALS = st.decimals(-LARGEST, LARGEST, places=4)
TEXTS = st.text(max_size=20)
VALUES = [
    (ice.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (ice.DecimalType(38, 4), DECIMALS),
    (ice.StringType(), TEXTS),
    (ice.BinaryType(), st.binary(max_size=20)),
]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("data_type", "values"), VALUES, ids=lambda each: str(each)[:20])
def test_buckets_are_those_of_pyiceberg(data_type: ice.PrimitiveType, values: st.SearchStrategy[Any]) -> None:
    @given(values, st.integers(1, 2**31 - 1))
    def check(value: Any, buckets: int) -> None:
        assert bucket_of(hashed_bytes(value), buckets) == _transform(BucketTransform(buckets), data_type)(value)

    check()


@pytest.mark.hypothesis
@pytest.mark.parametrize(("data_type", "values"), VALUES, ids=lambda each: str(each)[:20])
def test_truncation_is_that_of_pyiceberg(data_type: ice.PrimitiveType, values: st.SearchStrategy[Any]) -> None:
    @given(values, st.integers(1, 50))
    def check(value: Any, width: int) -> None:
        assert truncate_value(value, width) == _transform(TruncateTransform(width), data_type)(value)

    check()


def test_decimals_of_38_digits_are_truncated_exactly() -> None:
    value = Decimal("9999999999999999999999999999999999.9999")
    assert truncate_value(value, 10) == Decimal("9999999999999999999999999999999999.9990")
    assert truncate_value(-value, 10) == Decimal("-10000000000000000000000000000000000.0000")


def _transform(transform: Any, data_type: ice.PrimitiveType) -> Callable[[Any], Any]:
    return transform.transform(data_type)  # type: ignore[no-any-return]


@given(st.lists(st.none() | st.booleans() | st.integers() | DECIMALS | TEXTS | st.binary(max_size=9) | st.floats()))
def test_partition_values_travel_as_json(values: list[Any]) -> None:
    assert list(map(repr, decode_partition(encode_partition(values)))) == list(map(repr, values))


SCHEMA = StructType(
    (
        Field("id", LONG),
        Field("placed_at", TIMESTAMP),
        Field("day", DATE),
        Field("r", StructType((Field("c.d", STRING),))),
        Field("l", ArrayType(LONG)),
        Field("price", DecimalType(10, 2)),
        Field("f", DOUBLE),
        Field("placed_at_day", BINARY),
    )
)


def test_partition_fields_of_a_new_table() -> None:
    texts = ["day(placed_at)", "bucket(16, ID)", "truncate( 4 , r.`c.d`)", "price", "months(day)", "hour(placed_at)"]
    fields = resolve_partition_fields(parse_partition_by(texts), SCHEMA)
    assert fields == (
        PartitionField("placed_at_day_2", ("placed_at",), "day"),
        PartitionField("id_bucket", ("id",), "bucket", 16),
        PartitionField("r.c.d_trunc", ("r", "c.d"), "truncate", 4),
        PartitionField("price", ("price",), "identity"),
        PartitionField("day_month", ("day",), "month"),
        PartitionField("placed_at_hour", ("placed_at",), "hour"),
    )
    numbered = from_model(SCHEMA)
    spec = to_partition_spec(fields, numbered)
    assert [str(field.transform) for field in spec.fields] == [
        *("day", "bucket[16]", "truncate[4]", "identity", "month", "hour")
    ]
    metadata = new_table_metadata(numbered, spec, UNSORTED_SORT_ORDER, "file:///t", {})
    assert read_partition_fields(metadata) == fields
    assert list(partition_columns(fields)) == [("placed_at",), ("id",), ("r", "c.d"), ("price",), ("day",)]


@pytest.mark.parametrize(
    "text", ["bucket(id)", "bucket(0, id)", "truncate(x, id)", "week(day)", "day()", "day(a) b", "bucket(-1, id)"]
)
def test_what_is_not_a_transform_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"partition_by|not a valid column path"):
        resolve_partition_fields(parse_partition_by([text]), SCHEMA)


@pytest.mark.parametrize(
    "text", ["nope", "l", "l.element", "r", "hour(day)", "day(id)", "bucket(2, f)", "truncate(2, f)"]
)
def test_columns_that_a_transform_cannot_take_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="partition_by cannot be"):
        resolve_partition_fields(parse_partition_by([text]), SCHEMA)


def test_a_field_that_is_given_twice_is_refused() -> None:
    fields = parse_partition_by(["bucket(4, id)", "bucket(8, id)", "bucket(4, ID)"])
    with pytest.raises(InvalidOption, match=r"'bucket\(4, ID\)'. Must name each field once"):
        resolve_partition_fields(fields, SCHEMA)


@pytest.mark.parametrize(
    ("data_type", "width", "limit"),
    [
        (INTEGER, 10, "-2147483640"),
        (INTEGER, 1, None),
        (LONG, 2**20, None),
        (LONG, 10, "-9223372036854775800"),
        (DecimalType(9, 2), 50, "-9999999.50"),
        (DecimalType(9, 2), 2**31 - 1, "-0.00"),
        (DecimalType(38, 0), 7, "-99999999999999999999999999999999999998"),
        (DecimalType(38, 38), 10, "-0.99999999999999999999999999999999999990"),
        (STRING, 3, None),
    ],
)
def test_numbers_below_the_last_multiple_of_the_width_have_no_partition(
    data_type: DataType, width: int, limit: str | None
) -> None:
    fields = (PartitionField("x_trunc", ("x",), "truncate", width), PartitionField("x", ("x",), "identity"))
    expected = {} if limit is None else {"partition field x_trunc": f"x IS NULL OR x >= {limit}"}
    assert truncation_limits(fields, StructType((Field("x", data_type),))) == expected


def test_dropped_sources_and_void_have_no_column() -> None:
    schema = Schema(ice.NestedField(1, "at", ice.DateType()), ice.NestedField(2, "id", ice.LongType()))
    spec = PartitionSpec(
        TheirField(1, 1000, DayTransform(), "at_day"), TheirField(2, 1001, parse_transform("void"), "id_bucket")
    )
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {})
    fields = read_partition_fields(metadata)
    assert fields == (PartitionField("at_day", ("at",), "day"), PartitionField("id_bucket", (), "void"))
    assert list(partition_columns(fields)) == [("at",)]
