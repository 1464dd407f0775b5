"""Vacuum and compaction beside Delta Lake's own, on copies of one table."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from widen.table import Table

DAY_S = 86_400
PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
    "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
)


def statements(place: str) -> list[str]:
    return [
        f"CREATE TABLE delta.`{place}` (id int, `_p` string) USING delta PARTITIONED BY (`_p`) "
        f"TBLPROPERTIES ({PROPERTIES})",
        f"INSERT INTO delta.`{place}` SELECT /*+ COALESCE(1) */ id, element_at(array('a b', 'x:y', null), "
        "int(id % 3) + 1) FROM range(60)",
        f"DELETE FROM delta.`{place}` WHERE id % 5 = 0",
        f"ALTER TABLE delta.`{place}` ALTER COLUMN id TYPE bigint",
        f"UPDATE delta.`{place}` SET id = id + 1000 WHERE id < 10",
        f"OPTIMIZE delta.`{place}`",
        f"INSERT INTO delta.`{place}` VALUES (5000000000, 'x:y')",
        f"DELETE FROM delta.`{place}` WHERE `_p` = 'a b'",
    ]


def age(place: Path, version_days: dict[int, float]) -> None:
    """Let every file be 30 days old, and the commits and their removes as old as told."""
    moment = time.time()
    for path in place.rglob("*"):
        os.utime(path, (moment - 30 * DAY_S,) * 2)
    for version, days in version_days.items():
        path = place / "_delta_log" / f"{version:020d}.json"
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        removed = f'"deletionTimestamp":{int((moment - days * DAY_S) * 1000)}'
        path.write_text(re.sub(r'"deletionTimestamp":\d+', removed, path.read_text()))
        os.utime(path, (moment - days * DAY_S,) * 2)


def data_files(place: Path) -> set[str]:
    files = (str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return {path for path in files if not path.startswith("_delta_log/")}


def rows(spark: SparkSession, place: Path, version: int | None = None) -> list[tuple[object, ...]]:
    """The newest version is read by Delta Lake; it refuses the one that was current when the retention began."""
    if version is None:
        return sorted(map(tuple, spark.read.format("delta").load(str(place)).collect()), key=repr)
    return sorted(map(tuple, Table(str(place)).read(version=version, spark=spark).collect()), key=repr)


def test_both_vacuums_keep_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    base, mine, theirs, clone = (tmp_path / name for name in ("base", "mine", "theirs", "clone"))
    for statement in statements(str(base)):
        spark.sql(statement)
    for name in ("orphan.parquet", "_change_data/orphan", "_hidden", "_folder/a", "_p=zz/orphan", "young.parquet"):
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_bytes(b"x")
    last = len(statements("")) - 1
    age(base, {version: 20 if version < last else 3 for version in range(last + 1)})
    os.utime(base / "young.parquet", None)
    for place in (mine, theirs):
        shutil.copytree(base, place)
    spark.sql(f"VACUUM delta.`{theirs}`")
    done = Table(str(mine)).vacuum()
    assert data_files(mine) == data_files(theirs)
    assert 0 < len(data_files(mine)) < len(data_files(base))
    assert {"young.parquet", "_hidden", "_folder/a"} <= data_files(mine)
    assert set(done.files) >= {"orphan.parquet", "_change_data/orphan", "_p=zz/orphan"}
    for version in (last - 1, None):
        assert rows(spark, mine, version) == rows(spark, base, version)
    operations = [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{mine}` LIMIT 2").collect()]
    assert operations == [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{theirs}` LIMIT 2").collect()]

    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{mine}`")
    spark.sql(f"DELETE FROM delta.`{clone}`")
    before = data_files(mine)
    Table(str(clone)).vacuum(0, force=True)
    assert (data_files(mine), data_files(clone)) == (before, set())

    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{theirs}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    Table(str(mine)).vacuum(0, force=True)
    assert data_files(mine) == data_files(theirs)
    assert rows(spark, mine) == rows(spark, base)
    with pytest.raises(Exception, match="vacuumed or deleted"):
        Table(str(mine)).read(version=2, spark=spark).collect()


def live_files(spark: SparkSession, place: Path) -> list[tuple[object, int]]:
    """The number of files of each partition, as Delta Lake sees them."""
    files = spark.read.format("delta").load(str(place)).selectExpr("`_p` p", "_metadata.file_path f").distinct()
    return sorted(map(tuple, files.groupBy("p").count().collect()), key=repr)


def test_both_compactions_leave_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    base, mine, theirs = (tmp_path / name for name in ("base", "mine", "theirs"))
    create, insert, delete, widen, *_ = statements(str(base))
    for statement in (create, insert, delete, insert, widen, insert):
        spark.sql(statement)
    for place in (mine, theirs):
        shutil.copytree(base, place)
    expected = rows(spark, base)
    done = Table(str(mine)).optimize(spark=spark)
    spark.sql(f"OPTIMIZE delta.`{theirs}`")
    assert live_files(spark, mine) == live_files(spark, theirs)
    assert rows(spark, mine) == rows(spark, theirs) == expected
    history = spark.sql(f"DESCRIBE HISTORY delta.`{theirs}` LIMIT 1").collect()[0].operationMetrics
    counts = ("numAddedFiles", "numRemovedFiles", "numDeletionVectorsRemoved")
    assert {key: str(done.metrics[key]) for key in counts} == {key: history[key] for key in counts}

    Table(str(mine)).optimize(zorder_by=["id"], spark=spark)
    assert rows(spark, mine) == expected
    assert spark.sql(f"SELECT * FROM table_changes_by_path('{mine}', {done.version})").count() == 0
    stream = spark.readStream.format("delta").option("startingVersion", done.version).load(str(mine))
    query = stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("seen").count() == 0
    spark.sql(f"INSERT INTO delta.`{mine}` VALUES (7, 'x:y')")
    assert len(rows(spark, mine)) == len(expected) + 1
