from __future__ import annotations

from dataclasses import make_dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.data_source.batch_reader import to_predicate
from widen.model.types import DATE, LONG, STRING, TIMESTAMP, DecimalType, Field, StructType
from widen.protocol.data_skipping import Compare, ConstantUnlessNull, IsNull, Not, Or, Predicate, UnknownPredicate

SCHEMA = StructType(
    (
        Field("id", LONG),
        Field("day", DATE),
        Field("at", TIMESTAMP),
        Field("price", DecimalType(10, 2)),
        Field("deep", StructType((Field("name", STRING),))),
    )
)
UNKNOWN = UnknownPredicate()
NULL = ConstantUnlessNull(("id",), LONG, None)


def pushed(name: str, *values: Any) -> Any:
    """Return what Spark 4.1 and later push: instances of classes by these names and with these fields."""
    names = ["child"] if name == "Not" else ["attribute", "value"][: len(values)]
    return make_dataclass(name, names)(*values)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pushed("EqualTo", ("id",), 7), Compare(("id",), LONG, "=", 7)),
        (pushed("GreaterThan", ("day",), date(2024, 1, 1)), Compare(("day",), DATE, ">", date(2024, 1, 1))),
        (pushed("LessThanOrEqual", ("deep", "name"), "b"), Compare(("deep", "name"), STRING, "<=", "b")),
        (
            pushed("GreaterThanOrEqual", ("price",), Decimal("1.50")),
            Compare(("price",), DecimalType(10, 2), ">=", Decimal("1.50")),
        ),
        (pushed("LessThan", ("at",), datetime(2024, 1, 1)), UNKNOWN),
        (
            pushed("LessThan", ("at",), datetime(2024, 1, 1, tzinfo=timezone.utc)),
            Compare(("at",), TIMESTAMP, "<", datetime(2024, 1, 1, tzinfo=timezone.utc)),
        ),
        (pushed("In", ("id",), (1, 2)), Or(Compare(("id",), LONG, "=", 1), Compare(("id",), LONG, "=", 2))),
        (pushed("In", ("id",), (1, None)), Or(Compare(("id",), LONG, "=", 1), NULL)),
        (pushed("In", ("id",), ()), UNKNOWN),
        (pushed("IsNull", ("id",)), IsNull(("id",), LONG)),
        (pushed("IsNotNull", ("deep",)), Not(IsNull(("deep",), SCHEMA.fields[4].type))),
        (pushed("EqualNullSafe", ("id",), None), IsNull(("id",), LONG)),
        (pushed("EqualNullSafe", ("id",), 1), UNKNOWN),
        (pushed("Not", pushed("EqualTo", ("id",), 7)), Not(Compare(("id",), LONG, "=", 7))),
        (pushed("StringStartsWith", ("deep", "name"), "a"), UNKNOWN),
        (pushed("EqualTo", ("other",), 7), UNKNOWN),
        (pushed("EqualTo", ("id",), "7"), UNKNOWN),
        (pushed("EqualTo", ("id",), None), NULL),
    ],
)
def test_what_spark_pushes_is_a_predicate_or_skips_nothing(given: Any, expected: Predicate) -> None:
    assert to_predicate(given, SCHEMA) == expected
