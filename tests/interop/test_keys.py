"""An ingestion by key beside the MERGE of Delta Lake: no key gets two rows, whoever is first."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import widen
from support.race import other_first
from widen.targets.delta import DeltaDraft

WORDS = {"key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED")
"""What Delta Lake says if another writer was first; the first ingestion by key records its rules in the metadata."""

COLUMNS = "id BIGINT, at BIGINT, n BIGINT, op STRING"


@pytest.fixture(params=["false", "true"], ids=["plain", "vectors"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    """A table that Delta Lake has made, without type widening, which it need not know."""
    place = str(tmp_path / "t")
    properties = f"'delta.enableDeletionVectors' = '{request.param}'"
    spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO delta.`{place}` SELECT id, 1, id, 'u' FROM range(4)")
    return place


def source(tmp_path: Path, number: int, *records: tuple[int, int, int, str]) -> str:
    file = tmp_path / f"{number}.json"
    names = ("id", "at", "n", "op")
    file.write_text("".join(json.dumps(dict(zip(names, each, strict=True))) + "\n" for each in records))
    return str(file)


def merge(spark: SparkSession, table: str, ids: str, n: int) -> Callable[[], object]:
    statement = (
        f"MERGE INTO delta.`{table}` t USING (SELECT explode(array({ids})) AS id, 2L AS at, {n}L AS n, 'u' AS op) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    return lambda: spark.sql(statement).collect()


def rows(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row.id, row.n) for row in spark.read.format("delta").load(table).collect())


def test_a_merge_that_is_first_is_seen(
    spark: SparkSession, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_first(monkeypatch, DeltaDraft, "commit", merge(spark, table, "1L, 7L", 70))
    batch = source(tmp_path, 1, (1, 3, 31, "u"), (7, 3, 37, "u"), (2, 3, 32, "d"), (3, 0, 33, "u"))
    assert str(widen.ingest(batch, table, spark=spark, **WORDS).keys) == "0 inserted, 2 updated, 1 deleted, 1 late"
    assert rows(spark, table) == [(0, 0), (1, 31), (3, 3), (7, 37)]


def test_writers_that_race_leave_one_row_of_each_key(spark: SparkSession, table: str, tmp_path: Path) -> None:
    """Each key is new in both; Delta Lake refuses a merge that has not seen what was added meanwhile."""

    def merges() -> None:
        for number in range(4):
            work = merge(spark, table, f"{100 + number}L, {200 + number}L", number)
            for _ in range(20):
                try:
                    work()
                    break
                except (PySparkException, Py4JJavaError) as error:
                    if not any(each in str(error) for each in CONFLICTS):
                        raise

    def loads() -> None:
        for number in range(4):
            batch = source(tmp_path, number, (100 + number, 9, number, "u"), (200 + number, 9, number, "u"))
            widen.ingest(batch, table, spark=spark, **WORDS)

    with ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(merges), pool.submit(loads)]:
            work.result()
    found = [key for key, _ in rows(spark, table)]
    assert found == sorted({*range(4), *range(100, 104), *range(200, 204)})
