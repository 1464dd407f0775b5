"""Values that go back to a narrower column: exactly, or not at all."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.model.schema_json import parse_type
from widen.rows.row import DUPLICATE, FITS, STAYS, judge_fold

FITTING: list[tuple[Any, str, str, Any]] = [
    ("12", "string", "bigint", 12),
    ("-3", "string", "int", -3),
    ("2.50", "string", "double", 2.5),
    ("1e3", "string", "double", 1000.0),
    ("12.50", "string", "decimal(10,2)", Decimal("12.50")),
    ("true", "string", "boolean", True),
    ("2024-01-31", "string", "date", date(2024, 1, 31)),
    ("2024-01-31T10:00:00Z", "string", "timestamp", datetime(2024, 1, 31, 10, tzinfo=timezone.utc)),
    (7.0, "double", "bigint", 7),
    (Decimal("7.00"), "decimal(10,2)", "bigint", 7),
    (9007199254740992, "bigint", "double", 9007199254740992.0),
    (["gift"], "array<string>", "string", "gift"),
    (["1", None, "3"], "array<string>", "array<bigint>", [1, None, 3]),
    ([["1"], ["2"]], "array<array<string>>", "array<bigint>", [1, 2]),
    ("1", "string", "array<bigint>", [1]),
]
STAYING: list[tuple[Any, str, str]] = [
    ("007", "string", "bigint"),
    (" 7", "string", "bigint"),
    ("+7", "string", "bigint"),
    ("7.5", "string", "bigint"),
    ("12.505", "string", "decimal(10,2)"),
    ("0.1234567890123456789", "string", "double"),
    ("True", "string", "boolean"),
    ("true", "string", "bigint"),
    ("2024-01-31", "string", "bigint"),
    ("1706659200", "string", "timestamp"),
    ("2147483648", "string", "int"),
    ("", "string", "bigint"),
    ("NaN", "string", "double"),
    (float("nan"), "double", "bigint"),
    (7.5, "double", "bigint"),
    (9007199254740993, "bigint", "double"),
    (["a", "b"], "array<string>", "string"),
    ([], "array<string>", "string"),
    ([None], "array<string>", "string"),
    (["1", "x"], "array<string>", "array<bigint>"),
]


@pytest.mark.parametrize(("value", "type_text", "into", "expected"), FITTING)
def test_what_converts_exactly_goes_back(value: Any, type_text: str, into: str, expected: Any) -> None:
    finding, new = judge_fold(value, parse_type(type_text), None, parse_type(into))
    assert (finding, new, type(new)) == (FITS, expected, type(expected))


@pytest.mark.parametrize(("value", "type_text", "into"), STAYING)
def test_what_does_not_stays(value: Any, type_text: str, into: str) -> None:
    assert judge_fold(value, parse_type(type_text), None, parse_type(into)) == (STAYS, None)


def test_a_value_that_the_other_column_has_already_is_held() -> None:
    string, bigint = parse_type("string"), parse_type("bigint")
    assert judge_fold("12", string, 12, bigint) == (DUPLICATE, 12)
    assert judge_fold("12", string, 13, bigint) == (STAYS, 13)
    assert judge_fold("x", string, 13, bigint) == (STAYS, 13)


def test_the_same_moment_is_held_in_whatever_zone_it_comes() -> None:
    utc = datetime(2024, 1, 31, 10, tzinfo=timezone.utc)
    local = utc.astimezone().replace(tzinfo=None)
    assert judge_fold("2024-01-31T10:00:00Z", parse_type("string"), local, parse_type("timestamp")) == (
        DUPLICATE,
        local,
    )
