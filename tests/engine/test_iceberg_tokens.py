"""Changes of rows and files of Iceberg tables, and streams, while the tokens of the catalog expire between their steps.

The files are in a folder, so Spark needs no client of S3; `tests/s3/test_tokens.py` has credentials that expire too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

import widen
from support.token_catalog import HOUR, Clock, TokenCatalog, token_catalog
from unit.iceberg.test_tokens import AUTHS, NAME, connect, rows, stream_twice
from unit.ingestion.test_local_stream import put
from widen.changes import iceberg_apply, iceberg_changes, iceberg_compact, iceberg_write
from widen.errors import CatalogRefused
from widen.frames import iceberg_scan
from widen.iceberg import expiry
from widen.iceberg.table_commit import IcebergTransaction
from widen.targets.iceberg import IcebergDraft

STEPS: tuple[tuple[Any, str], ...] = (
    (IcebergDraft, "write"),
    (IcebergDraft, "commit"),
    (IcebergTransaction, "add_snapshot"),
    (IcebergTransaction, "commit"),
    (iceberg_apply, "read_iceberg_files"),
    (iceberg_changes, "open_iceberg_writer"),
    (iceberg_compact, "open_iceberg_writer"),
    (iceberg_scan, "plan_scan"),
    (iceberg_write, "open_iceberg_writer"),
    (expiry, "run_expiry"),
)
"""Before each of them goes by more time than tokens last."""


@pytest.fixture
def late() -> list[str]:
    """The steps before which tokens expired."""
    return []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: list[str]) -> Iterator[TokenCatalog]:
    clock = Clock(tmp_path / "fast")
    clock.set(monkeypatch)

    def after_hours(step: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(step)
        def waits(*words: Any, **more: Any) -> Any:
            clock.advance(2 * HOUR)
            late.append(name)
            return step(*words, **more)

        return waits

    with token_catalog(tmp_path, clock) as server:
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, after_hours(getattr(owner, name), name))
        yield server


def table_of(spark: SparkSession, folder: Path, catalog: RestCatalog, records: int = 9) -> widen.IcebergTable:
    source = put(folder, "first.jsonl", *({"n": n, "f": "old"} for n in range(records)))
    widen.ingest(source, NAME, catalog=catalog, engine="spark", spark=spark)
    return widen.IcebergTable(NAME, catalog)


def merge(table: widen.IcebergTable, spark: SparkSession) -> object:
    source = spark.sql("SELECT CAST(id AS int) AS n, 'merged' AS f FROM range(5, 21, 15)")
    return table.merge(source, "t.n = s.n").when_matched_update_all().when_not_matched_insert_all().execute()


CHANGES: dict[str, tuple[Callable[[widen.IcebergTable, SparkSession], Any], dict[int, str | None]]] = {
    "delete": (lambda t, spark: t.delete("n = 3", spark=spark), {3: None}),
    "delete all": (lambda t, spark: t.delete(spark=spark), dict.fromkeys(range(9))),
    "update": (lambda t, spark: t.update({"f": "'new'"}, "n = 4", spark=spark), {4: "new"}),
    "merge": (merge, {5: "merged", 20: "merged"}),
    "overwrite": (lambda t, spark: t.overwrite(spark.sql("SELECT 8 n, 'o' f"), where="n > 6"), {7: None, 8: "o"}),
    "append": (lambda t, spark: t.append(spark.sql("SELECT 30 AS n, 'late' AS f")), {30: "late"}),
}
"""Changes, and what becomes of rows."""


@pytest.mark.parametrize(("name", "auth"), [*zip(CHANGES, cycle(AUTHS), strict=False)])
def test_a_change_of_rows_outlives_its_token(
    spark: SparkSession, tmp_path: Path, server: TokenCatalog, late: list[str], name: str, auth: str
) -> None:
    table = table_of(spark, tmp_path, connect(server, auth))
    change, expected = CHANGES[name]
    given, late[:] = server.tokens.given, []
    change(table, spark)
    left = {n: expected.get(n, "old") for n in {*range(9), *expected}}
    assert [(row["n"], row["f"]) for row in rows(server)] == [(n, left[n]) for n in sorted(left) if left[n] is not None]
    assert {"add_snapshot", "commit"} <= {*late}
    assert server.tokens.given > given


@pytest.mark.parametrize("most_rows", [None, 0])
def test_rows_that_spark_writes_outlive_their_token(
    spark: SparkSession, tmp_path: Path, server: TokenCatalog, monkeypatch: pytest.MonkeyPatch, most_rows: int | None
) -> None:
    """With Arrow in this process, and with Spark where there are too many rows for it."""
    if most_rows is not None:
        monkeypatch.setattr(iceberg_apply, "hold_rows", lambda *_, **__: None)
    table = table_of(spark, tmp_path, connect(server))
    table.update({"f": "'new'"}, "n < 5", spark=spark)
    merge(table, spark)
    found = {row["n"]: row["f"] for row in rows(server)}
    assert found == {n: "new" if n < 5 else "merged" if n in (5, 20) else "old" for n in (*range(9), 20)}


def test_maintenance_outlives_its_token(spark: SparkSession, tmp_path: Path, server: TokenCatalog) -> None:
    table = table_of(spark, tmp_path, connect(server))
    for number in range(3):
        table.append(spark.sql(f"SELECT {20 + number} AS n, 'late' AS f"))
    good = table.version
    for change in (
        lambda: table.optimize(spark=spark),
        lambda: table.change_partitioning(add=["bucket(2, n)"]).rewrite(spark=spark),
        lambda: table.delete("n = 1", spark=spark),
        lambda: table.restore(good),
        lambda: table.vacuum(0, keep_last=1, force=True),
    ):
        server.tokens.clock.advance(2 * HOUR)
        given = server.tokens.given
        change()
        assert server.tokens.given > given
        table.refresh()
    assert [row["n"] for row in rows(server)] == [*range(9), 20, 21, 22]
    assert sorted(row.n for row in table.read(spark=spark).collect()) == [*range(9), 20, 21, 22]


def test_a_stream_of_spark_outlives_its_tokens(
    spark: SparkSession, tmp_path: Path, server: TokenCatalog, late: list[str]
) -> None:
    done = stream_twice(spark, tmp_path, connect(server))
    assert [each.records for each in done] == [2, 2]
    assert all(each.verification is not None and each.verification.is_clean for each in done)
    assert [row["n"] for row in rows(server)] == [0, 1, 2, 3]
    assert late.count("add_snapshot") == 2


@pytest.mark.parametrize("name", ["delete", "update", "merge"])
def test_a_change_without_a_token_commits_nothing(
    spark: SparkSession, tmp_path: Path, server: TokenCatalog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = table_of(spark, tmp_path, connect(server))
    before, commit = rows(server), RestCatalog.commit_table
    files = sorted((tmp_path / "warehouse").rglob("*.parquet"))

    def revoke(*words: Any) -> Any:
        server.credential = "revoked"
        server.tokens.forget()
        return commit(*words)

    monkeypatch.setattr(RestCatalog, "commit_table", revoke)
    with pytest.raises(CatalogRefused, match="Nothing was committed"):
        CHANGES[name][0](table, spark)
    assert rows(server) == before
    assert sorted((tmp_path / "warehouse").rglob("*.parquet")) == files
    monkeypatch.setattr(RestCatalog, "commit_table", commit)
    server.credential = "me:secret"
    CHANGES[name][0](widen.IcebergTable(NAME, connect(server)), spark)
    assert rows(server) != before
