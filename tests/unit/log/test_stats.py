"""Statistics that a checkpoint has only as columns, in the types of its time, as the JSON text of the log."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from widen.log.stats import to_json_text


def texts(values: list[Any], data_type: pa.DataType) -> list[Any]:
    """Return the bounds that these lower bounds become."""
    parsed = pa.array([{"minValues": {"a": value}} for value in values], pa.struct([low(data_type)]))
    return [json.loads(text)["minValues"].get("a") for text in to_json_text(parsed, None).to_pylist()]


def low(data_type: pa.DataType) -> pa.Field:
    return pa.field("minValues", pa.struct([("a", data_type)]))


def test_bounds_keep_the_form_of_their_old_type() -> None:
    assert texts([5], pa.int8()) == [5]
    assert texts([date(2024, 1, 1)], pa.date32()) == ["2024-01-01"]
    assert texts([datetime(2024, 1, 1, 0, 0, 0, 1999)], pa.timestamp("us")) == ["2024-01-01T00:00:00.001"]
    noon = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    assert texts([noon], pa.timestamp("us", "UTC")) == ["2024-01-01T12:00:00.000Z"]


def test_a_float_is_exact_as_the_double_that_it_is() -> None:
    assert texts([3.4], pa.float32()) == [3.4000000953674316]


def test_decimals_keep_all_their_digits() -> None:
    value = Decimal("12345678901234567890.123456789012345678")
    parsed = pa.array([{"minValues": {"a": value}}], pa.struct([low(pa.decimal128(38, 18))]))
    assert to_json_text(parsed, None).to_pylist() == [f'{{"minValues":{{"a":{value}}}}}']


def test_what_json_or_python_cannot_say_is_left_out() -> None:
    assert texts([float("nan"), float("inf"), 1.5], pa.float64()) == [None, None, 1.5]
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        ints = pa.array([2**31 - 1, 0], pa.int32()) if kind == pa.date32() else pa.array([2**62, 0], pa.int64())
        bounds = pa.StructArray.from_arrays([ints.cast(kind)], ["a"])
        found = to_json_text(pa.StructArray.from_arrays([bounds], ["minValues"]), None).to_pylist()
        assert found[0] == '{"minValues":{}}'
        assert "1970-01-01" in found[1]


def test_a_text_that_is_there_wins() -> None:
    parsed = pa.array([{"minValues": {"a": 1}}, {"minValues": {"a": 2}}, None], pa.struct([low(pa.int32())]))
    given = pa.array(["{}", None, None], pa.string())
    assert to_json_text(parsed, given).to_pylist() == ["{}", '{"minValues":{"a":2}}', None]
