"""UPDATE: values by path, in the types of the table; every other row and column stays as it was."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.change import (
    FEED,
    LAYOUTS,
    VECTORS,
    changes,
    last_commit,
    layout_name,
    leftovers,
    numbered,
    plain,
    two_files,
)
from widen.errors import (
    AssignedOverflow,
    AssignmentConflict,
    CheckViolated,
    ColumnNotFound,
    IncompatibleTypes,
    InvalidCondition,
    ItemAssignmentRefused,
    NotNullViolated,
    SchemaMismatch,
)
from widen.model.types import INTEGER, Field, StructType
from widen.spark.engine import require_spark


@pytest.mark.parametrize(("properties", "partition_by"), LAYOUTS, ids=layout_name)
def test_rows_change_by_path(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    table = two_files(spark, tmp_path, properties, partition_by)
    table.update({"S.x": "s.x + id", "P": F.lit("new")}, "id % 9 = 8", spark=spark)
    rows: list[Any] = numbered(0, 20)
    rows[8], rows[17] = (8, "new", (16, "old")), (17, "new", (34, "old"))
    assert plain(spark, table) == rows
    operation, parameters, numbers = last_commit(table)
    assert (operation, parameters["predicate"], numbers["numUpdatedRows"]) == ("UPDATE", '["id % 9 = 8"]', 2)
    if FEED.items() <= properties.items():
        assert changes(table) == [
            ("update_postimage", 8),
            ("update_postimage", 17),
            ("update_preimage", 8),
            ("update_preimage", 17),
        ]
    table.update({"s": "NULL"}, spark=spark)
    assert plain(spark, table) == [(n, p, None) for n, p, _ in rows]
    assert leftovers(table) == []


def test_all_assignments_see_the_row_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int, b int, s struct<x: int, t: struct<y: int, z: int>>")
    table.append(spark.sql("SELECT 1 a, 2 b, named_struct('x', 3, 't', named_struct('y', 4, 'z', 5)) s"))
    table.update({"a": "b", "b": "a", "s.t.y": "s.t.z", "s.x": "s.t.y"}, spark=spark)
    assert plain(spark, table) == [(2, 1, (4, (5, 5)))]
    table.update({"s": "NULL"}, spark=spark).table.update({"s.t.y": "7"}, spark=spark)
    assert plain(spark, table) == [(2, 1, (None, (7, None)))]


def test_types_never_grow(spark: SparkSession, tmp_path: Path) -> None:
    """The session's mode of arithmetic does not matter: what is out of range is refused, never cut."""
    columns = "small smallint, amount decimal(5,2), day date, text string"
    table = widen.create_table(str(tmp_path), columns, properties={"delta.enableTypeWidening": "true"})
    table.append(spark.sql("SELECT 1S small, CAST(1.25 AS decimal(5,2)) amount, DATE'2024-01-31' day, 'a' text"))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(AssignedOverflow, match="99999"):
            table.update({"small": "40000"}, spark=spark)
        with pytest.raises(AssignedOverflow):
            table.update({"amount": "amount * 1000"}, spark=spark)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    day = "TIMESTAMP_NTZ'2024-02-01 10:00:00'"
    table.update({"small": "small + 1L", "amount": "2.999", "day": day, "text": "5"}, spark=spark)
    row = table.read(spark=spark).collect()[0]
    assert (row.small, row.amount, str(row.day), row.text) == (2, Decimal("3.00"), "2024-02-01", "5")
    assert (
        table.read(spark=spark).schema.simpleString()
        == "struct<small:smallint,amount:decimal(5,2),day:date,text:string>"
    )
    assert (
        table.update({"small": "'7'", "text": "named_struct('a', 1)"}, spark=spark)
        .table.read(spark=spark)
        .collect()[0]
        .small
        == 7
    )
    with pytest.raises(AssignedOverflow, match="xxxxx"):
        table.update({"small": "'seven'"}, spark=spark)
    with pytest.raises(IncompatibleTypes, match="day"):
        table.update({"day": "1"}, spark=spark)
    assert leftovers(table) == []


def test_what_cannot_be_assigned(spark: SparkSession, tmp_path: Path) -> None:
    require_spark(spark, "columns are made for it")
    table = widen.create_table(str(tmp_path), "id int, s struct<x: int>, l array<int>")
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"nothing": "1"}, ColumnNotFound),
        ({"id": "1", "ID": "2"}, AssignmentConflict),
        ({"s": "NULL", "s.x": "2"}, AssignmentConflict),
        ({"l.element": "2"}, ItemAssignmentRefused),
        ({"id": "nothing + 1"}, InvalidCondition),
        ({"id": F.col("nothing")}, InvalidCondition),
        ({"s": "named_struct('x', 1, 'more', 2)"}, SchemaMismatch),
    ]
    for assignments, error in refused:
        with pytest.raises(error):
            table.update(assignments, spark=spark)
    assert table.refresh().version == 0


@pytest.mark.parametrize("properties", [{}, VECTORS, FEED], ids=layout_name)
def test_rules_of_the_table_hold(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    """Constraints are checked, generated columns made anew; if one row breaks a rule nothing happens."""
    properties = {"delta.constraints.positive": "v > 0", **properties}
    properties |= {f"delta.feature.{name}": "supported" for name in ("checkConstraints", "generatedColumns")}
    twice = Field("twice", INTEGER, metadata={"delta.generationExpression": "v * 2"})
    schema = StructType((Field("v", INTEGER, nullable=False), twice))
    table = widen.create_table(str(tmp_path), schema, properties=properties)
    table.append(spark.createDataFrame([(1,), (2,), (3,)], "v int").coalesce(1))
    table.update({"v": "v + 10"}, "v > 1", spark=spark)
    assert sorted(map(tuple, table.read(spark=spark).collect())) == [(1, 2), (12, 24), (13, 26)]
    broken = [("v", "v - 12", CheckViolated), ("v", "NULL", NotNullViolated), ("twice", "5", CheckViolated)]
    for column, value, error in broken:
        with pytest.raises(error):
            table.update({column: value}, "v > 1", spark=spark)
    assert sorted(map(tuple, table.refresh().read(spark=spark).collect())) == [(1, 2), (12, 24), (13, 26)]
    assert leftovers(table) == []
