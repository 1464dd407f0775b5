"""Columns of char(n): Delta Lake finds the rows that we say it finds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from support.char_columns import FOR_SPARK, FOUND, READ, write_table
from support.one_job import collect_each


def test_delta_lake_finds_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.read.format("delta").load(write_table(tmp_path / "t").location)
    assert [row.asDict(recursive=True) for row in rows.orderBy("id").collect()] == READ
    conditions = FOUND | FOR_SPARK
    found = collect_each([rows.where(each).select("id") for each in conditions])
    assert [sorted(number for (number,) in each) for each in found] == [*conditions.values()]
