"""The changes of a table: we tell those of Delta Lake as it does, and it tells ours as we do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from interop import rows
from widen.table import create_table

FEED = {"delta.enableChangeDataFeed": "true", "delta.feature.timestampNtz": "supported"}


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize(("mapping", "partition_by"), [("none", ("city",)), ("name", ())])
def test_both_tell_the_same_changes(
    spark: SparkSession, tmp_path: Path, vectors: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    place = str(tmp_path / "table")
    properties = {**FEED, "delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": mapping}
    table = create_table(place, rows.NARROW, partition_by=partition_by, properties=properties)
    table.append(rows.frame(spark, rows.OLD, rows.NARROW).coalesce(1))
    spark.sql(f"UPDATE delta.`{place}` SET small = small - 1 WHERE id = 1")
    table.refresh().delete("id = 2", spark=spark)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 3")
    table.refresh().update({"small": "7"}, "id = 1", spark=spark)
    table.restore(version=2)
    spark.sql(f"OPTIMIZE delta.`{place}`")
    table.refresh()
    assert row_texts(table.changes(0, spark=spark)) == row_texts(theirs(spark, place, 0))
    assert table.changes(0, spark=spark).columns == theirs(spark, place, 0).columns
    for first, last in ((2, 2), (3, table.version - 1)):
        assert row_texts(table.changes(first, last, spark=spark)) == row_texts(theirs(spark, place, first, last))


def theirs(spark: SparkSession, place: str, first: int, last: int | None = None) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
    return (reader if last is None else reader.option("endingVersion", last)).load(place)


def row_texts(frame: DataFrame) -> list[str]:
    """Every row with what happened to it and when, sorted."""
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())
