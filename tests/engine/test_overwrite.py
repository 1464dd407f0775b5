"""Overwrites: everything, by a condition, by partitions; what becomes of the schema and of its history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.change import (
    FEED,
    LAYOUTS,
    SCHEMA,
    changes,
    ids,
    last_commit,
    layout_name,
    leftovers,
    numbered,
    plain,
    two_files,
)
from widen.errors import (
    AppendOnlyTable,
    ConcurrentAppend,
    InvalidOption,
    NewSchemaInPartitions,
    OverwriteRefused,
    ReplaceWhereInPartitions,
    ReplaceWhereMismatch,
    SchemaMismatch,
)
from widen.table import Table


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame([(n, p, (n, "new")) for n, p in rows], SCHEMA)


@pytest.mark.parametrize(("properties", "partition_by"), LAYOUTS, ids=layout_name)
def test_rows_come_in_place_of_those_with_a_condition(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    table = two_files(spark, tmp_path, properties, partition_by)
    table.overwrite(frame(spark, (18, "p1"), (40, "p1")), where="p = 'p1' AND id > 9")
    kept: list[Any] = [row for row in numbered(0, 20) if not (row[1] == "p1" and row[0] > 9)]
    assert plain(spark, table) == sorted([*kept, (18, "p1", (18, "new")), (40, "p1", (40, "new"))])
    operation, parameters, numbers = last_commit(table)
    assert (operation, parameters["mode"], parameters["predicate"]) == ("WRITE", "Overwrite", "p = 'p1' AND id > 9")
    assert numbers["numDeletedRows"] == 4
    if FEED.items() <= properties.items() and changes(table):
        told_changes = [("delete", n) for n in (10, 13, 16, 19)] + [("insert", 18), ("insert", 40)]
        assert changes(table) == told_changes
    assert table.type_changes
    version = table.version
    with pytest.raises(ReplaceWhereMismatch):
        table.overwrite(frame(spark, (1, "p1"), (2, "p2")).coalesce(1), where="p = 'p1'")
    assert table.refresh().version == version
    assert leftovers(table) == []


def test_everything_goes_for_the_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {}, ("p",))
    table.overwrite(frame(spark, (1, "x")).drop("s"))
    assert plain(spark, table) == [(1, "x", None)]
    assert last_commit(table)[2] == {"numFiles": 1, "numOutputRows": 1, "numRemovedFiles": 6, "numDeletedRows": 20}
    assert len(table.type_changes) == 1
    with pytest.raises(SchemaMismatch, match="more"):
        table.overwrite(frame(spark, (1, "x")).selectExpr("*", "1 more"))
    table.overwrite(frame(spark, (2, "y")).selectExpr("CAST(id AS decimal(25,5)) id", "p", "1 more"), merge_schema=True)
    assert table.read(spark=spark).schema.simpleString() == (
        "struct<id:decimal(25,5),p:string,s:struct<x:int,y:string>,more:int>"
    )
    assert len(table.type_changes) == 2


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_new_schema_has_no_history(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    table = two_files(spark, tmp_path, {"delta.columnMapping.mode": mapping}, ("p",))
    table.overwrite(spark.sql("SELECT 'a' p, 1.5D id, true `is`"), overwrite_schema=True)
    assert table.type_changes == []
    assert table.read(spark=spark).schema.simpleString() == "struct<p:string,id:double,is:boolean>"
    assert [tuple(row) for row in table.read(spark=spark).collect()] == [("a", 1.5, True)]
    assert table.read(version=3, spark=spark).count() == 20
    assert table.partition_by == ("p",)
    assert last_commit(table)[1]["canOverwriteSchema"] is True


def test_partitions_are_the_same_by_value(spark: SparkSession, tmp_path: Path) -> None:
    """One value may stand there as 1 and as 1.00, in files from before and after its type changed."""
    properties = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
    table = widen.create_table(str(tmp_path), "p int, d date, v int", partition_by=["p", "d"], properties=properties)
    old = "p int, d string, v int"
    rows = spark.createDataFrame([(1, "2024-01-01", 1), (2, "2024-01-01", 2), (None, None, 3)], old)
    table.append(rows.selectExpr("p", "CAST(d AS date) d", "v"))
    table.alter_column("p", type="decimal(12,2)").alter_column("d", type="timestamp_ntz")
    wide = "CAST(p AS decimal(12,2)) p", "CAST(d AS timestamp_ntz) d", "v"
    table.append(rows.selectExpr(*wide).selectExpr("p", "d", "v + 10 v"))
    new = spark.createDataFrame([(1, "2024-01-01", 100), (None, None, 300), (5, None, 500)], old)
    table.overwrite(new.selectExpr(*wide), partitions="dynamic")
    assert sorted(row.v for row in table.read(spark=spark).collect()) == [2, 12, 100, 300, 500]
    assert last_commit(table)[1]["isDynamicPartitionOverwrite"] is True
    table.overwrite(new.selectExpr(*wide).where("p = 1"), where="p = 1.0")
    assert sorted(row.v for row in table.read(spark=spark).collect()) == [2, 12, 100, 300, 500]
    table.overwrite(new.selectExpr(*wide).limit(0), partitions="dynamic")
    assert table.read(spark=spark).count() == 5


def test_options_that_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {}, ("p",))
    rows = frame(spark, (1, "p1"))
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"where": "p = 'p1'", "partitions": "dynamic"}, ReplaceWhereInPartitions),
        ({"overwrite_schema": True, "partitions": "dynamic"}, NewSchemaInPartitions),
        ({"overwrite_schema": True, "where": "p = 'p1'"}, OverwriteRefused),
        ({"partitions": "some"}, InvalidOption),
        ({"widening": "often"}, InvalidOption),
    ]
    for options, error in refused:
        with pytest.raises(error):
            table.overwrite(rows, **options)
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(AppendOnlyTable):
        table.overwrite(rows)
    assert len(ids(spark, table.refresh())) == 20


def test_races(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows that would have been replaced matter."""
    table = two_files(spark, tmp_path, {}, ("p",))
    other, honest = Table(table.location), table._commit_change

    def meanwhile(action: Callable[[], object]) -> None:
        def committed(*args: Any) -> Any:
            action()
            return honest(*args)

        monkeypatch.setattr(table, "_commit_change", committed)

    meanwhile(lambda: other.append(frame(spark, (50, "p2"))))
    table.overwrite(frame(spark, (60, "p1")), partitions="dynamic")
    table.overwrite(frame(spark, (61, "p0")), where="p = 'p0'")
    assert [n for n in ids(spark, table) if n > 19] == [50, 50, 60, 61]
    for options in ({}, {"where": "id > 10"}, {"partitions": "dynamic"}):
        with pytest.raises(ConcurrentAppend):
            table.overwrite(frame(spark, (70, "p2")), **options)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert 70 not in ids(spark, table.refresh())
    assert leftovers(table) == []
