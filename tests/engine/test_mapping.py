"""Column mapping: names and ids in the files, in partition values and in statistics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

import widen
from support.exact import assert_same
from widen.changes import rewrite_files
from widen.errors import FeatureStillNeeded, InvalidColumnName, InvalidOption, SimilarStoredNames, WidenError
from widen.model.column_path import fields
from widen.table import Table

COLUMNS = "`a b` int, s struct<x: int, `y.z`: array<struct<`k,v`: map<string, struct<w: int>>>>>, p string"
VALUES = Row("a b", "s", "p")
ROWS = [(1, (2, [({"k": (3,)},)]), "q r"), (None, None, None)]


def ids_in(schema: object) -> dict[str, int]:
    """Return every field id of a Parquet file by its name, for names that stand for fields."""
    found = {}
    for line in str(schema).splitlines():
        words = line.replace(";", " ").split()
        at = next((n for n, word in enumerate(words) if word.startswith("field_id=")), None)
        if at is not None and words[at] != "field_id=-1":
            found[words[at + 1]] = int(words[at].partition("=")[2])
    return found


@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_hold_physical_names_and_ids(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = widen.create_table(
        str(tmp_path), COLUMNS, partition_by=["p"], properties={"delta.columnMapping.mode": mode}
    )
    table.append(spark.createDataFrame(ROWS, COLUMNS))
    known = {
        f.metadata["delta.columnMapping.physicalName"]: f.metadata["delta.columnMapping.id"]
        for path, f in fields(table.snapshot.schema)
    }
    partition = table.snapshot.schema.fields[2].metadata["delta.columnMapping.physicalName"]
    assert sorted(known.values()) == [1, 2, 3, 4, 5, 6, 7][: len(known)]
    assert table.properties["delta.columnMapping.maxColumnId"] == str(len(known))
    for row in table.files().to_pylist():
        found = ids_in(pq.ParquetFile(tmp_path / table.store.plain(row["path"])).schema)
        assert found == {name: number for name, number in known.items() if name != partition}
        assert set(dict(row["partition_values"])) == {partition}
        assert set(json.loads(row["stats"])["nullCount"]) <= known.keys()
    read = Table(str(tmp_path)).read(spark=spark)
    assert read.schema.simpleString() == spark.createDataFrame([], COLUMNS).schema.simpleString()
    assert_same(map(tuple_of, read.collect()), map(tuple_of, spark.createDataFrame(ROWS, COLUMNS).collect()))


def tuple_of(row: Row) -> dict[str, object]:
    return row.asDict(recursive=True)


def test_new_columns_get_new_ids(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path), "a int, s struct<x: int>", properties={"delta.columnMapping.mode": "name"}
    )
    table.add_columns({"s.y": "int", "b": "struct<c: int>"})
    ids = {path: f.metadata["delta.columnMapping.id"] for path, f in fields(table.snapshot.schema)}
    assert ids == {("a",): 1, ("s",): 2, ("s", "x"): 3, ("s", "y"): 4, ("b",): 5, ("b", "c"): 6}
    assert table.properties["delta.columnMapping.maxColumnId"] == "6"
    names = [f.metadata["delta.columnMapping.physicalName"] for _, f in fields(table.snapshot.schema)]
    assert len(set(names)) == 6
    table.append(spark.createDataFrame([(1, (2, 3), (4,))], "a int, s struct<x: int, y: int>, b struct<c: int>"))
    assert_same(table.read(spark=spark).collect(), [Row(a=1, s=Row(x=2, y=3), b=Row(c=4))])


def test_an_existing_table_begins_to_map(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path), "a int, s struct<x: int>", properties={"delta.enableTypeWidening": "true"}
    )
    table.append(spark.createDataFrame([(1, (2,))], "a int, s struct<x: int>"))
    table.set_properties({"delta.columnMapping.mode": "name"})
    assert {f.name: f.metadata["delta.columnMapping.physicalName"] for _, f in fields(table.snapshot.schema)} == {
        "a": "a",
        "s": "s",
        "x": "x",
    }
    table.alter_column("s.x", type="bigint")
    table.append(spark.createDataFrame([(3, (2**40,))], "a int, s struct<x: bigint>"))
    assert_same(table.read(spark=spark).collect(), [Row(a=1, s=Row(x=2)), Row(a=3, s=Row(x=2**40))])
    with pytest.raises(InvalidOption, match="only from none to name"):
        table.set_properties({"delta.columnMapping.mode": "id"})


def mapped(spark: SparkSession, place: str, mode: str, **more: str) -> tuple[widen.Table, list[Row]]:
    """A table with renamed, dropped and widened columns, and its rows."""
    properties = {"delta.columnMapping.mode": mode, "delta.enableTypeWidening": "true", **more}
    ddl = "id int, part string, s struct<x: int, y: string>, gone int"
    table = widen.create_table(place, ddl, partition_by=("part",), properties=properties)
    table.append(spark.createDataFrame([(1, "a", (2, "b"), 3), (2, None, None, 4), (9, "a", (1, "x"), 1)], ddl))
    table.rename_column("s.x", "z").rename_column("part", "kind").rename_column("id", "number").drop_columns("gone")
    table.add_columns({"gone": "string"}).alter_column("number", type="bigint")
    new = [(2**40, "b", (5, "y"), "here")]
    table.append(spark.createDataFrame(new, "number bigint, kind string, s struct<z: int, y: string>, gone string"))
    table.delete("number = 9", spark=spark)
    expected = [
        Row(number=1, kind="a", s=Row(z=2, y="b"), gone=None),
        Row(number=2, kind=None, s=None, gone=None),
        Row(number=2**40, kind="b", s=Row(z=5, y="y"), gone="here"),
    ]
    return table, expected


def numbered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["number"]))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapping_ends(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    more = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table, expected = mapped(spark, str(tmp_path), mode, **more)
    before = table.version
    table.set_properties({"delta.columnMapping.mode": "none", "own.note": "x"}, spark=spark)
    assert [info["operation"] for _, _, info in table.history(2)] == ["SET TBLPROPERTIES", "REMOVE COLUMN MAPPING"]
    mapping = {key: text for key, text in table.properties.items() if "columnMapping" in key}
    assert mapping == {"delta.columnMapping.mode": "none"}
    assert [f.metadata for _, f in fields(table.snapshot.schema) if "columnMapping" in str(f.metadata)] == []
    assert_same(numbered(table.read(spark=spark).collect()), expected)
    files = table.files()
    for path in files["path"].to_pylist():
        assert {"number", "s", "gone"} <= set(pq.read_schema(tmp_path / path).names)
    assert {key for values in table.snapshot.files()["partition_values"].to_pylist() for key, _ in values} == {"kind"}
    assert_same(numbered(table.read(version=before, spark=spark).collect()), expected)
    with pytest.raises(WidenError, match="Enable column mapping"):
        table.rename_column("gone", "back")
    table.set_properties({"delta.columnMapping.mode": "name"}).rename_column("gone", "back")
    assert numbered(table.read(spark=spark).collect())[2]["back"] == "here"


def test_mapping_ends_by_sql_and_as_a_feature(spark: SparkSession, tmp_path: Path) -> None:
    table, expected = mapped(spark, str(tmp_path), "name")
    widen.sql(f"ALTER TABLE delta.`{tmp_path}` UNSET TBLPROPERTIES ('delta.columnMapping.mode')", spark=spark)
    assert "delta.columnMapping.mode" not in table.refresh().properties
    table.drop_feature("columnMapping", spark=spark)
    assert "columnMapping" not in str(table.protocol)
    assert_same(numbered(table.read(spark=spark).collect()), expected)


def test_files_that_others_add_before_mapping_ends_are_rewritten_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected = mapped(spark, str(tmp_path), "name")
    other, rewrite = widen.Table(str(tmp_path)), rewrite_files.FileRewrite.run
    rows = [(3, "late", None, "theirs")]

    def after_another(*args: Any, **words: Any) -> Any:
        if rows:
            ddl = "number bigint, kind string, s struct<z: int, y: string>, gone string"
            other.append(spark.createDataFrame([rows.pop()], ddl))
        return rewrite(*args, **words)

    monkeypatch.setattr(rewrite_files.FileRewrite, "run", after_another)
    table.drop_feature("columnMapping", spark=spark)
    found = numbered(table.read(spark=spark).collect())
    assert_same(found, [*expected[:2], Row(number=3, kind="late", s=None, gone="theirs"), expected[2]])


def test_what_hinders_the_end_of_mapping(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path / "a"), "`a b` int", properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidColumnName, match="Rename it first"):
        table.set_properties({"delta.columnMapping.mode": "none"})
    with pytest.raises(InvalidOption, match=r"delta\.appendOnly"):
        table.rename_column("`a b`", "a").set_properties(
            {"delta.columnMapping.mode": "none", "delta.appendOnly": "maybe"}
        )
    assert table.refresh().properties["delta.columnMapping.mode"] == "name"
    table.set_properties({"delta.columnMapping.mode": "none"})  # no files: no Spark
    compatible = {"delta.enableIcebergCompatV2": "true"}
    table = widen.create_table(str(tmp_path / "b"), "a int", properties=compatible)
    with pytest.raises(FeatureStillNeeded, match="icebergCompatV2"):
        table.set_properties({"delta.columnMapping.mode": "none"})


def test_names_that_files_cannot_hold_need_mapping(tmp_path: Path) -> None:
    with pytest.raises(InvalidColumnName, match="a b"):
        widen.create_table(str(tmp_path), "s struct<`a b`: int>")
    table = widen.create_table(str(tmp_path), "a int")
    with pytest.raises(InvalidColumnName, match="x y"):
        table.add_columns({"`x y`": "int"})
    assert table.version == 0


def test_stored_names_that_differ_only_in_case_are_refused_unless_the_session_compares_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    widen.create_table(str(tmp_path), "x int, y int", properties={"delta.columnMapping.mode": "name"})
    [commit] = tmp_path.glob("_delta_log/*.json")
    names = iter(("a", "A"))
    commit.write_text(re.sub(r"col-[0-9a-f-]{36}", lambda _: next(names), commit.read_text()))
    for path in tmp_path.rglob("*.crc"):
        path.unlink()
    table, rows = Table(str(tmp_path)), spark.sql("SELECT 1 AS x, 2 AS y")
    for refused in (lambda: table.append(rows), lambda: table.read(spark=spark)):
        with pytest.raises(SimilarStoredNames, match="columns x and y"):
            refused()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert [tuple(row) for row in table.append(rows).table.read(spark=spark).collect()] == [(1, 2)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
