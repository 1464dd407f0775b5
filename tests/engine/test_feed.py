"""Changes between versions: told in the types of one version, never across a change of type.

Source: the acceptance matrix of Delta Lake's type widening, 7.5
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from engine.test_deletion import delete, inline
from support.exact import assert_same
from support.old_table import log
from widen.errors import (
    ChangeFeedNotRecorded,
    ChangeFeedSchemaChanged,
    ChangeFeedSchemaMismatch,
    InvalidOption,
    VersionNotFound,
)
from widen.model.types import SHORT, Field
from widen.table import Table

ON = {"delta.enableChangeDataFeed": "true", "delta.enableTypeWidening": "true"}


def file(spark: SparkSession, *values: int, kind: str = "smallint") -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], f"a {kind}").coalesce(1)


def row_tuples(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.drop("_commit_timestamp").collect()]


def widened(spark: SparkSession, place: Path) -> tuple[Table, Table]:
    """A table before and after its type changed: 1 writes narrow rows, 2 changes the type, 3 writes wide rows."""
    table = widen.create_table(str(place), "a smallint", properties=ON).append(file(spark, 1, 2)).table
    before = Table(str(place))
    return before, table.alter_column("a", type="int").append(file(spark, 3, 4, kind="int")).table


def test_reading_cdf_with_a_type_change(spark: SparkSession, tmp_path: Path) -> None:
    _, table = widened(spark, tmp_path)
    with pytest.raises(ChangeFeedSchemaMismatch) as raised:
        table.changes(1, 1, spark=spark)
    assert raised.value.code == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    said = {"first": 1, "last": 1, "shown": 3, "version": 1, "schema": "struct<a: int>"}
    assert raised.value.fields == said
    assert_same(row_tuples(table.changes(3, 3, spark=spark)), [(3, "insert", 3), (4, "insert", 3)])


def test_reading_cdf_with_a_type_change_using_read_schema_from_before_the_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    before, _ = widened(spark, tmp_path)
    assert_same(row_tuples(before.changes(1, 1, spark=spark)), [(1, "insert", 1), (2, "insert", 1)])
    with pytest.raises(ChangeFeedSchemaChanged) as raised:
        before.changes(1, 3, spark=spark)
    assert raised.value.code == "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
    assert {key: raised.value.fields[key] for key in ("shown", "version")} == {"shown": 1, "version": 2}


def test_time_travel_read_before_type_change(spark: SparkSession, tmp_path: Path) -> None:
    _, table = widened(spark, tmp_path)
    old = table.read(version=1, spark=spark)
    assert old.schema["a"].dataType.simpleString() == "smallint"
    assert_same((row.a for row in old.collect()), [1, 2])
    assert table.read(spark=spark).schema["a"].dataType.simpleString() == "int"
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 2, 3, 4])


def test_compatibility_with_char_and_varchar_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties=ON).add_columns(
        {"c": "char(3)", "v": "varchar(3)"}
    )
    table.append(spark.createDataFrame([(1, "abc", "def")], "a tinyint, c string, v string"))

    def kept() -> list[Any]:
        return [field.metadata.get("__CHAR_VARCHAR_TYPE_STRING") for field in table.snapshot.schema]

    table.alter_column("a", type="smallint")
    assert kept() == [None, "char(3)", "varchar(3)"]
    table.append(spark.createDataFrame([(2, "ghi", "jkl")], "a smallint, c string, v string"))
    table.alter_columns({"c": {"type": "string"}, "v": {"type": "string"}})
    assert kept() == [None, None, None]
    table.append(spark.createDataFrame([(3, "longer string 1", "longer string 2")], "a smallint, c string, v string"))
    expected = [(1, "abc", "def"), (2, "ghi", "jkl"), (3, "longer string 1", "longer string 2")]
    assert_same(map(tuple, table.read(spark=spark).collect()), expected)


def test_rows_that_are_deleted_and_updated_are_told_once(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ON).append(file(spark, 1, 2, 3)).table
    table.delete("a = 1", spark=spark).table.update({"a": "a + 10"}, "a = 2", spark=spark)
    assert_same(
        row_tuples(table.changes(1, spark=spark)),
        [
            (1, "insert", 1),
            (2, "insert", 1),
            (3, "insert", 1),
            (1, "delete", 2),
            (2, "update_preimage", 3),
            (12, "update_postimage", 3),
        ],
    )


@pytest.mark.parametrize("partition_by", [(), ("p",)])
def test_what_commits_do_not_tell_follows_from_their_files(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    properties = {**ON, "delta.enableDeletionVectors": "true"}
    table = widen.create_table(str(tmp_path), "a int, p int", partition_by=partition_by, properties=properties)
    rows = spark.createDataFrame([(value, 7) for value in range(5)], "a int, p int").coalesce(1)
    table.append(rows)
    delete(table, table.files().to_pylist()[0], inline([0, 3]))
    table.restore(version=1)
    found = [(row[0], *row[2:]) for row in row_tuples(table.changes(2, spark=spark))]
    assert_same(found, [(0, "delete", 2), (3, "delete", 2), (0, "insert", 3), (3, "insert", 3)])


@pytest.mark.parametrize("overwrites", [False, True])
def test_rows_of_wider_types_that_a_version_removed_are_refused(
    spark: SparkSession, tmp_path: Path, overwrites: bool
) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ON).append(file(spark, 1)).table
    table = table.alter_column("a", type="int").append(file(spark, 70000, kind="int")).table
    table = (table.overwrite(file(spark, 2), overwrite_schema=True) if overwrites else table.restore(1)).table
    assert table.schema.find("a") == Field("a", SHORT)
    with pytest.raises(ChangeFeedSchemaMismatch) as raised:
        table.changes(4, spark=spark)
    assert raised.value.fields["version"] == 3
    table.append(file(spark, 5))
    assert_same(row_tuples(table.changes(5, spark=spark)), [(5, "insert", 5)])


def test_rows_that_an_overwrite_removed_are_read_in_its_wider_types(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint, b int", properties=ON)
    table.append(spark.createDataFrame([(1, 2)], "a smallint, b int"))
    table.overwrite(file(spark, 70000, kind="int"), overwrite_schema=True)
    assert_same(row_tuples(table.changes(2, spark=spark)), [(1, "delete", 2), (70000, "insert", 2)])


def test_a_rewrite_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    _, table = widened(spark, tmp_path)
    table.rewrite(spark=spark)
    assert row_tuples(table.changes(4, spark=spark)) == []
    assert table.changes(4, spark=spark).dtypes == table.changes(3, spark=spark).dtypes


def test_new_columns_are_bridged(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ON).append(file(spark, 1)).table
    before = Table(str(tmp_path))
    table.add_columns({"b": "string"}).append(spark.createDataFrame([(2, "x")], "a smallint, b string").coalesce(1))
    assert_same(row_tuples(table.changes(1, spark=spark)), [(1, None, "insert", 1), (2, "x", "insert", 3)])
    assert_same(row_tuples(before.changes(1, 3, spark=spark)), [(1, "insert", 1), (2, "insert", 3)])


def test_versions_have_the_times_of_their_commits(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**ON, "delta.enableInCommitTimestamps": "true"}
    table = widen.create_table(str(tmp_path), "a smallint", properties=properties).append(file(spark, 1)).table
    said = [line["commitInfo"]["inCommitTimestamp"] for line in log(tmp_path) if "commitInfo" in line]
    row = table.changes(1, spark=spark).selectExpr("unix_millis(_commit_timestamp) ms").collect()[0]
    assert row.ms == said[1]


def test_what_was_not_recorded_is_not_made_up(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint").append(file(spark, 1)).table
    table.set_properties(ON).append(file(spark, 2)).table.set_properties({"delta.enableChangeDataFeed": "false"})
    for first, last, version in ((1, 3, 1), (3, 4, 4)):
        with pytest.raises(ChangeFeedNotRecorded) as raised:
            table.changes(first, last, spark=spark)
        assert (raised.value.code, raised.value.fields["version"]) == ("DELTA_MISSING_CHANGE_DATA", version)
    assert_same(row_tuples(table.changes(2, 3, spark=spark)), [(2, "insert", 3)])
    with pytest.raises(InvalidOption):
        table.changes(3, 2, spark=spark)
    with pytest.raises(VersionNotFound):
        table.changes(3, 9, spark=spark)
