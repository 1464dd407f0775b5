from __future__ import annotations

import math
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.model.text import parse_type
from widen.observe.document import Number
from widen.observe.kind import word_of
from widen.routing.convert import MISSING, convert, word_of_value

HELD = [
    (Number("7"), "int", 7),
    (Number("2147483647"), "int", 2147483647),
    (Number("2147483648"), "int", MISSING),
    (Number("-2147483648"), "int", -2147483648),
    (Number("127"), "tinyint", 127),
    (Number("128"), "tinyint", MISSING),
    (Number("9223372036854775807"), "bigint", 9223372036854775807),
    (Number("9007199254740992"), "double", 9007199254740992.0),
    (Number("9007199254740993"), "double", MISSING),
    (Number("1e3"), "double", 1000.0),
    (Number("1.10"), "double", 1.1),
    (Number("1e400"), "double", MISSING),
    (Number("0.1000000000000000000001"), "double", MISSING),
    (Number("0.5"), "float", 0.5),
    (Number("0.1"), "float", MISSING),
    (Number("1e300"), "float", MISSING),
    (Number("1.10"), "decimal(3,2)", Decimal("1.10")),
    (Number("1.123"), "decimal(4,2)", MISSING),
    (Number("100"), "decimal(2,0)", MISSING),
    (Number("0.5" + "0" * 6000), "decimal(21,1)", Decimal("0.5")),
    (Number("18446744073709551616"), "decimal(20,0)", Decimal("18446744073709551616")),
    (Number("0"), "decimal(2,2)", Decimal("0")),
    (Number("-0"), "decimal(2,0)", Decimal("0")),
    (Number("-0.0"), "decimal(2,1)", MISSING),
    (Number("-0e5"), "decimal(2,1)", MISSING),
    (Number("2.5"), "bigint", MISSING),
    (Number("1.0"), "int", MISSING),
    (Number("1e3"), "string", "1e3"),
    (Number("1.10"), "string", "1.10"),
    (Number("9" * 5000), "string", "9" * 5000),
    (Number("9" * 5000), "double", MISSING),
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
    (Number("1"), "boolean", MISSING),
    ("2024-05-01", "date", MISSING),
]


@pytest.mark.parametrize(("value", "column", "expected"), HELD)
def test_a_column_holds_a_value_exactly_or_not_at_all(value: Any, column: str, expected: Any) -> None:
    leaf = parse_type(column)
    held = convert(value, word_of_value(value), word_of(leaf) or "", leaf)
    assert held is expected if expected is MISSING else (held, type(held)) == (expected, type(expected))


def test_a_negative_zero_keeps_its_sign_in_a_double() -> None:
    leaf = parse_type("double")
    for token in ("-0.0", "-0"):
        held = convert(Number(token), word_of_value(Number(token)), "double", leaf)
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
    held = convert(Number(token), "long", "timestamp", parse_type("timestamp"))
    assert held is expected or held == expected
