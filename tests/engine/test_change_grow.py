"""Merges and overwrites that let a table grow: every pair of the matrix, nested types, upcasts and new fields.

Expected answers are those of the acceptance matrix of Delta Lake: its MERGE and INSERT suites of schema evolution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import widen
from support.exact import assert_same
from support.type_change import CASES, REFUSED
from widen.errors import AssignedOverflow, SchemaMismatch
from widen.model.schema_json import parse_type

ENABLED = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


PLACES = ("{}", "array<{}>", "struct<x: {}>")


def columns(side: str) -> str:
    """The key, and for every pair a column: as it is, in an array, or in a struct, in turns."""
    found = [f"{case.name} {PLACES[at % 3].format(getattr(case, side))}" for at, case in enumerate(CASES)]
    return ", ".join(["id int", *found])


def row(key: int, side: str) -> Row:
    """The first value of every pair."""
    values: dict[str, Any] = {"id": key}
    for at, case in enumerate(CASES):
        value = getattr(case, side)[0]
        values[case.name] = (value, [value, None], Row(x=value))[at % 3]
    return Row(**values)


def test_every_pair_widens_in_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), columns("old"), properties=ENABLED)
    table.append(spark.createDataFrame([row(1, "before"), row(2, "before")], columns("old")))
    source = spark.createDataFrame([row(2, "after"), row(3, "after")], columns("new"))
    merge = table.merge(source, "t.id = s.id", merge_schema=True).when_not_matched_insert_all().execute().table
    assert merge.schema == parse_type(f"struct<{columns('new')}>")
    assert_same(table.read(spark=spark).collect(), [row(1, "widened"), row(2, "widened"), row(3, "after")])
    table.merge(source, "t.id = s.id").when_matched_update_all().execute()
    assert_same(table.read(spark=spark).collect(), [row(1, "widened"), row(2, "after"), row(3, "after")])
    assert len(table.type_changes) == len(CASES)


def test_a_pair_that_is_not_in_the_matrix_changes_no_type_in_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    cast = [(f"v{at}", old, new) for at, (old, new) in enumerate(REFUSED) if old != "boolean"]
    table = widen.create_table(str(tmp_path), ", ".join(f"{name} {old}" for name, old, _ in cast), properties=ENABLED)
    before = table.schema
    source = spark.sql("SELECT " + ", ".join(f"CAST(NULL AS {new}) {name}" for name, _, new in cast if new != "string"))
    table.merge(source, "t.v0 = s.v0", merge_schema=True).when_not_matched_insert_all().execute()
    assert table.schema == before
    assert [set(row) for row in table.read(spark=spark).collect()] == [{None}]
    text = next(name for name, _, new in cast if new == "string")
    merge = table.merge(source.selectExpr("*", f"'x' {text}"), "t.v0 = s.v0")
    with pytest.raises(AssignedOverflow, match=text):
        merge.when_not_matched_insert({text: f"s.{text}"}).execute()


@pytest.mark.parametrize("properties", [{}, {"delta.enableTypeWidening": "false"}], ids=["unset", "false"])
def test_no_type_widens_in_a_merge_where_that_is_not_enabled(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = widen.create_table(str(tmp_path), "id int, v smallint", properties=properties)
    table.append(spark.sql("SELECT 1 id, 1S v"))
    fits, is_too_large = spark.sql("SELECT 1 id, 32767 v"), spark.sql("SELECT 1 id, 32768 v")
    table.merge(fits, "t.id = s.id", merge_schema=True).when_matched_update_all().execute()
    assert [tuple(row) for row in table.read(spark=spark).collect()] == [(1, 32767)]
    with pytest.raises(AssignedOverflow):
        table.merge(is_too_large, "t.id = s.id", merge_schema=True).when_matched_update({"v": "s.v"}).execute()
    assert table.schema == parse_type("struct<id: int, v: smallint>")


KINDS: dict[str, dict[str, Any]] = {"static": {}, "where": {"where": "p = 1"}, "dynamic": {"partitions": "dynamic"}}
OLD = "p int, a smallint, b int, s struct<x: smallint, y: int>, m map<string, smallint>, l array<struct<q: smallint>>"
NEW = (
    "p int, a int, b smallint, s struct<x: int, y: smallint, z: string>, m map<string, int>, "
    "l array<struct<q: int, r: int>>, c double"
)
GROWN = (
    "p int, a int, b int, s struct<x: int, y: int, z: string>, m map<string, int>, "
    "l array<struct<q: int, r: int>>, c double"
)
BEFORE = [(1, 1, 2, (3, 4), {"k": 5}, [(6,)]), (2, 7, 8, (9, 10), {"k": 11}, [(12,)])]
AFTER = [(1, 70001, 2, (70003, 4, "z"), {"k": 70005}, [(70006, 0)], 0.5)]


@pytest.mark.parametrize("kind", KINDS)
def test_wider_narrower_and_new_fields_at_once_in_an_overwrite(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = widen.create_table(str(tmp_path), OLD, partition_by=["p"], properties=ENABLED)
    table.append(spark.createDataFrame(BEFORE, OLD))
    with pytest.raises(SchemaMismatch):
        table.overwrite(spark.createDataFrame(AFTER, NEW), **KINDS[kind])
    table.overwrite(spark.createDataFrame(AFTER, NEW), merge_schema=True, **KINDS[kind])
    assert table.schema == parse_type(f"struct<{GROWN}>")
    kept = [] if kind == "static" else [(2, 7, 8, (9, 10, None), {"k": 11}, [(12, None)], None)]
    expected = spark.createDataFrame([*AFTER, *kept], GROWN).collect()
    assert_same(table.read(spark=spark).collect(), expected)
    assert len(table.type_changes) == 4
