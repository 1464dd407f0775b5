"""Metrics of data files: which columns have them, and bounds in Iceberg's binary form."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema

from widen.errors import InvalidOption
from widen.iceberg.file_metrics import (
    BOOLEAN,
    BYTES,
    COUNTS_ONLY,
    DECIMAL,
    DEFAULT_MODE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TEXT,
    WHOLE_BOUNDS,
    encode_value,
    leaf_ids,
    lower_bound,
    metrics_modes,
    upper_bound,
)
from widen.iceberg.schema_conversion import from_model, to_model
from widen.model.types import BINARY, STRING, ArrayType, Field, MapType, StructType
from widen.model.types import DOUBLE as DOUBLES
from widen.model.types import LONG as LONGS

INNER = StructType((Field("x", STRING), Field("y", ArrayType(LONGS))))
SCHEMA = to_model(
    from_model(
        StructType((Field("a", STRING), Field("s", INNER), Field("m", MapType(STRING, INNER)), Field("d", DOUBLES)))
    )
)


def _ids() -> dict[str, int]:
    return {".".join(path): number for path, number, _ in leaf_ids(SCHEMA)}


def test_leaves_have_the_ids_of_the_schema() -> None:
    assert [(".".join(path), is_repeated) for path, _, is_repeated in leaf_ids(SCHEMA)] == [
        ("a", False),
        ("s.x", False),
        ("s.y.element", True),
        ("m.key", True),
        ("m.value.x", True),
        ("m.value.y.element", True),
        ("d", False),
    ]
    theirs = from_model(SCHEMA)
    assert _ids() == {name: theirs.find_field(name).field_id for name in _ids()}


def test_modes_follow_the_table_properties() -> None:
    ids = _ids()
    assert metrics_modes(SCHEMA, {}) == {
        ids["a"]: 16,
        ids["s.x"]: 16,
        ids["s.y.element"]: COUNTS_ONLY,
        ids["m.key"]: COUNTS_ONLY,
        ids["m.value.x"]: COUNTS_ONLY,
        ids["m.value.y.element"]: COUNTS_ONLY,
        ids["d"]: 16,
    }
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.s.x": "full"}
    assert metrics_modes(SCHEMA, properties) == {ids["s.x"]: WHOLE_BOUNDS}
    few = {"write.metadata.metrics.max-inferred-column-defaults": "1", "write.metadata.metrics.column.d": "counts"}
    assert metrics_modes(SCHEMA, few) == {ids["a"]: 16, ids["d"]: COUNTS_ONLY}


@pytest.mark.parametrize("mode", ["truncate(0)", "truncate", "some", ""])
def test_a_mode_that_does_not_exist_is_refused(mode: str) -> None:
    with pytest.raises(InvalidOption, match=r"write\.metadata\.metrics\.default cannot be"):
        metrics_modes(SCHEMA, {"write.metadata.metrics.default": mode})


MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999)
# the form, the value as Parquet has it, Iceberg's type, the same value for PyIceberg
VALUES = [
    (BOOLEAN, True, ice.BooleanType(), True),
    (INT, -7, ice.IntegerType(), -7),
    (INT, -1, ice.DateType(), date(1969, 12, 31)),
    (LONG, 2**53 + 1, ice.LongType(), 2**53 + 1),
    (LONG, -1, ice.TimestampType(), MOMENT),
    (LONG, -1, ice.TimestamptzType(), MOMENT.replace(tzinfo=timezone.utc)),
    (FLOAT, 1.5, ice.FloatType(), 1.5),
    (DOUBLE, -0.1, ice.DoubleType(), -0.1),
    (TEXT, "é".encode(), ice.StringType(), "é"),
    (BYTES, b"\x00\xff", ice.BinaryType(), b"\x00\xff"),
    *(
        (DECIMAL, number, ice.DecimalType(38, 0), Decimal(number))
        for number in (0, 1, -1, 127, 128, -128, -129, 10**37)
    ),
]


@pytest.mark.parametrize(("form", "value", "theirs", "their_value"), VALUES, ids=lambda each: repr(each)[:30])
def test_single_values_are_those_of_pyiceberg(
    form: str, value: object, theirs: ice.PrimitiveType, their_value: object
) -> None:
    assert encode_value(form, value) == to_bytes(theirs, their_value)  # type: ignore[arg-type]


# the form, the value, the number of characters, the lower bound, the upper bound
TRUNCATED = [
    (TEXT, "abc", 3, "abc", "abc"),
    (TEXT, "abcd", 3, "abc", "abd"),
    (TEXT, "éée", 2, "éé", "éê"),
    (TEXT, "a\U0010ffff\U0010ffffz", 3, "a\U0010ffff\U0010ffff", "b"),
    (TEXT, "\ud7ff".replace("\ud7ff", "\ud7ffz"), 1, "\ud7ff", "\ue000"),
    (TEXT, "\U0010ffffz", 1, "\U0010ffff", None),
    (BYTES, b"\x01\xff\xff", 2, b"\x01\xff", b"\x02"),
    (BYTES, b"\xff\xffa", 2, b"\xff\xff", None),
    (TEXT, "abcd", WHOLE_BOUNDS, "abcd", "abcd"),
    (TEXT, "abcd", COUNTS_ONLY, None, None),
]


@pytest.mark.parametrize(("form", "value", "mode", "low", "high"), TRUNCATED)
def test_long_strings_are_truncated_and_the_upper_bound_is_rounded_up(
    form: str, value: str | bytes, mode: int, low: str | bytes | None, high: str | bytes | None
) -> None:
    def encoded(each: str | bytes | None) -> bytes | None:
        return each.encode() if isinstance(each, str) else each

    assert lower_bound(form, encoded(value), mode) == encoded(low)
    assert upper_bound(form, encoded(value), mode) == encoded(high)


@given(st.text(min_size=1), st.integers(1, 5))
def test_bounds_enclose_the_value(text: str, mode: int) -> None:
    value = text.encode()
    low, high = lower_bound(TEXT, value, mode), upper_bound(TEXT, value, mode)
    assert low is not None
    assert low <= value
    assert high is None or value <= high


def test_binary_has_a_mode_too() -> None:
    schema = to_model(from_model(StructType((Field("b", BINARY),))))
    assert metrics_modes(schema, {}) == {1: 16}


def test_bounds_of_uuids_and_fixed_values_are_not_truncated() -> None:
    """A reader decodes a bound by the type: 4 bytes are not a uuid."""
    schema = to_model(
        Schema(
            ice.NestedField(1, "u", ice.UUIDType(), required=False),
            ice.NestedField(2, "f", ice.FixedType(20), required=False),
            ice.NestedField(3, "b", ice.BinaryType(), required=False),
            ice.NestedField(4, "l", ice.ListType(5, ice.UUIDType(), element_required=False), required=False),
        )
    )
    assert metrics_modes(schema, {DEFAULT_MODE: "truncate(4)"}) == {
        1: WHOLE_BOUNDS,
        2: WHOLE_BOUNDS,
        3: 4,
        5: COUNTS_ONLY,
    }
    assert metrics_modes(schema, {DEFAULT_MODE: "counts"}) == dict.fromkeys((1, 2, 3, 5), COUNTS_ONLY)
