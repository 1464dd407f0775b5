"""Days and times on which calendars differ, and tables that hold them, written in each way that we write files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from widen import ingest
from widen.table import Table, create_table

DAYS = ("0001-01-01", "1200-02-29", "1582-10-04", "1582-10-15", "1899-12-31", "2024-02-29")
TIMES = tuple(f"{day}T12:34:56.123456Z" for day in DAYS)

KEYS = tuple(
    f"spark.sql.parquet.{kind}RebaseModeIn{way}" for kind in ("datetime", "int96") for way in ("Read", "Write")
)


@contextmanager
def modes(spark: SparkSession, mode: str) -> Iterator[None]:
    """All four settings of the session, restored at the end."""
    before = {key: spark.conf.get(key) for key in KEYS}
    for key in KEYS:
        spark.conf.set(key, mode)
    try:
        yield
        assert {spark.conf.get(key) for key in KEYS} == {mode}, "the settings of the session were not restored"
    finally:
        for key, value in before.items():
            if value is not None:
                spark.conf.set(key, value)


def ingested(spark: SparkSession, place: Path) -> Table:
    """Files that Python tasks write."""
    source = place.with_suffix(".jsonl")
    lines = (json.dumps({"n": n, "d": day, "t": time}) for n, (day, time) in enumerate(zip(DAYS, TIMES, strict=True)))
    source.write_text("\n".join(lines), encoding="utf-8")
    done = ingest(str(source), str(place), spark=spark, detect_dates=True, verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    return Table(str(place))


def appended(spark: SparkSession, place: Path) -> Table:
    """Files that Spark writes."""
    return _appended(spark, place, {})


def compatible(spark: SparkSession, place: Path) -> Table:
    """Files with ids that Python tasks write."""
    return _appended(spark, place, {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"})


def _appended(spark: SparkSession, place: Path, properties: dict[str, str]) -> Table:
    table = create_table(str(place), "n int, d date, t timestamp", properties=properties)
    values = (f"({n}, date'{d}', timestamp'{t}')" for n, (d, t) in enumerate(zip(DAYS, TIMES, strict=True)))
    return table.append(spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS rows(n, d, t)")).table


WAYS: dict[str, Callable[[SparkSession, Path], Table]] = {
    "ingested": ingested,
    "appended": appended,
    "compatible": compatible,
}
