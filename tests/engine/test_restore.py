"""RESTORE: schema, properties and rows of an earlier version, in the types of their time."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from engine.test_deletion import delete, inline
from support.exact import assert_same
from support.old_table import ENABLED, file_types, live, log
from widen.errors import AppendOnlyTable, ConcurrentAppend, FileMissing, InvalidOption, VersionNotFound
from widen.log.commit import commit
from widen.table import Table, maintenance


def file(spark: SparkSession, *values: int, kind: str = "tinyint") -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], f"a {kind}").coalesce(1)


def values(table: Table, spark: SparkSession) -> list[Any]:
    return [row.a for row in table.read(spark=spark).collect()]


def widened(spark: SparkSession, place: Path, **properties: str) -> Table:
    """Version 1: two narrow rows; 2: the type is wider; 3: a wide row."""
    table = widen.create_table(str(place), "a tinyint", properties={**ENABLED, **properties})
    table.append(file(spark, 1, 2)).table.alter_column("a", type="int")
    return table.append(file(spark, 1000, kind="int")).table


def test_restore_to_before_a_type_change_brings_the_old_type_back(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).rewrite(spark=spark).table.restore(version=1).table
    assert (table.version, table.schema.sql) == (5, "struct<a: tinyint>")
    assert table.type_changes == []
    assert_same(values(table, spark), [1, 2])
    assert file_types(tmp_path, live(tmp_path)) == {(("a", pa.int8()),)}
    assert_same(values(table.append(file(spark, 3)).table, spark), [1, 2, 3])
    assert_same((row.a for row in table.read(version=3, spark=spark).collect()), [1, 2, 1000])


def test_restore_to_after_a_type_change_brings_narrow_files_back(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).rewrite(clear_history=True, spark=spark).table.restore(version=3).table
    assert [(path, str(change.new)) for path, change in table.type_changes] == [(("a",), "integer")]
    assert_same(values(table, spark), [1, 2, 1000])
    assert file_types(tmp_path, live(tmp_path)) == {(("a", pa.int8()),), (("a", pa.int32()),)}


def test_the_history_shows_a_restore_as_delta_does(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path)
    sizes = {path: add["size"] for path, add in live(tmp_path).items()}
    table.restore(version=1)
    lines = [line for line in log(tmp_path) if line["version"] == table.version]
    info = lines[0]["commitInfo"]
    assert (info["operation"], info["operationParameters"]) == ("RESTORE", {"version": 1, "timestamp": None})
    (gone,) = (line["remove"]["path"] for line in lines if "remove" in line)
    assert info["operationMetrics"] == {
        "tableSizeAfterRestore": str(sum(sizes.values()) - sizes[gone]),
        "numOfFilesAfterRestore": "1",
        "numRemovedFiles": "1",
        "numRestoredFiles": "0",
        "removedFilesSize": str(sizes[gone]),
        "restoredFilesSize": "0",
    }
    assert [line["remove"]["dataChange"] for line in lines if "remove" in line] == [True]


def test_a_time_is_as_good_as_a_version(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path)
    moment = {version: time_ms for version, time_ms, _ in table.history()}[1]
    with pytest.raises(VersionNotFound):
        table.restore(timestamp="1970-01-01 00:00:00Z")
    with pytest.raises(VersionNotFound, match="newest version"):
        table.restore(timestamp="2990-01-01 00:00:00Z")
    then = datetime.fromtimestamp(moment / 1000, timezone.utc)
    assert_same(values(table.restore(timestamp=then).table, spark), [1, 2])


def test_to_restore_the_newest_version_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert widened(spark, tmp_path).restore(version=3).version == 3


@pytest.mark.parametrize("asked", [{}, {"version": 1, "timestamp": "2024-01-01"}, {"timestamp": "yesterday"}])
def test_one_version_must_be_meant(tmp_path: Path, asked: dict[str, Any]) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    with pytest.raises(InvalidOption):
        table.restore(**asked)


def test_a_version_that_is_not_there_is_told(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    with pytest.raises(VersionNotFound, match="the versions are 0 to 0"):
        table.restore(version=7)


def test_files_that_are_gone_are_named_and_nothing_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path)
    narrow = [path for path in live(tmp_path) if file_types(tmp_path, [path]) == {(("a", pa.int8()),)}]
    table.rewrite(spark=spark)
    (tmp_path / narrow[0]).unlink()
    with pytest.raises(FileMissing, match=f"version 1 needs {narrow[0]}, which is gone"):
        table.restore(version=1)
    assert table.refresh().version == 4


def test_deleted_rows_come_back_with_their_file(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableDeletionVectors": "true"})
    table.append(file(spark, 1, 2, 3))
    delete(table, table.files().to_pylist()[0], inline([0, 1]))
    assert_same(values(table, spark), [3])
    assert_same(values(table.restore(version=1).table, spark), [1, 2, 3])
    assert_same(values(table.restore(version=2).table, spark), [3])
    assert len(live(tmp_path)) == 1


def test_restored_rows_have_the_ids_that_they_had(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path, **{"delta.enableRowTracking": "true"})
    before = {path: add["baseRowId"] for path, add in live(tmp_path).items()}
    table.rewrite(spark=spark).table.restore(version=3)
    assert {path: add["baseRowId"] for path, add in live(tmp_path).items()} == before
    table.append(file(spark, 5, kind="int"))
    assert max(add["baseRowId"] for add in live(tmp_path).values()) >= 5  # two ids went to the rewritten file


def test_an_append_only_table_gives_no_row_back(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).set_properties({"delta.appendOnly": "true"})
    with pytest.raises(AppendOnlyTable):
        table.restore(version=1)


def test_a_restore_loses_to_an_append_and_nothing_of_it_is_visible(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)

    def raced(*args: Any, **more: Any) -> Any:
        Table(str(tmp_path)).append(file(spark, 7, kind="int"))
        return commit(*args, **more)

    monkeypatch.setattr(maintenance, "commit", raced)
    with pytest.raises(ConcurrentAppend):
        table.restore(version=1)
    assert_same(values(table.refresh(), spark), [1, 2, 1000, 7])


def test_what_a_fast_drop_protects_stays_protected(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).drop_feature("typeWidening", spark=spark)
    protected = table.properties["delta.requireCheckpointProtectionBeforeVersion"]
    table.restore(version=3)
    assert table.properties["delta.requireCheckpointProtectionBeforeVersion"] == protected
    assert {"checkpointProtection", "typeWidening"} <= set(table.protocol.writer_features or ())
    assert_same(values(table, spark), [1, 2, 1000])
