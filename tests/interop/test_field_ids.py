"""Files with other names and the right field ids: Delta Lake reads them as we do."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from engine.test_field_ids import FOREIGN, FOUR, ONE, OURS, SCHEMA, THREE, TWO, select_rows
from support.field_ids import add_shuffled_file
from widen.table import Table


def test_delta_finds_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{place}` ({SCHEMA}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')")
    spark.createDataFrame(OURS, SCHEMA).write.format("delta").mode("append").save(place)
    # Spark's Parquet reader fails where a file gives a column the name of one of another type, so no name is shared.
    add_shuffled_file(place, FOREIGN, "foreign.parquet", suffix="-2")
    for found in (spark.read.format("delta").load(place), Table(place).read(spark=spark)):
        assert select_rows(found) == [ONE, TWO, THREE, FOUR]
    Table(place).delete("who.b = 200", spark=spark)
    assert select_rows(spark.read.format("delta").load(place)) == [TWO, THREE, FOUR]
