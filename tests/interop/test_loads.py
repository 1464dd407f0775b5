"""The record of loads beside other writers: they read, write, check, compact and vacuum the table, and it stays."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from widen import ingest
from widen.table import Table

KEEP_NOTHING = "spark.databricks.delta.retentionDurationCheck.enabled"


def put(place: Path, name: str, number: int) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text(json.dumps({"n": number}) + "\n")


def load_new(spark: SparkSession, tmp_path: Path, evolve: str) -> int:
    return ingest(str(tmp_path / "in"), str(tmp_path / "t"), new=True, evolve=evolve, spark=spark).records


def test_delta_lake_carries_the_record_along(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    put(tmp_path / "in", "a.jsonl", 1)
    assert load_new(spark, tmp_path, "widen") == 1
    spark.conf.set(KEEP_NOTHING, "false")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.checkpointInterval = 2)")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (10)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n = 10")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    assert list((Path(table) / "_delta_log").glob("*.checkpoint.parquet"))
    put(tmp_path / "in", "b.jsonl", 2)
    assert load_new(spark, tmp_path, "widen") == 1
    assert sorted(row.n for row in spark.read.format("delta").load(table).collect()) == [1, 2]
    assert [len(load.files) for load in Table(table).loads()] == [1, 1]


def test_deltalake_carries_the_record_along(spark: SparkSession, tmp_path: Path) -> None:
    """In mode split, for deltalake does not open tables with type widening."""
    table = str(tmp_path / "t")
    put(tmp_path / "in", "a.jsonl", 1)
    assert load_new(spark, tmp_path, "split") == 1
    write_deltalake(table, pa.table({"n": pa.array([10], pa.int64())}), mode="append")
    other = DeltaTable(table)
    other.delete("n = 10")
    other.optimize.compact()
    other.create_checkpoint()
    other.cleanup_metadata()
    other.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    put(tmp_path / "in", "b.jsonl", 2)
    assert load_new(spark, tmp_path, "split") == 1
    assert sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    assert [len(load.files) for load in Table(table).loads()] == [1, 1]
