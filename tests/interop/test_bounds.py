"""Filters of other readers on widened columns: they find every row, because the bounds in the log are exact."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen

VALUES = (0.1, 0.3, 0.7, 16777217.5, 3.4028234e38, 1e-45, -0.1, 2.5)


def as_float(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


@pytest.mark.parametrize("is_exact", [True, False], ids=["exact", "as they were"])
def test_delta_lake_finds_every_row_of_a_float_that_became_double(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    """Without the repair it does not: the day that the second case fails, Delta Lake itself keeps a margin."""
    path = str(tmp_path / "t")
    columns, floats = "v float, s struct<w: float>", [as_float(value) for value in VALUES]
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ('delta.enableTypeWidening'='true')")
    for value in floats:
        frame = spark.createDataFrame([(value, (value,))], columns).coalesce(1)
        frame.write.format("delta").mode("append").save(path)
    if not is_exact:
        monkeypatch.setattr("widen.log.commit.widened_floats", lambda *_: ())
    widen.Table(path).alter_columns({"v": {"type": "double"}, "s.w": {"type": "double"}})
    rows, lost = spark.read.format("delta").load(path), []
    assert sorted(row.v for row in rows.collect()) == sorted(floats)
    for text in map(repr, VALUES):
        for condition in (f"{{}} > {text}D", f"{{}} < {text}D", f"{{}} = CAST(CAST({text}D AS FLOAT) AS DOUBLE)"):
            for column in ("v", "s.w"):
                found = rows.where(condition.format(column)).count()
                expected = rows.where(condition.format(f"({column} + rand(1) * 0)")).count()
                lost += [condition.format(column)] if found != expected else []
    assert (lost == []) is is_exact
    assert widen.Table(path).to_arrow("v > 0.1").num_rows == sum(value > 0.1 for value in floats)


def test_delta_lake_reads_the_same_values_of_a_partition_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    columns = "p float, v int"
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableTypeWidening'='true')"
    )
    frame = spark.createDataFrame([(as_float(value), 1) for value in VALUES], columns).coalesce(1)
    frame.write.format("delta").mode("append").save(path)
    widen.Table(path).alter_column("p", type="double")
    rows = spark.read.format("delta").load(path)
    assert sorted(row.p for row in rows.collect()) == sorted(map(as_float, VALUES))
    assert rows.where(f"p = {as_float(0.1)!r}D").count() == 1
    assert sorted(row["p"] for row in widen.Table(path).to_arrow().to_pylist()) == sorted(map(as_float, VALUES))
