"""Spark on Iceberg tables in S3 whose catalog vends credentials that expire between the steps of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

import widen
from support.log_server import BUCKET, s3_server
from support.token_catalog import HOUR, Clock, TokenCatalog, token_catalog
from unit.iceberg.test_tokens import NAME, TOKEN, connect, rows, stream_twice
from unit.ingestion.test_local_stream import put
from widen.changes import iceberg_changes, iceberg_write
from widen.frames import iceberg_scan
from widen.iceberg.table_commit import IcebergTransaction
from widen.targets.iceberg import IcebergDraft

STEPS: tuple[tuple[Any, str], ...] = (
    (IcebergDraft, "write"),
    (IcebergDraft, "merge_by_key"),
    (IcebergDraft, "commit"),
    (IcebergTransaction, "add_snapshot"),
    (IcebergTransaction, "commit"),
    (iceberg_changes, "read_iceberg_files"),
    (iceberg_scan, "plan_scan"),
    (iceberg_write, "open_iceberg_writer"),
)
"""Before each of them goes by more time than tokens and credentials last."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenCatalog]:
    clock = Clock(tmp_path / "fast")
    clock.set(monkeypatch)
    names = {"AWS_ENDPOINT_URL": "s3.endpoint", "AWS_REGION": "s3.region", "AWS_SESSION_TOKEN": TOKEN}
    names |= {"AWS_ACCESS_KEY_ID": "s3.access-key-id", "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key"}
    with s3_server(clock=clock.file) as options:
        store = {names[key]: value for key, value in options.items() if key in names}
        with token_catalog(tmp_path, clock, warehouse=f"s3://{BUCKET}/{tmp_path.name}", **store) as server:

            def vend() -> dict[str, str]:
                until = clock.time() + HOUR
                return {**store, TOKEN: str(until), f"{TOKEN}-expires-at-ms": str(int(until * 1000))}

            server.vends = vend
            for owner, name in STEPS:
                monkeypatch.setattr(owner, name, after_hours(getattr(owner, name), clock))
            yield server


def after_hours(step: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    @wraps(step)
    def late(*words: Any, **more: Any) -> Any:
        clock.advance(2 * HOUR)
        return step(*words, **more)

    return late


def numbers(server: TokenCatalog) -> list[int]:
    return [row["n"] for row in rows(server)]


def test_jobs_of_spark_outlive_their_tokens(spark: SparkSession, tmp_path: Path, server: TokenCatalog) -> None:
    catalog: RestCatalog = connect(server, "oauth2")
    words = {"catalog": catalog, "engine": "spark", "spark": spark}
    for number in range(2):
        source = put(tmp_path / "in", f"{number}.jsonl", *({"n": 10 * number + n, "f": f"{number}"} for n in range(9)))
        done = widen.ingest(source, NAME, verify=True, txn=("loader", number), **words)
        assert done.verification is not None
        assert done.verification.is_clean
        assert widen.ingest(source, NAME, txn=("loader", number), **words).is_repeated
    table = widen.IcebergTable(NAME, catalog)
    table.delete("n = 3", spark=spark)
    table.update({"f": "'new'"}, "n = 4", spark=spark)
    source = spark.sql("SELECT CAST(id AS int) AS n, 'merged' AS f FROM range(5, 21, 15)")
    table.merge(source, "t.n = s.n").when_matched_update_all().when_not_matched_insert_all().execute()
    table.append(spark.sql("SELECT 30 AS n, 'late' AS f"))
    table.optimize(spark=spark)
    expected = [*(n for n in range(9) if n != 3), *range(10, 19), 20, 30]
    assert numbers(server) == expected
    assert {row["n"]: row["f"] for row in rows(server) if row["n"] in (4, 5, 20, 30)} == {
        4: "new",
        5: "merged",
        20: "merged",
        30: "late",
    }
    assert sorted(row.n for row in table.read(spark=spark).collect()) == expected


def test_keyed_loads_of_spark_outlive_their_tokens(spark: SparkSession, tmp_path: Path, server: TokenCatalog) -> None:
    words = {"catalog": connect(server), "engine": "spark", "spark": spark, "key": ["n"], "sequence_by": "at"}
    first = put(tmp_path, "1.jsonl", *({"n": n, "at": 1, "op": "u"} for n in range(4)))
    second = put(tmp_path, "2.jsonl", {"n": 1, "at": 2, "op": "u"}, {"n": 2, "at": 2, "op": "d"})
    for source in (first, second, second):
        done = widen.ingest(source, NAME, delete_when="op = 'd'", verify=True, **words)
        assert done.verification is not None
        assert done.verification.is_clean
    assert [(row["n"], row["at"]) for row in rows(server)] == [(0, 1), (1, 2), (3, 1)]


def test_a_stream_of_spark_outlives_its_tokens(spark: SparkSession, tmp_path: Path, server: TokenCatalog) -> None:
    done = stream_twice(spark, tmp_path, connect(server))
    assert [each.records for each in done] == [2, 2]
    assert numbers(server) == [0, 1, 2, 3]


def test_tokens_of_a_delta_table_are_replaced_in_one_session(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop keeps a client for each bucket, with the credentials that it got first."""
    clock = Clock(tmp_path / "fast")
    with s3_server(clock=clock.file) as options:
        place, store = f"s3://{BUCKET}/lake/tokens", {**options, "AWS_SESSION_TOKEN": str(clock.time() + HOUR)}
        widen.create_table(place, "id int, k int", partition_by=["k"], storage_options=store)
        for number in range(3):
            store = {**options, "AWS_SESSION_TOKEN": str(clock.time() + HOUR)}
            table = widen.Table(place, store)
            table.append(spark.sql(f"SELECT {number} AS id, {number} % 2 AS k"))
            assert sorted(row.id for row in table.read(spark=spark).collect()) == [*range(number + 1)]
            assert [row.id for row in table.read(f"k = {number} % 2 AND id = {number}", spark=spark).collect()] == [
                number
            ]
            clock.advance(2 * HOUR)
