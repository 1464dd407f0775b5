"""Days before 1582 and times before 1900 stay what they are, whatever calendar the session asks for."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.parquet_calendar import DAYS, TIMES, WAYS, modes
from widen import ingest
from widen.table import Table

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROS = [(datetime.fromisoformat(time.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1) for time in TIMES]
EXPECTED = [(n, day, micros) for n, (day, micros) in enumerate(zip(DAYS, MICROS, strict=True))]


def read_times(spark: SparkSession, table: Table, where: str | None = None) -> list[tuple[int, str, int]]:
    """The number of each row, its day as text, and the microseconds of its time."""
    rows = table.read(where=where, spark=spark).orderBy("n").selectExpr("n", "string(d)", "unix_micros(t)")
    return [(row[0], row[1], row[2]) for row in rows.collect()]


@pytest.mark.parametrize(("way", "mode"), [*((way, "LEGACY") for way in WAYS), ("ingested", "EXCEPTION")])
def test_days_stay_what_they_are(spark: SparkSession, tmp_path: Path, way: str, mode: str) -> None:
    with modes(spark, mode):
        table = WAYS[way](spark, tmp_path / "table")
        assert read_times(spark, table) == EXPECTED
        for n, (day, time) in enumerate(zip(DAYS, TIMES, strict=True)):
            where = f"d = DATE'{day}'" if n % 2 else f"t = TIMESTAMP'{time}'"
            assert read_times(spark, table, where) == [EXPECTED[n]], "a filter by statistics lost a row"
    assert read_times(spark, table) == EXPECTED
    files = list((tmp_path / "table").rglob("*.parquet"))
    for file in (file for file in files if "_delta_log" not in file.parts):
        metadata = pq.read_metadata(file).metadata
        assert b"org.apache.spark.version" in metadata
        assert not {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"} & metadata.keys()
    log = (tmp_path / "table" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    stats = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
    lows = [str(value) for each in stats for value in each["minValues"].values()]
    assert "0001-01-01" in lows


def test_a_file_of_another_engine_is_read_in_the_calendar_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    pq.write_table(pa.table({"n": [1], "d": pa.array(["1200-01-01"]).cast(pa.date32())}), source)
    ingest(str(source), str(tmp_path / "table"), spark=spark)
    with modes(spark, "LEGACY"):
        rows = Table(str(tmp_path / "table")).read(spark=spark)
        assert [row[0] for row in rows.selectExpr("string(d)").collect()] == ["1200-01-01"]


def test_int96_in_the_old_calendar_is_taken_for_the_days_that_it_means(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        with modes(spark, "LEGACY"):
            pairs = enumerate(zip(DAYS, TIMES, strict=True))
            values = ", ".join(f"({n}, date'{d}', timestamp'{t}')" for n, (d, t) in pairs)
            rows = spark.sql(f"SELECT * FROM VALUES {values} AS rows(n, d, t)")
            rows.coalesce(1).write.parquet(str(tmp_path / "source"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    [file] = (tmp_path / "source").glob("*.parquet")
    assert b"org.apache.spark.legacyINT96" in pq.read_metadata(file).metadata
    done = ingest(str(file), str(tmp_path / "table"), spark=spark, verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert read_times(spark, Table(str(tmp_path / "table"))) == EXPECTED
