"""Days before 1582 and times before 1900, written under settings for another calendar, read by the other engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from support.parquet_calendar import DAYS, TIMES, WAYS, modes


@pytest.mark.parametrize("way", WAYS)
def test_delta_lake_and_deltalake_read_the_same_days(spark: SparkSession, tmp_path: Path, way: str) -> None:
    place = str(tmp_path / "table")
    with modes(spark, "LEGACY"):
        table = WAYS[way](spark, tmp_path / "table")
        table.set_properties({"delta.checkpointInterval": "1"}).set_properties({"owner": "us"})
        assert list((tmp_path / "table" / "_delta_log").glob("*.checkpoint.parquet"))
        rows = spark.read.format("delta").load(place)
        assert [row[0] for row in rows.orderBy("n").selectExpr("string(d)").collect()] == list(DAYS)
        for n, (day, time) in enumerate(zip(DAYS, TIMES, strict=True)):
            assert [row.n for row in rows.where(f"d = DATE'{day}'").select("n").collect()] == [n]
            assert [row.n for row in rows.where(f"t = TIMESTAMP'{time}'").select("n").collect()] == [n]
    if way == "appended":  # deltalake reads neither type widening nor column mapping
        found = DeltaTable(place).to_pyarrow_table().sort_by("n").to_pylist()
        assert [row["d"].isoformat() for row in found] == list(DAYS)
        assert [row["t"].strftime("%m-%dT%H:%M:%S.%fZ") for row in found] == [time[5:] for time in TIMES]
