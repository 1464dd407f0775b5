"""Conditions of deletions on the forms of records, as the proof evaluates them."""

from __future__ import annotations

import pytest
from msgspec.msgpack import Ext

from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    Field,
    StructType,
)
from widen.proof.canonical import LONG_NUMBER
from widen.proof.conditions import Undecided, UnsupportedCondition, build_condition
from widen.schema.source_metadata import FORM, SOURCE

SCHEMA = StructType(
    (
        Field("op", STRING),
        Field("n", LONG),
        Field("i", INTEGER),
        Field("big", DecimalType(38, 0)),
        Field("local", TIMESTAMP_NTZ),
        Field("flag", BOOLEAN),
        Field("price", DOUBLE),
        Field("rate", DecimalType(6, 2)),
        Field("day", DATE),
        Field("gone", TIMESTAMP),
        Field("low", FLOAT),
        Field("r", StructType((Field("op", STRING),))),
        Field("two", LONG),
        Field("two__string", STRING, metadata={SOURCE: ["two"]}),
        Field("days", DATE),
        Field("days__string", STRING, metadata={SOURCE: ["days"]}),
        Field("json", STRING, metadata={FORM: "json"}),
    )
)

RESULTS = [
    ("op = 'd'", {"op": "d"}, True),
    ("op = 'd'", {"op": "D"}, False),
    ("op = 'd'", {}, None),
    ("`op` <> 'd'", {}, None),
    ("op != 'd'", {"op": "u"}, True),
    ("op > 'd'", {"op": "e"}, True),
    ("'d' < op", {"op": "c"}, False),
    ("op IS NULL", {}, True),
    ("op IS NOT NULL", {}, False),
    ("NOT op = 'd'", {}, None),
    ("op IN ('d', 't')", {"op": "t"}, True),
    ("op IN ('d', 't')", {}, None),
    ("op NOT IN ('d', 't')", {"op": "u"}, True),
    ("n BETWEEN 2 AND 4", {"n": 4}, True),
    ("n NOT BETWEEN 2 AND 4", {"n": 4}, False),
    ("n BETWEEN 2 AND 4", {}, None),
    ("n = 1.0", {"n": 1}, True),
    ("n > 1.5", {"n": 2}, True),
    ("-n = 1", {"n": -1}, UnsupportedCondition),
    ("n < -1", {"n": -2}, True),
    ("op = 'd' AND n = 1", {"n": 2}, False),
    ("op = 'd' AND n = 1", {"n": 1}, None),
    ("op = 'd' OR n = 1", {"n": 1}, True),
    ("op = 'd' OR n = 1", {"n": 2}, None),
    ("NOT (op = 'd' OR n = 1)", {"op": "u", "n": 2}, True),
    ("flag = true", {"flag": True}, True),
    ("flag = false", {"flag": True}, False),
    ("price >= 0.1", {"price": 0.1}, True),
    ("price = 3", {"price": 3}, True),
    ("rate = 1.5", {"rate": 1.5}, True),
    ("rate > 9999.98", {"rate": 9999.99}, True),
    ("day > '2024-01-31'", {"day": "2024-02-01"}, True),
    ("day = DATE '2024-02-01'", {"day": "2024-02-01"}, True),
    ("gone IS NOT NULL", {"gone": "2024-02-01T10:00:00Z"}, True),
    ("r.op = 'd'", {"r": {"op": "d"}}, True),
    ("r.op = 'd'", {"r": {}}, None),
    ("r.op IS NULL", {}, True),
    # An integer and a number with a fraction are compared exactly.
    ("i = 5.5", {"i": 5}, False),
    ("i < 5.5", {"i": 5}, True),
    ("5.5 > i", {"i": 6}, False),
    ("NOT (i >= 5.5)", {"i": 5}, True),
    ("i IN (5.5, 6)", {"i": 6}, True),
    ("i NOT IN (5.5)", {"i": 5}, True),
    ("n = 9007199254740993.0", {"n": 2**53}, False),
    ("n = 9.007199254740993e15", {"n": 2**53}, True),
    ("n = 1e0", {"n": 1}, True),
    ("i = 3000000000", {"i": 5}, False),
    ("i < 3L AND i > 2D", {"i": 3}, False),
    ("big = 5", {"big": 5}, True),
    ("big = 12345678901234567890", {"big": Ext(LONG_NUMBER, b"12345678901234567890")}, True),
    ("rate > i", {"rate": 5.25, "i": 5}, True),
    # NaN is the greatest number, and equals itself; zero has no sign.
    ("price > 1e308", {"price": Ext(LONG_NUMBER, b"NaN")}, True),
    ("price = price", {"price": Ext(LONG_NUMBER, b"NaN")}, True),
    ("price < 'NaN'", {}, UnsupportedCondition),
    ("price = 0", {"price": -0.0}, True),
    # Null is neither equal nor unequal to anything.
    ("n = NULL", {"n": 1}, None),
    ("n IN (1, NULL)", {"n": 1}, True),
    ("n IN (1, NULL)", {"n": 2}, None),
    ("n NOT IN (1, NULL)", {"n": 2}, None),
    ("n <=> NULL", {}, True),
    ("n <=> 1", {}, False),
    ("n IS NOT DISTINCT FROM 1", {"n": 1}, True),
    ("n IS DISTINCT FROM 1", {}, True),
    ("flag", {"flag": True}, True),
    ("NOT flag", {}, None),
    ("flag AND n = 1", {"flag": True, "n": 1}, True),
    ("(flag OR n = 1) AND NOT (op = 'd')", {"n": 1, "op": "u"}, True),
    ("flag IS TRUE", {}, False),
    ("flag IS NOT TRUE", {}, True),
    ("op = r.op", {"op": "d", "r": {"op": "d"}}, True),
    ("op LIKE 'd%'", {"op": "delete"}, True),
    ("op LIKE 'd_'", {"op": "d\n"}, True),
    ("op NOT LIKE 'd.'", {"op": "de"}, True),
    # A text is compared with a number as a number.
    ("n = '1'", {"n": 1}, True),
    ("op = 1", {"op": "1"}, True),
    ("op > 10", {"op": "9"}, False),
    ("price = '1.5'", {"price": 1.5}, True),
    ("i = '3000000000'", {}, UnsupportedCondition),
    ("n = '1.5'", {}, UnsupportedCondition),
    ("rate = '1.5'", {}, UnsupportedCondition),
    ("n IN ('1')", {}, UnsupportedCondition),
    ("gone = '2024-02-01T10:00:00Z'", {"gone": "2024-02-01T10:00:00Z"}, True),
    ("gone < TIMESTAMP '2024-02-01 10:00:00.5Z'", {"gone": "2024-02-01T10:00:00.25Z"}, True),
    ("gone < TIMESTAMP '2024-02-01 10:00:00'", {}, UnsupportedCondition),
    ("local = TIMESTAMP_NTZ '2024-02-01 10:00:00'", {"local": "2024-02-01T10:00:00"}, True),
    ("local = gone", {}, UnsupportedCondition),
    ("day IN ('2024-01-31', '2024-02-01')", {"day": "2024-02-01"}, True),
    # Only Spark says what these mean.
    ("big = 5.5", {}, UnsupportedCondition),
    ("op = 'it''s'", {}, UnsupportedCondition),
    ("op = 'a' 'b'", {}, UnsupportedCondition),
    ("n = 1 -- all", {}, UnsupportedCondition),
    ("n + 1 = 2", {}, UnsupportedCondition),
    ("n = 1 OR", {}, UnsupportedCondition),
    ("(n = 1", {}, UnsupportedCondition),
    ("(n = 1) = true", {}, UnsupportedCondition),
    ("flag = 1", {}, UnsupportedCondition),
    ("n", {}, UnsupportedCondition),
    ("'d'", {}, UnsupportedCondition),
    ("", {}, UnsupportedCondition),
    ("n = 1Y", {"n": 1}, True),
    ("n = 128Y", {}, UnsupportedCondition),
    ("upper(op) = 'D'", {}, UnsupportedCondition),
    ("day = '2024-2-1'", {}, UnsupportedCondition),
    ("gone > '2024-01-01'", {}, UnsupportedCondition),
    ("low = 1", {}, UnsupportedCondition),
    ("missing = 1", {}, None),
    ("missing IS NULL AND r.missing.`x y` IS NULL", {"r": {"op": "a"}}, True),
    ("NOT missing", {}, None),
    ("missing IS TRUE", {}, False),
    ("missing LIKE 'd%' OR n = 1", {"n": 1}, True),
    ("missing <=> NULL", {}, True),
    ("current_date > '2024-01-01'", {}, UnsupportedCondition),
    ("n.missing = 1", {}, UnsupportedCondition),
    ("r = 1", {}, UnsupportedCondition),
    ("two = 1", {"two": 1}, True),
    ("two = 1", {"two": "1"}, None),
    ("two IS NULL", {"two": "x"}, True),
    ("days = '2024-01-01'", {}, UnsupportedCondition),
    ("days__string = 'x'", {}, UnsupportedCondition),
    ("two__string = 'x'", {}, UnsupportedCondition),
    ("json = 'x'", {}, UnsupportedCondition),
    ("op = 'a\\\\b'", {}, UnsupportedCondition),
    ("op = ", {}, UnsupportedCondition),
]


@pytest.mark.parametrize(
    ("condition", "form", "result"), RESULTS, ids=[f"{text} {at}" for at, (text, _, _) in enumerate(RESULTS)]
)
def test_a_condition_has_the_result_of_spark(
    condition: str, form: dict[str, object], result: bool | type[UnsupportedCondition] | None
) -> None:
    if result is UnsupportedCondition:
        with pytest.raises(UnsupportedCondition, match="comparison of columns with constants"):
            build_condition(condition, SCHEMA)
        return
    assert build_condition(condition, SCHEMA)(form) is result


@pytest.mark.parametrize(
    ("condition", "form"),
    [
        ("op = 'd'", {"op": 1}),
        ("op = 1", {"op": "one"}),
        ("op = 1", {"op": "1.5"}),
        ("op = DATE '2024-02-01'", {"op": "today"}),
        ("n = 1", {"n": "1"}),
        ("n = 1", {"n": True}),
        ("n = 1", {"n": 2**63}),
        ("flag = true", {"flag": 1}),
        ("price = 1", {"price": 2**53 + 1}),
        ("rate = 1", {"rate": 1.005}),
        ("rate = 1", {"rate": 10**4}),
        ("day = '2024-01-01'", {"day": "tomorrow"}),
        ("gone IS NULL", {"gone": "tomorrow"}),
        ("r.op = 'd'", {"r": "text"}),
    ],
)
def test_a_value_that_the_column_may_not_hold_is_left_to_spark(condition: str, form: dict[str, object]) -> None:
    with pytest.raises(Undecided):
        build_condition(condition, SCHEMA)(form)
