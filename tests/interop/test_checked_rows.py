"""CHECK constraints beside Delta Lake's own: a load takes exactly the rows that Delta Lake inserts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import widen
from widen.table import Table

COLUMNS = "id bigint, n bigint, op string, price double, day date, flag boolean"
CONDITIONS = [
    "n > 0",
    "NOT (n > 0)",
    "n > 0 OR op = 'a'",
    "n > 0 AND op = 'a'",
    "NOT (n > 0 AND op = 'a')",
    "op IN ('a', 'b')",
    "op NOT IN ('a', 'b')",
    "n IS NULL OR n BETWEEN 1 AND 5",
    "price > 0.5 OR flag = false",
    "day <> '2024-01-01'",
]
RECORDS: list[dict[str, Any]] = [
    {"id": 1, "n": 5, "op": "a", "price": 0.5, "day": "2024-01-01", "flag": True},
    {"id": 2, "n": -5, "op": "b", "price": 0.75, "day": "2024-01-02", "flag": False},
    {"id": 3, "n": 0, "op": "c"},
    {"id": 4, "n": None, "op": "a"},
    {"id": 5, "n": 7, "op": None, "flag": None},
    {"id": 6},
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_load_takes_the_rows_that_delta_lake_inserts(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    theirs, ours = (str(tmp_path / name) for name in ("theirs", "ours"))
    for place in (theirs, ours):
        spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta")
        spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT c CHECK ({condition})")
    inserted = []
    for record in RECORDS:
        row = ", ".join(_literal(record.get(name.split()[0])) for name in COLUMNS.split(", "))
        try:
            spark.sql(f"INSERT INTO delta.`{theirs}` VALUES ({row})")
        except (PySparkException, Py4JJavaError) as error:
            if "CHECK constraint" not in str(error):
                raise
            continue
        inserted.append(record["id"])
    assert 0 < len(inserted) < len(RECORDS)
    (tmp_path / "s.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    done = widen.ingest(str(tmp_path / "s.jsonl"), ours, engine="local", spark=None)
    assert done.quarantined == len(RECORDS) - len(inserted)
    assert sorted(Table(ours).to_arrow()["id"].to_pylist()) == inserted


def _literal(value: Any) -> str:
    return "NULL" if value is None else repr(value) if not isinstance(value, bool) else str(value).lower()
