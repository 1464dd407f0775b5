"""Conditions on rows that tasks check with Arrow."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from widen.errors import CheckViolated
from widen.files.arrow_types import to_arrow_schema
from widen.files.row_rules import RowRule, ensure_rules, row_rules
from widen.model.schema_json import parse_type, to_json
from widen.model.types import StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.table_configuration import TableConfiguration
from widen.spark.engine import Unsupported

SCHEMA = parse_type(
    "struct<n: bigint, op: string, price: double, low: float, rate: decimal(8,3), day: date, at: timestamp, "
    "flag: boolean, data: binary, r: struct<x: int>, list: array<int>>"
)
assert isinstance(SCHEMA, StructType)


def configure(*conditions: str, features: tuple[str, ...] = ("checkConstraints",)) -> TableConfiguration:
    properties = {f"delta.constraints.c{number}": text for number, text in enumerate(conditions)}
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=features)
    assert isinstance(SCHEMA, StructType)
    schema = to_json(SCHEMA)
    return TableConfiguration(
        protocol, Metadata(id="t", schema_string=schema, partition_columns=(), configuration=properties)
    )


def rule(condition: str) -> RowRule:
    (found,) = row_rules(configure(condition))
    return found


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    assert isinstance(SCHEMA, StructType)
    return pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(SCHEMA))


@pytest.mark.parametrize(
    ("condition", "broken"),
    [
        ("n > 0", [False, True, True]),
        ("n > 0 OR n IS NULL", [False, True, False]),
        ("NOT (n > 0)", [True, False, True]),
        ("n > 0 AND op = 'a'", [False, True, True]),
        ("n > 0 OR op = 'c'", [False, True, False]),
        ("op IN ('a', 'b')", [False, False, True]),
        ("op NOT IN ('a', 'b')", [True, True, False]),
        ("n BETWEEN -5 AND 4", [True, False, True]),
        ("price < 1.5", [True, False, True]),
    ],
)
def test_a_row_breaks_a_rule_if_its_condition_is_not_true(condition: str, broken: list[bool]) -> None:
    rows = batch({"n": 5, "op": "a", "price": float("nan")}, {"n": -5, "op": "b", "price": 1.0}, {"op": "c"})
    assert rule(condition).find_broken(rows).to_pylist() == broken


@pytest.mark.parametrize(("condition", "broken"), [("flag", [False, True, True]), ("NOT flag", [True, False, True])])
def test_a_boolean_column_is_a_condition(condition: str, broken: list[bool]) -> None:
    assert rule(condition).find_broken(batch({"flag": True}, {"flag": False}, {})).to_pylist() == broken


def test_the_values_of_a_refused_row_are_masked_as_spark_writes_them() -> None:
    text = " OR ".join(f"{name} IS NULL" for name in ("n", "op", "price", "low", "rate", "day", "at", "flag"))
    row = {
        "n": -12,
        "op": 'Äb"1',
        "price": 1e10,
        "low": 0.5,
        "rate": Decimal("1.250"),
        "day": date(2024, 1, 2),
        "at": datetime(2024, 1, 2, 3, 4, 5, 120_000, timezone.utc),
        "flag": None,
    }
    message = rule(text).explain(row)
    shown = {
        "n": "-99",
        "op": 'Xx"9',
        "price": "9.9X99",
        "low": "9.9",
        "rate": "9.999",
        "day": "9999-99-99",
        "at": "9999-99-99 99:99:99.99",
        "flag": None,
    }
    assert json.loads(message[message.index("{") : message.rindex("}") + 1]) == shown
    assert message.startswith(f"The constraint c0 ({text}) is not true")


def test_no_row_that_breaks_a_rule_is_written() -> None:
    rows = batch({"n": 5}, {"n": 6})
    rules = row_rules(configure("n > 0", "n < 6"))
    with pytest.raises(CheckViolated, match="constraint c1"):
        ensure_rules(rules, rows.schema.names, rows.columns)
    ensure_rules(rules, rows.schema.names, rows.slice(0, 1).columns)


def test_a_rule_applies_only_if_its_feature_is_supported() -> None:
    assert len(row_rules(configure("n > 0", "abs(n) < 3", features=()))) == 0


@pytest.mark.parametrize(
    "condition",
    ["abs(n) < 3", "n > price", "op LIKE 'a%'", "data = X'00'", "n <=> 1", "n + 1 > 2", "true", "nope > 1"],
)
def test_only_comparisons_of_columns_with_constants_are_evaluated_here(condition: str) -> None:
    with pytest.raises(Unsupported, match="its constraint c0 does more than compare columns with constants"):
        rule(condition)


@pytest.mark.parametrize("condition", ["r.x > 0", "data IS NULL"])
def test_values_whose_text_only_spark_makes_are_left_to_it(condition: str) -> None:
    with pytest.raises(Unsupported, match="its constraint c0 is about values of another type"):
        rule(condition)
