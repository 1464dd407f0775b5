"""Predicates as PyIceberg's filters: equal where the answer is certain, and everything where it is not."""

from __future__ import annotations

import pytest
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from widen.files.predicates import bind_condition
from widen.iceberg.scan_plan import to_row_filter
from widen.iceberg.schema_conversion import to_model

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "f", FloatType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
    NestedField(4, "p", DecimalType(5, 2), required=False),
    NestedField(5, "t", StringType(), required=False),
    NestedField(6, "s", StructType(NestedField(7, "a", IntegerType(), required=False)), required=False),
    NestedField(8, "x.y", IntegerType(), required=False),
    NestedField(9, "b", BooleanType(), required=False),
    NestedField(10, "day", DateType(), required=False),
    NestedField(11, "at", TimestampType(), required=False),
    NestedField(12, "tz", TimestamptzType(), required=False),
)


@pytest.mark.parametrize(
    ("where", "filter_"),
    [
        ("i = 5", "EqualTo(term=Reference(name='i'), literal=LongLiteral(5))"),
        ("i > 2.5", "GreaterThanOrEqual(term=Reference(name='i'), literal=LongLiteral(3))"),
        ("i = 2.5", "AlwaysFalse()"),
        ("i <> 2.5", "NotNull(term=Reference(name='i'))"),
        ("i is not null", "NotNull(term=Reference(name='i'))"),
        ("not (i is not null)", "IsNull(term=Reference(name='i'))"),
        ("not (i < 5)", "GreaterThanOrEqual(term=Reference(name='i'), literal=LongLiteral(5))"),
        ("s.a <> 5", "NotEqualTo(term=Reference(name='s.a'), literal=LongLiteral(5))"),
        ("`x.y` = 5", "AlwaysTrue()"),
        ("upper(t) = 'A'", "AlwaysTrue()"),
        ("t >= 'a'", "GreaterThanOrEqual(term=Reference(name='t'), literal=literal('a'))"),
        ("b = true", "EqualTo(term=Reference(name='b'), literal=BooleanLiteral(True))"),
        ("b < true", "AlwaysTrue()"),
        ("f < 0.5", "LessThan(term=Reference(name='f'), literal=FloatLiteral(0.5))"),
        ("f <= double('-Infinity')", "LessThanOrEqual(term=Reference(name='f'), literal=FloatLiteral(-inf))"),
        ("f < 0.1", "AlwaysTrue()"),  # 0.1 is not a float
        ("d < 0.1", "LessThan(term=Reference(name='d'), literal=DoubleLiteral(0.1))"),
        ("p < 1.5", "LessThan(term=Reference(name='p'), literal=DecimalLiteral(Decimal('1.50')))"),
        ("p = -0.01", "EqualTo(term=Reference(name='p'), literal=DecimalLiteral(Decimal('-0.01')))"),
        # PyIceberg would look for the partition of the moment before or after.
        ("day < date'0001-01-01'", "AlwaysTrue()"),
        ("day > date'9999-12-31'", "AlwaysTrue()"),
        ("day > date'9999-12-30'", "GreaterThan(term=Reference(name='day'), literal=DateLiteral(2932895))"),
        ("at < timestamp_ntz'0001-01-01 00:00:00'", "AlwaysTrue()"),
        ("tz > timestamp'9999-12-31 23:59:59.999999Z'", "AlwaysTrue()"),
        ("p < 1.501", "LessThanOrEqual(term=Reference(name='p'), literal=DecimalLiteral(Decimal('1.50')))"),
        ("p < 1000", "NotNull(term=Reference(name='p'))"),  # more digits than the column
        ("day = '1970-01-02'", "EqualTo(term=Reference(name='day'), literal=DateLiteral(1))"),
        (
            "at < timestamp_ntz'1969-12-31 23:59:59.999999'",
            "LessThan(term=Reference(name='at'), literal=TimestampLiteral(-1))",
        ),
        (
            "tz < timestamp'1970-01-01 00:00:00.000001Z'",
            "LessThan(term=Reference(name='tz'), literal=TimestampLiteral(1))",
        ),
        ("i = 1 and upper(t) = 'A'", "EqualTo(term=Reference(name='i'), literal=LongLiteral(1))"),
        ("i = 1 or upper(t) = 'A'", "AlwaysTrue()"),
        ("not (i = 1 and upper(t) = 'A')", "AlwaysTrue()"),
        ("not (i = 1 or upper(t) = 'A')", "NotEqualTo(term=Reference(name='i'), literal=LongLiteral(1))"),
        (
            "i is null and t is null",
            "And(left=IsNull(term=Reference(name='i')), right=IsNull(term=Reference(name='t')))",
        ),
    ],
)
def test_a_filter_is_true_for_every_row_that_the_condition_is_true_for(where: str, filter_: str) -> None:
    assert _plain(to_row_filter(bind_condition(where, to_model(SCHEMA)), SCHEMA)) == filter_


def test_a_required_field_of_a_null_struct_is_null() -> None:
    required = NestedField(2, "a", IntegerType(), required=True)
    schema = Schema(NestedField(1, "s", StructType(required), required=False), NestedField(3, "i", IntegerType(), True))

    def bound(where: str) -> str:
        return _plain(bind(schema, to_row_filter(bind_condition(where, to_model(schema)), schema), True))

    assert bound("s.a is null") == bound("not (s.a is not null)") == "AlwaysTrue()"
    assert bound("i is null") == "AlwaysFalse()"


def test_nan_is_greater_than_every_number() -> None:
    for where, operator in (("d > 5", "GreaterThan"), ("not (d < 5)", "GreaterThanOrEqual")):
        greater = f"{operator}(term=Reference(name='d'), literal=DoubleLiteral(5.0))"
        assert _plain(to_row_filter(bind_condition(where, to_model(SCHEMA)), SCHEMA)) == (
            f"Or(left={greater}, right=IsNaN(term=Reference(name='d')))"
        )


def _plain(expression: object) -> str:
    return repr(expression)
