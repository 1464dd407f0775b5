"""Rows with NaN, which Spark orders above every number, are found in whatever files we wrote them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from widen.table import Table

ROWS = """
    SELECT id, if(id = 1, double('NaN'), double(id % 3)) f, named_struct('g', if(id = 2, float('NaN'), 1F)) s
    FROM range(9)
"""
COLUMNS = "id bigint, f double, s struct<g: float>"
FEED = {"delta.enableChangeDataFeed": "true"}
COMPAT = {"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"}


def _append(rows: DataFrame, place: str, **properties: str) -> Table:
    return widen.create_table(place, COLUMNS, properties=properties).append(rows.coalesce(1)).table


def _copy(rows: DataFrame, place: str) -> None:
    _append(rows, place).delete("id = 5", spark=rows.sparkSession)


def _copy_with_feed(rows: DataFrame, place: str) -> None:
    _append(rows, place, **FEED).delete("id = 5", spark=rows.sparkSession)


def _update_with_feed(rows: DataFrame, place: str) -> None:
    _append(rows, place, **FEED).update({"id": "id + 1"}, "id < 8", spark=rows.sparkSession)


def _write_for_iceberg(rows: DataFrame, place: str) -> None:
    _append(rows, place, **COMPAT)


def _ingest(rows: DataFrame, place: str) -> None:
    rows.coalesce(1).write.parquet(f"{place}-source")
    widen.ingest(f"{place}-source", into=place, spark=rows.sparkSession)


def _optimize(rows: DataFrame, place: str) -> None:
    _append(rows, place).append(rows.limit(0)).table.append(rows.where("id < 0")).table.optimize(
        spark=rows.sparkSession
    )


@pytest.mark.parametrize("write", [_copy, _copy_with_feed, _update_with_feed, _write_for_iceberg, _ingest, _optimize])
def test_filters_find_rows_with_nan(
    spark: SparkSession, tmp_path: Path, write: Callable[[DataFrame, str], None]
) -> None:
    place = str(tmp_path / "table")
    write(spark.sql(ROWS), place)
    for condition in ("f > 5", "f >= 5", "NOT f <= 2", "f = double('NaN')", "f IN (7, double('NaN'))", "s.g > 1"):
        for rows in (
            widen.Table(place).read(where=condition, spark=spark),
            widen.Table(place).read(spark=spark).where(condition),
            spark.read.format("delta").load(place).where(condition),
        ):
            assert rows.count() == 1, condition
