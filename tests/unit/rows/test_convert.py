from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.evolution.policy import EpochUnit
from widen.json.document import DateText, JsonNumber, TimestampText
from widen.json.kinds import word_of
from widen.model.schema_json import parse_type
from widen.rows.row import MISSING, convert, word_of_value

HELD = [
    (JsonNumber("7"), "int", 7),
    (JsonNumber("2147483647"), "int", 2147483647),
    (JsonNumber("2147483648"), "int", MISSING),
    (JsonNumber("-2147483648"), "int", -2147483648),
    (JsonNumber("127"), "tinyint", 127),
    (JsonNumber("128"), "tinyint", MISSING),
    (JsonNumber("9223372036854775807"), "bigint", 9223372036854775807),
    (JsonNumber("9007199254740992"), "double", 9007199254740992.0),
    (JsonNumber("9007199254740993"), "double", MISSING),
    (JsonNumber("1e3"), "double", 1000.0),
    (JsonNumber("1.10"), "double", 1.1),
    (JsonNumber("1e400"), "double", MISSING),
    (JsonNumber("0.1000000000000000000001"), "double", MISSING),
    (JsonNumber("0.5"), "float", 0.5),
    (JsonNumber("0.1"), "float", MISSING),
    (JsonNumber("1e300"), "float", MISSING),
    (JsonNumber("1.10"), "decimal(3,2)", Decimal("1.10")),
    (JsonNumber("1.123"), "decimal(4,2)", MISSING),
    (JsonNumber("100"), "decimal(2,0)", MISSING),
    (JsonNumber("0.5" + "0" * 6000), "decimal(21,1)", Decimal("0.5")),
    (JsonNumber("18446744073709551616"), "decimal(20,0)", Decimal("18446744073709551616")),
    (JsonNumber("0"), "decimal(2,2)", Decimal("0")),
    (JsonNumber("-0"), "decimal(2,0)", Decimal("0")),
    (JsonNumber("-0.0"), "decimal(2,1)", MISSING),
    (JsonNumber("-0e5"), "decimal(2,1)", MISSING),
    (JsonNumber("2.5"), "bigint", MISSING),
    (JsonNumber("1.0"), "int", MISSING),
    (JsonNumber("1e3"), "string", "1e3"),
    (JsonNumber("1.10"), "string", "1.10"),
    (JsonNumber("9" * 5000), "string", "9" * 5000),
    (JsonNumber("9" * 5000), "double", MISSING),
    ("12", "bigint", MISSING),
    ("true", "boolean", MISSING),
    ("x", "string", "x"),
    (True, "boolean", True),
    (True, "bigint", 1),
    (False, "double", 0.0),
    (True, "decimal(3,1)", Decimal("1")),
    (True, "string", "true"),
    (False, "string", "false"),
    (True, "timestamp", MISSING),
    (JsonNumber("1"), "boolean", MISSING),
    ("2024-05-01", "date", MISSING),
    (DateText("2024-05-01"), "date", date(2024, 5, 1)),
    (DateText("2024-05-01"), "timestamp", datetime(2024, 5, 1, tzinfo=timezone.utc)),
    (DateText("2024-05-01"), "timestamp_ntz", datetime(2024, 5, 1)),
    (DateText("2024-05-01"), "bigint", 19844),
    (DateText("1969-12-31"), "int", -1),
    (DateText("2024-05-01"), "double", 19844.0),
    (DateText("2024-05-01"), "decimal(7,0)", Decimal("19844")),
    (DateText("2024-05-01"), "decimal(4,0)", MISSING),
    (DateText("2024-05-01"), "smallint", MISSING),
    (DateText("2024-05-01"), "float", MISSING),
    (DateText("2024-05-01"), "string", "2024-05-01"),
    (DateText("2024-05-01"), "boolean", MISSING),
    (TimestampText("2024-05-01T10:00:00.123Z"), "timestamp", datetime(2024, 5, 1, 10, 0, 0, 123000, timezone.utc)),
    (TimestampText("1970-01-01T00:00:00.001Z"), "bigint", 1),
    (TimestampText("1969-12-31T23:59:59.999Z"), "bigint", -1),
    (TimestampText("1970-01-01T00:00:00.001Z"), "double", 1.0),
    (TimestampText("1970-01-01T00:00:00.0015Z"), "bigint", MISSING),
    (TimestampText("1970-01-01T00:00:00.001Z"), "int", MISSING),
    (TimestampText("1970-01-01T00:00:00Z"), "timestamp_ntz", MISSING),
    (TimestampText("1970-01-01T00:00:00Z"), "date", MISSING),
    (TimestampText("1970-01-01T00:00:00+00:00"), "string", "1970-01-01T00:00:00+00:00"),
]


@pytest.mark.parametrize(("value", "column", "expected"), HELD)
def test_a_column_holds_a_value_exactly_or_not_at_all(value: Any, column: str, expected: Any) -> None:
    leaf = parse_type(column)
    held = convert(value, word_of_value(value), word_of(leaf) or column, leaf)
    assert held is expected if expected is MISSING else (held, type(held)) == (expected, type(expected))


def test_a_negative_zero_keeps_its_sign_in_a_double() -> None:
    leaf = parse_type("double")
    for token in ("-0.0", "-0"):
        held = convert(JsonNumber(token), word_of_value(JsonNumber(token)), "double", leaf)
        assert math.copysign(1, held) == -1


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("1700000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)),
        ("1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=timezone.utc)),
        ("1700000000123456", datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=timezone.utc)),
        ("1700000000123456000", datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=timezone.utc)),
        ("1700000000123456789", MISSING),
        ("-1", datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc)),
    ],
)
def test_the_unit_of_an_epoch_is_told_by_its_size(token: str, expected: Any) -> None:
    held = convert(JsonNumber(token), "long", "timestamp", parse_type("timestamp"))
    assert held is expected or held == expected


@pytest.mark.parametrize(
    ("token", "unit", "expected"),
    [
        ("1700000000123", EpochUnit.SECONDS, MISSING),
        ("5000000000", EpochUnit.MILLISECONDS, datetime(1970, 2, 27, 20, 53, 20, tzinfo=timezone.utc)),
        ("5", EpochUnit.MICROSECONDS, datetime(1970, 1, 1, 0, 0, 0, 5, timezone.utc)),
        ("5000", EpochUnit.NANOSECONDS, datetime(1970, 1, 1, 0, 0, 0, 5, timezone.utc)),
        ("5001", EpochUnit.NANOSECONDS, MISSING),
    ],
)
def test_the_unit_of_an_epoch_that_was_said(token: str, unit: EpochUnit, expected: Any) -> None:
    held = convert(JsonNumber(token), "long", "timestamp", parse_type("timestamp"), unit)
    assert held is expected or held == expected
