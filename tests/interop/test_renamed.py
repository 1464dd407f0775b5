"""Delta Lake renames columns that we ingest into; values go on finding them by the source in their metadata."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import widen
from widen import ingest
from widen.table import Table


def test_a_column_that_delta_lake_has_renamed_goes_on_getting_its_field(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    widen.create_table(place, "a int, s struct<x: int>", properties={"delta.columnMapping.mode": "name"})
    for number, text in enumerate(['{"n":1,"a":1,"s":{"x":1},"new":true}', '{"n":2,"a":2,"s":{"x":2},"new":false}']):
        (tmp_path / f"{number}.jsonl").write_text(text + "\n")
        done = ingest(str(tmp_path / f"{number}.jsonl"), place, spark=spark)
        if number == 0:
            for old, new in (("a", "b"), ("s.x", "y"), ("new", "old")):
                spark.sql(f"ALTER TABLE delta.`{place}` RENAME COLUMN {old} TO {new}")
    assert done.plan.is_empty
    found = [row.asDict(recursive=True) for row in Table(place).read(spark=spark).orderBy("n").collect()]
    assert found == [
        {"b": 1, "s": {"y": 1}, "n": 1, "old": True},
        {"b": 2, "s": {"y": 2}, "n": 2, "old": False},
    ]
