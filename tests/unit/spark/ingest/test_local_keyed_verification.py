"""Conditions of deletions on the forms of records, and which keys have what they must have."""

from __future__ import annotations

import pytest

from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    DecimalType,
    Field,
    StructType,
)
from widen.schema.source_metadata import FORM, SOURCE
from widen.spark.dml.keyed_rows import KeyRules
from widen.spark.ingest.local_keyed_verification import Undecided, build_condition, find_proof_obstacle
from widen.spark.read.local_rows import NotLocal

SCHEMA = StructType(
    (
        Field("op", STRING),
        Field("n", LONG),
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
    ("-n = 1", {"n": -1}, NotLocal),
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
    # Only Spark says what these mean.
    ("upper(op) = 'D'", {}, NotLocal),
    ("op LIKE 'd%'", {}, NotLocal),
    ("op = 1", {}, NotLocal),
    ("n = '1'", {}, NotLocal),
    ("n = 1e0", {}, NotLocal),
    ("n = NULL", {}, NotLocal),
    ("flag", {}, NotLocal),
    ("op = r.op", {}, NotLocal),
    ("day = '2024-2-1'", {}, NotLocal),
    ("gone > '2024-01-01'", {}, NotLocal),
    ("low = 1", {}, NotLocal),
    ("missing = 1", {}, NotLocal),
    ("r = 1", {}, NotLocal),
    ("two = 1", {"two": 1}, True),
    ("two = 1", {"two": "1"}, None),
    ("two IS NULL", {"two": "x"}, True),
    ("days = '2024-01-01'", {}, NotLocal),
    ("days__string = 'x'", {}, NotLocal),
    ("two__string = 'x'", {}, NotLocal),
    ("json = 'x'", {}, NotLocal),
    ("op = 'a\\\\b'", {}, NotLocal),
    ("op = ", {}, NotLocal),
]


@pytest.mark.parametrize(
    ("condition", "form", "result"), RESULTS, ids=[f"{text} of {form}" for text, form, _ in RESULTS]
)
def test_a_condition_has_the_result_of_spark(
    condition: str, form: dict[str, object], result: bool | type[NotLocal] | None
) -> None:
    if result is NotLocal:
        with pytest.raises(NotLocal, match="comparison of columns with constants"):
            build_condition(condition, SCHEMA)
        return
    assert build_condition(condition, SCHEMA)(form) is result


@pytest.mark.parametrize(
    ("condition", "form"),
    [
        ("op = 'd'", {"op": 1}),
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


def test_what_only_spark_proves_is_known_before_the_load() -> None:
    key = (("id",),)
    assert find_proof_obstacle(KeyRules(key), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, ("n",), "op = 'd'", keeps_missing=True), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, ("n",), history=True), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, ("n",), "upper(op) = 'D'"), SCHEMA) is not None
