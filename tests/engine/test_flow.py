"""Flows: what changes in one table arrives in the next, whatever its schema becomes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from support.fault import FULL
from support.flow_drift import DRIFTS, Drift, comparable, create_bronze, drift_and_append, to_gold, to_silver
from widen.table import Table

SILVER = "SELECT id, day, amount * 2 AS twice FROM source"
GOLD = "SELECT day, sum(twice) AS total, count(*) AS orders FROM source GROUP BY day"


class Lake:
    """Tables in a folder, and flows between them."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place

    def table(self, name: str) -> Table:
        return Table(str(self.place / name))

    def add(self, query: str, name: str = "bronze") -> None:
        widen.ingest(self.spark.sql(query), str(self.place / name))

    def step(self, source: str, into: str, **words: Any) -> list[widen.FlowBatch]:
        words = {"checkpoint": str(self.place / f"_flows_{into}"), "once": True, "spark": self.spark, **words}
        return widen.flow(str(self.place / source), str(self.place / into), **words).batches

    def run(self) -> None:
        self.step("bronze", "silver", sql=SILVER, keys=["id"])
        self.step("silver", "gold", sql=GOLD, keys=["day"])

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.table(name).read(spark=self.spark).collect()), key=repr)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def test_rows_arrive_with_updates_and_deletes(lake: Lake) -> None:
    lake.add("SELECT id, IF(id < 3, 'mon', 'tue') day, CAST(id AS int) amount FROM range(5) t(id)")
    lake.run()
    assert lake.rows("gold") == [("mon", 6, 3), ("tue", 14, 2)]
    bronze = lake.table("bronze")
    bronze.update({"amount": "100"}, "id = 4")
    bronze.delete("day = 'mon'")
    lake.add("SELECT CAST(9 AS bigint) id, 'wed' day, CAST(5000000000 AS bigint) amount")
    lake.run()
    assert lake.rows("gold") == [("tue", 206, 2), ("wed", 10000000000, 1)]
    assert [field.type.sql for field in lake.table("silver").schema] == ["bigint", "string", "bigint"]


def _rounds() -> list[tuple[Drift, ...]]:
    """One drift a round with all faults, else several."""
    size = 1 if FULL in os.environ else 13
    return [DRIFTS[at : at + size] for at in range(0, len(DRIFTS), size)]


@pytest.mark.parametrize("feed", ["true", "false"] if FULL in os.environ else ["true"])
def test_drifts_run_through_a_chain_without_a_stop(lake: Lake, feed: str) -> None:
    """Gold is what a batch makes of bronze, after each round of drifts with an update and a deletion."""
    words = {"delta.enableChangeDataFeed": feed, "delta.enableDeletionVectors": feed}
    bronze = create_bronze(lake.spark, str(lake.place / "bronze"), **words)
    for number, drifts in enumerate([(), *_rounds()]):
        if drifts:
            drift_and_append(lake.spark, bronze, drifts, 10 + number)
            bronze.update({"day": "'wed'"}, f"id = {number - 1}")
            bronze.delete(f"id = {number + 9}" if number > 1 else "id = 3")
        lake.step("bronze", "silver", transform=to_silver, keys=["id"])
        lake.step("silver", "gold", transform=to_gold, keys=["day"])
        rows = bronze.refresh().read(spark=lake.spark)
        assert comparable(lake.table("silver").read(unified=True)) == comparable(to_silver(rows))
        assert comparable(lake.table("gold").read(unified=True)) == comparable(to_gold(to_silver(rows)))
