"""Column mapping by id: columns of files are found by their field ids at every depth, whatever their names are.

Source: PROTOCOL.md#reader-requirements-for-column-mapping
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.field_ids import add_shuffled_file
from widen.errors import CorruptFile
from widen.frames import scan as field_ids
from widen.table import Table, create_table

SCHEMA = (
    "id int, n int, who struct<a: int, b: int>, items array<struct<x: int, y: int>>, "
    "prices map<string, struct<u: int, v: int>>"
)
FOREIGN: list[Any] = [
    (1, 10, (100, 200), [(5, 6), None], [("k", (7, 8))]),
    (2, 20, (101, None), [], []),
    (3, 30, None, None, None),
]
OURS: list[Any] = [(4, 40, (102, 202), [(9, 9)], {"z": (1, 2)})]
CHANGES = {"delta.enableChangeDataFeed": "true"}
VECTORS = {**CHANGES, "delta.enableDeletionVectors": "true"}


def mixed_table(spark: SparkSession, folder: Path, **properties: str) -> Table:
    place = str(folder / "table")
    given = {"delta.columnMapping.mode": "id", "delta.enableTypeWidening": "true", **properties}
    table = create_table(place, SCHEMA, properties=given).append(spark.createDataFrame(OURS, SCHEMA)).table
    add_shuffled_file(place, FOREIGN, "foreign.parquet")
    return table.refresh()


def select_rows(frame: DataFrame, condition: str = "true") -> list[Any]:
    columns = ("id", "n", "who.a", "who.b", "items.x", "items.y", "prices['k'].u as u", "prices['k'].v as v")
    found = frame.where(condition).selectExpr(*columns).orderBy("id").collect()
    return [tuple(row) for row in found]


ONE = (1, 10, 100, 200, [5, None], [6, None], 7, 8)
TWO = (2, 20, 101, None, [], [], None, None)
THREE = (3, 30, None, None, None, None, None, None)
FOUR = (4, 40, 102, 202, [9], [9], None, None)


@pytest.mark.parametrize(("vectorised", "driver_files"), [("true", field_ids.DRIVER_SCHEMAS), ("false", 0)])
def test_columns_are_found_by_their_ids(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectorised: str, driver_files: int
) -> None:
    monkeypatch.setattr(field_ids, "DRIVER_SCHEMAS", driver_files)
    table = mixed_table(spark, tmp_path)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        assert select_rows(table.read(spark=spark)) == [ONE, TWO, THREE, FOUR]
        for condition, expected in (("id = 2", TWO), ("n = 30", THREE), ("who.b = 200", ONE), ("who.a = 102", FOUR)):
            assert select_rows(table.read(spark=spark), condition) == [expected]
            assert select_rows(table.read(where=condition, spark=spark)) == [expected]
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_the_schema_that_is_shown_has_no_ids(spark: SparkSession, tmp_path: Path) -> None:
    assert "field.id" not in mixed_table(spark, tmp_path).read(spark=spark).schema.json()


@pytest.mark.parametrize("properties", [CHANGES, VECTORS], ids=["rewritten", "vectors"])
def test_changes_of_rows_lose_nothing(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    table = mixed_table(spark, tmp_path, **properties)
    before = table.version
    table = table.delete("who.b = 200", spark=spark).table.update({"n": "n + 1"}, "id = 2", spark=spark).table
    assert select_rows(table.read(spark=spark)) == [(2, 21, *TWO[2:]), THREE, FOUR]
    told = table.changes(before + 1, spark=spark).select("id", "n", "_change_type").orderBy("_change_type").collect()
    assert told == [(1, 10, "delete"), (2, 21, "update_postimage"), (2, 20, "update_preimage")]


def test_widening_looks_for_old_types_by_id(spark: SparkSession, tmp_path: Path) -> None:
    table = mixed_table(spark, tmp_path).alter_columns({path: {"type": "bigint"} for path in ("n", "items.element.y")})
    assert {(old.path, old.files) for old in table.old_types(spark=spark)} == {
        (("n",), 2),
        (("items", "element", "y"), 2),
    }
    table = table.rewrite(spark=spark).table
    assert table.old_types(spark=spark) == []
    assert select_rows(table.read(spark=spark)) == [ONE, TWO, THREE, FOUR]


def test_a_file_without_ids_is_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mixed_table(spark, tmp_path)
    add_shuffled_file(str(tmp_path / "table"), FOREIGN, "no_ids.parquet", ids=False)
    with pytest.raises(CorruptFile, match=r"no_ids\.parquet"):
        table.refresh().delete("id = 1", spark=spark)
    monkeypatch.setattr(field_ids, "DRIVER_SCHEMAS", 0)
    with pytest.raises(CorruptFile, match=r"no_ids\.parquet.*has no field ids"):
        table.refresh().read(spark=spark)
