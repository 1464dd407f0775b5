"""Flows beside Delta Lake: it reads what they write, and its own streams stop where they do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import widen
from support.fault import FULL
from support.flow_drift import DRIFTS, Drift, create_bronze, drift_and_append, to_gold, to_silver
from widen.table import Table

SOME = ("int_to_bigint", "date_to_timestamp_ntz", "column_comes", "renamed")
"""The drifts of a usual run."""

ALLOWED = {
    "spark.databricks.delta.properties.defaults.enableTypeWidening": "true",
    "spark.databricks.delta.properties.defaults.feature.timestampNtz": "supported",
    "spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop": "always",
    "spark.databricks.delta.streaming.allowSourceColumnTypeChange": "always",
}
"""Everything that Delta Lake asks for is allowed from the beginning."""

MAX_STOPS = 5

STOPPED_BY = ("int_to_bigint", "column_comes")
"""The drifts that must stop a stream; a run with all faults counts the stops of all."""


def drifts() -> Sequence[Drift]:
    return DRIFTS if FULL in os.environ else [drift for drift in DRIFTS if drift.column in SOME]


def test_delta_lake_reads_the_targets_of_a_chain(spark: SparkSession, tmp_path: Path) -> None:
    bronze = create_bronze(spark, str(tmp_path / "bronze"), drifts())
    for into, properties in (("silver", "'delta.enableChangeDataFeed' = 'true'"), ("gold", "'a' = 'b'")):
        spark.sql(f"CREATE TABLE delta.`{tmp_path / into}` (day string) USING delta TBLPROPERTIES ({properties}, "
                  "'delta.enableTypeWidening' = 'true')")  # fmt: skip
    for number in range(2):
        if number:
            drift_and_append(spark, bronze, drifts(), 10)
            spark.sql(f"DELETE FROM delta.`{bronze.location}` WHERE id = 1")
            spark.sql(f"UPDATE delta.`{bronze.location}` SET day = 'wed' WHERE id = 2")
        for source, into, transform, key in (("bronze", "silver", to_silver, "id"), ("silver", "gold", to_gold, "day")):
            words: dict[str, Any] = {"checkpoint": str(tmp_path / f"cp-{into}"), "once": True, "spark": spark}
            widen.flow(str(tmp_path / source), str(tmp_path / into), transform=transform, keys=[key], **words)
    for name in ("silver", "gold"):
        ours, theirs = (read(spark, str(tmp_path / name)) for read in (_ours, _theirs))
        assert ours == theirs != []
    # Delta Lake refuses a feed over versions before and after a change of types. A column of bronze was renamed, so the
    # last batch replaced all four rows; then one is gone and one is new.
    last = str(Table(str(tmp_path / "silver")).version)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", last)
    changed = feed.load(str(tmp_path / "silver")).groupBy("_change_type").count().collect()
    assert dict(map(tuple, changed)) == {"insert": 4, "delete": 4}


def _ours(spark: SparkSession, place: str) -> list[str]:
    return sorted(repr(tuple(row)) for row in Table(place).read(spark=spark).collect())


def _theirs(spark: SparkSession, place: str) -> list[str]:
    return sorted(repr(tuple(row)) for row in spark.read.format("delta").load(place).collect())


def test_how_often_streams_of_delta_lake_stop(
    spark: SparkSession, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    for key, value in ALLOWED.items():
        spark.conf.set(key, value)
    try:
        tried = [drift for drift in drifts() if FULL in os.environ or drift.column in STOPPED_BY]
        stops = {drift.column: _stops(spark, tmp_path / drift.column, drift) for drift in tried}
    finally:
        for key in ALLOWED:
            spark.conf.unset(key)
    record_testsuite_property("stops of a stream of Delta Lake", str(stops))
    print(stops)
    assert all(stops[column] >= 1 for column in STOPPED_BY)


def _stops(spark: SparkSession, place: Path, drift: Drift) -> int:
    """Return how often a stream must be started again until it is past a drift; `MAX_STOPS` if it never is."""
    bronze = create_bronze(spark, str(place / "bronze"), [drift])
    _stream(spark, place)
    drift_and_append(spark, bronze, [drift], 10)
    for stops in range(MAX_STOPS):
        try:
            _stream(spark, place)
        except PySparkException as error:
            print(drift, stops, str(error).partition("\n")[0][:200])
        else:
            return stops
    return MAX_STOPS


def _stream(spark: SparkSession, place: Path) -> None:
    checkpoint = str(place / "checkpoint")
    rows = spark.readStream.format("delta").option("schemaTrackingLocation", f"{checkpoint}/_schema")
    writer = rows.load(str(place / "bronze")).writeStream.format("delta").option("mergeSchema", "true")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(str(place / "silver")).awaitTermination()
