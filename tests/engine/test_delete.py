"""DELETE: whole partitions, deletion vectors, files written anew; nothing is lost that was not meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from support.change import (
    FEED,
    LAYOUTS,
    SCHEMA,
    VECTORS,
    actions,
    changes,
    ids,
    last_commit,
    layout_name,
    leftovers,
    two_files,
)
from widen.changes import update_delete
from widen.errors import (
    AppendOnlyTable,
    ConcurrentAppend,
    ConcurrentDelete,
    InvalidCondition,
    InvalidOption,
    JobFailed,
    NotDeterministic,
)
from widen.table import Table

TYPE_WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


@pytest.mark.parametrize(("properties", "partition_by"), LAYOUTS, ids=layout_name)
def test_rows_go_by_a_condition_and_only_they(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    table = two_files(spark, tmp_path, properties, partition_by)
    table.delete("id % 5 = 0 OR s.x = 7", spark=spark)
    assert ids(spark, table) == [1, 2, 3, 4, 6, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19]
    table.delete(F.col("id") == 13, spark=spark)
    assert ids(spark, table) == [1, 2, 3, 4, 6, 8, 9, 11, 12, 14, 16, 17, 18, 19]
    assert last_commit(table)[2]["numDeletedRows"] == 1
    assert table.read(version=3, spark=spark).count() == 20
    has_vectors = VECTORS.items() <= properties.items()
    assert any(file["deletion_vector"] for file in table.files().to_pylist()) is has_vectors
    if FEED.items() <= properties.items():
        assert changes(table) == ([] if has_vectors else [("delete", 13)])
    assert leftovers(table) == []


ODD_NAMES = ("a b", "100%", "x=y", "a/b", "é", "", None, "c:d", "q?#", "%41", "back\\slash", "tab\t", "'q\"")
ODD_ROWS = """
    SELECT id, name, nullif(cast(if(id % 7 = 0, X'ff41', concat('s', id)) AS string), 's5') s,
        CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN id / 3 END d,
        CASE id % 3 WHEN 1 THEN map() WHEN 2 THEN map('k', array(named_struct('x', id), null), 'l', null) END m,
        CASE id % 3 WHEN 1 THEN struct(null AS a) WHEN 2 THEN struct(array(array(), null, array(id)) AS a) END r,
        cast(id / 9 AS decimal(9,3)) n, date'1500-01-01' AS day, timestamp'0001-01-01 00:00:00' AS t
    FROM names"""


@pytest.mark.parametrize("partition_by", [(), ("name",)])
def test_the_rows_that_stay_are_copied_exactly(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """Tasks of our own copy them, from folders with odd names, from old types and from INT96."""
    schema = (
        "id int, name string, s string, d double, m map<string, array<struct<x: int>>>, "
        "r struct<a: array<array<int>>>, n decimal(9,3), day date, t timestamp"
    )
    table = widen.create_table(str(tmp_path), schema, partition_by=partition_by, properties=TYPE_WIDENING)
    spark.createDataFrame(list(enumerate(ODD_NAMES * 2)), "id int, name string").createOrReplaceTempView("names")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        table.append(spark.sql(ODD_ROWS).coalesce(1))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    table.alter_columns({path: {"type": "bigint"} for path in ("id", "m.value.element.x", "r.a.element.element")})
    table.alter_columns({"n": {"type": "decimal(20,5)"}, "day": {"type": "timestamp_ntz"}}).add_columns({"r.b": "int"})

    def shown(rows: DataFrame) -> list[str]:
        texts = rows.selectExpr("to_json(struct(id, name, hex(s), string(d), m, r, n, day, t))")
        return sorted(row[0] for row in texts.collect())

    expected = shown(table.read(spark=spark).where("id % 5 <> 3"))
    files = set(table.files()["path"].to_pylist())
    table.delete("id % 5 = 3", spark=spark)
    assert shown(table.read(spark=spark)) == expected
    assert len(files - set(table.files()["path"].to_pylist())) == (5 if partition_by else 1)
    assert leftovers(table) == []


def test_whole_partitions_go_without_a_look_into_files(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, VECTORS, ("p",))
    table.delete("p = 'p1' OR upper(p) = 'P2'", spark=spark)
    operation, parameters, numbers = last_commit(table)
    assert (operation, parameters["predicate"]) == ("DELETE", """["p = 'p1' OR upper(p) = 'P2'"]""")
    assert numbers == {"numRemovedFiles": 4, "numDeletedRows": 13}
    assert actions(table, "add") == []
    assert ids(spark, table) == [0, 3, 6, 9, 12, 15, 18]
    table.delete(spark=spark)
    assert table.files().num_rows == 0


def test_a_vector_tells_its_file_and_grows(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, VECTORS, ())
    table.delete("id = 3", spark=spark)
    (add,), (remove,) = actions(table, "add"), actions(table, "remove")
    assert add["path"] == remove["path"]
    assert "deletionVector" not in remove
    assert add["deletionVector"]["cardinality"] == 1
    assert '"numRecords":10' in add["stats"]
    assert '"tightBounds":false' in add["stats"]
    table.delete("id IN (1, 2, 3, 4)", spark=spark)
    (grown,) = actions(table, "add")
    assert grown["deletionVector"]["cardinality"] == 4
    assert last_commit(table)[2] == {
        "numDeletedRows": 3,
        "numDeletionVectorsAdded": 1,
        "numDeletionVectorsUpdated": 1,
        "numDeletionVectorsRemoved": 1,
    }
    table.delete("id < 10", spark=spark)
    assert actions(table, "add") == []
    assert ids(spark, table) == list(range(10, 20))


def test_vectors_of_others_and_files_without_statistics(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**VECTORS, "delta.dataSkippingNumIndexedCols": "0"}
    table = two_files(spark, tmp_path, properties, ()).delete("id > 15", spark=spark).table
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.delete("id = 10", spark=spark)
    assert ids(spark, table) == [*range(10), *range(11, 16)]
    assert table.files()["deletion_vector"].null_count == 2


def test_a_condition_without_its_name_is_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {}, ())
    table.delete("id = 4")
    assert ids(spark, table) == [0, 1, 2, 3, *range(5, 20)]


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda table, spark: table.delete(spark), "where"),
        (lambda table, spark: table.delete(["id = 4"]), "where"),
        (lambda table, spark: table.delete(False), "where"),
        (lambda table, spark: table.delete("id = 4", spark="id = 5"), "spark"),
        (lambda table, spark: table.update(spark, {"id": "0"}), "assignments"),
        (lambda table, spark: table.update("id = 4"), "assignments"),
        (lambda table, spark: table.update({"id": 0}), "assignments"),
        (lambda table, spark: table.overwrite("id = 4"), "frame"),
        (lambda table, spark: table.overwrite(spark.range(1), where=True), "where"),
        (lambda table, spark: table.overwrite(spark.range(1), overwrite_schema="false"), "overwrite_schema"),
        (lambda table, spark: table.fold(spark, "a_string"), "column"),
        (lambda table, spark: table.merge("s", "true"), "source"),
        (lambda table, spark: table.restore("1"), "version"),
    ],
)
def test_an_argument_of_the_wrong_type_changes_no_row(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any, SparkSession], object], option: str
) -> None:
    table = two_files(spark, tmp_path, {}, ())
    version = table.version
    with pytest.raises(InvalidOption) as refused:
        call(table, spark)
    assert refused.value.fields["option"] == option
    assert Table(table.location).version == version


@pytest.mark.parametrize(
    "call", [lambda table: table.delete("id = 4", "id = 5"), lambda table: table.restore(1, "2024-01-01")]
)
def test_a_second_condition_is_an_error_of_python(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        call(two_files(spark, tmp_path, {}, ()))
    assert Table(str(tmp_path)).version == 3


def test_null_is_not_true(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int, v int")
    table.append(spark.createDataFrame([(1, None), (2, 5), (3, 7)], "id int, v int").coalesce(1))
    table.delete("v = 5", spark=spark)
    assert ids(spark, table) == [1, 3]
    version = table.delete("v = 6", spark=spark).version
    assert table.delete("v IS NULL AND v = 1", spark=spark).version == version


def test_what_is_no_condition_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {}, ())
    for condition in ("nothing = 1", "id +", "id", "count(*) > 1", F.lit("x")):
        with pytest.raises(InvalidCondition) as refused:
            table.delete(condition, spark=spark)
        assert "__widen" not in refused.value.message
    for condition in ("rand() > 0.5", F.expr("uuid()") == "x"):
        with pytest.raises(NotDeterministic):
            table.delete(condition, spark=spark)
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(AppendOnlyTable):
        table.delete("id = 1", spark=spark)
    assert table.refresh().version == 4


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=layout_name)
def test_races(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    """Rows elsewhere do not matter; rows that might match, and files that are gone, do."""
    table = two_files(spark, tmp_path, properties, ("p",))
    other, honest = Table(table.location), update_delete.delete

    def meanwhile(action: Callable[[], object]) -> None:
        def deleted(*args: Any) -> Any:
            monkeypatch.setattr(update_delete, "delete", honest)
            outcome = honest(*args)
            action()
            return outcome

        monkeypatch.setattr(update_delete, "delete", deleted)

    row = spark.createDataFrame([(30, "p2", (1, "new"))], SCHEMA)
    meanwhile(lambda: other.append(row))
    table.delete("p = 'p1' AND id > 5", spark=spark)
    assert ids(spark, table) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 30]
    meanwhile(lambda: other.append(row))
    with pytest.raises(ConcurrentAppend):
        table.delete("p = 'p2' AND id > 29", spark=spark)
    meanwhile(lambda: other.delete("p = 'p0'", spark=spark))
    with pytest.raises(ConcurrentDelete):
        table.delete("id = 0", spark=spark)
    assert ids(spark, table.refresh()) == [1, 2, 4, 5, 8, 11, 14, 17, 30, 30]
    assert leftovers(table) == []


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=layout_name)
def test_a_failed_delete_leaves_nothing(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    table = two_files(spark, tmp_path, properties, ())
    with pytest.raises(JobFailed):
        table.delete("if(id = 15, raise_error('stop'), id = 3)", spark=spark)
    assert table.refresh().version == 3
    assert leftovers(table) == []
