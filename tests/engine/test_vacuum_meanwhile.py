"""A vacuum of another writer in the middle of a job, and sessions that skip files: rows are never missing silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from widen.errors import ConcurrentDelete, CorruptFile
from widen.log import commit as commits
from widen.spark.spark_types import spark_errors
from widen.table import Table


@pytest.fixture
def skipping(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session with the settings that let Spark skip files it cannot read."""
    names = [f"spark.sql.files.ignore{what}Files" for what in ("Missing", "Corrupt")]
    for name in names:
        spark.conf.set(name, "true")
    yield spark
    for name in names:
        spark.conf.unset(name)


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).select("id", F.lit("x").alias("v")).coalesce(1)


def two_files(spark: SparkSession, path: Path) -> Table:
    widen.create_table(str(path), "id bigint, v string", properties={"delta.enableDeletionVectors": "false"})
    return Table(str(path)).append(numbers(spark, 0, 10)).table.append(numbers(spark, 10, 20)).table


def merge(table: Table, spark: SparkSession) -> None:
    change = table.merge(numbers(spark, 3, 23), "t.id = s.id")
    change.when_matched_update_all().when_not_matched_insert_all().execute()


Job = Callable[[Table, SparkSession], Any]
CHANGES: dict[str, Job] = {
    "delete": lambda table, spark: table.delete("id IN (3, 13)", spark=spark),
    "update": lambda table, spark: table.update({"v": "'y'"}, "id IN (3, 13)", spark=spark),
    "merge": merge,
    "optimize": lambda table, spark: table.optimize(spark=spark),
}
WRITES: dict[str, Job] = CHANGES | {
    "append": lambda table, spark: table.append(numbers(spark, 50, 60)),
    "overwrite": lambda table, spark: table.overwrite(numbers(spark, 3, 5), where="id IN (3, 4)"),
    "ingest": lambda table, spark: widen.ingest(numbers(spark, 50, 60), table.location, spark=spark),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_file_is_no_empty_file(skipping: SparkSession, tmp_path: Path, name: str) -> None:
    table = two_files(skipping, tmp_path)
    with open(tmp_path / table.files()["path"][0].as_py(), "r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptFile):
        CHANGES[name](table, skipping)
    assert Table(str(tmp_path)).version == table.version


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_damaged_source_file_is_not_loaded_as_an_empty_one(
    skipping: SparkSession, tmp_path: Path, format: str
) -> None:
    source = tmp_path / "in"
    for start in (0, 10_000):
        rows = skipping.range(start, start + 10_000).selectExpr("id", "sha2(string(id), 256) AS v").coalesce(1)
        rows.write.mode("append").format(format).option("compression", "gzip").save(str(source))
    damaged, _ = sorted(source.glob("part-*"))
    with open(damaged, "r+b") as file:
        file.seek(damaged.stat().st_size // 3)
        file.write(b"\xff" * 1000)
    with pytest.raises(CorruptFile):
        widen.ingest(str(source), str(tmp_path / "all"), spark=skipping)
    done = widen.ingest(str(source), str(tmp_path / "good"), spark=skipping, verify=True, skip_bad_files=True)
    assert (done.records, [Path(each.path).name for each in done.plan.bad_files]) == (10_000, [damaged.name])


def test_a_read_ends_with_an_error_if_its_files_are_vacuumed_meanwhile(skipping: SparkSession, tmp_path: Path) -> None:
    table = two_files(skipping, tmp_path)
    rows, reader = table.read(spark=skipping), Table(str(tmp_path))
    table.optimize(spark=skipping).table.vacuum(0, force=True)
    with pytest.raises(spark_errors(), match="FILE_NOT_EXIST"):
        rows.collect()
    with pytest.raises(CorruptFile, match=r"vacuumed or deleted\?"):
        reader.read(spark=skipping).collect()
    assert Table(str(tmp_path)).read(spark=skipping).count() == 20


@pytest.mark.parametrize("name", WRITES)
def test_no_version_names_a_file_that_a_vacuum_deletes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A forced vacuum also deletes what is not committed yet: the job writes its files again, or says so."""
    table, write_entry = two_files(spark, tmp_path), commits._write_entry

    def vacuum_first(*given: Any) -> Any:
        monkeypatch.setattr(commits, "_write_entry", write_entry)
        Table(str(tmp_path)).vacuum(0, force=True)
        return write_entry(*given)

    monkeypatch.setattr(commits, "_write_entry", vacuum_first)
    rows = {"append": 30, "ingest": 30, "optimize": 20}.get(name)
    with nullcontext() if rows else pytest.raises(ConcurrentDelete, match="VACUUM START"):
        WRITES[name](table, spark)
    after = Table(str(tmp_path))
    assert [path for path in after.files()["path"].to_pylist() if not (tmp_path / path).exists()] == []
    assert after.read(spark=spark).count() == (rows or 20)
