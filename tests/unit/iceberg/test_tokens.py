"""Loads that outlive the tokens of their catalog, and the credentials that it vends for the files of a table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config

import widen
from support.command_line import run, run_json
from support.log_server import BUCKET, s3_server
from support.token_catalog import HOUR, Clock, TokenCatalog, token_catalog
from unit.ingestion.test_local_stream import put
from widen.errors import CatalogRefused
from widen.frames.table_writers import IcebergWriter
from widen.iceberg import expiry
from widen.iceberg.catalog import to_table_name
from widen.iceberg.table_commit import IcebergTransaction
from widen.targets.iceberg import IcebergDraft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "lake.shop.orders"
TOKEN = "s3.session-token"
AUTHS = ("credential", "refused with 419", "oauth2")
STEPS: tuple[tuple[Any, str], ...] = (
    (IcebergDraft, "write"),
    (IcebergDraft, "merge_by_key"),
    (IcebergDraft, "commit"),
    (IcebergWriter, "discard"),
    (IcebergTransaction, "add_snapshot"),
    (IcebergTransaction, "commit"),
    (expiry, "run_expiry"),
    (expiry, "_delete_files"),
)
"""Before each of them goes by more time than tokens and credentials last."""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock") / "fast")


@pytest.fixture(scope="module")
def store(clock: Clock) -> Iterator[dict[str, str]]:
    """Properties of a store in which nobody reads or writes with an expired token, and a token that lasts."""
    names = {"AWS_ENDPOINT_URL": "s3.endpoint", "AWS_REGION": "s3.region", "AWS_SESSION_TOKEN": TOKEN}
    names |= {"AWS_ACCESS_KEY_ID": "s3.access-key-id", "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key"}
    with s3_server(clock=clock.file) as options:
        yield {names[key]: value for key, value in options.items() if key in names}


@pytest.fixture
def server(
    tmp_path: Path, clock: Clock, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TokenCatalog]:
    clock.set(monkeypatch)
    with token_catalog(tmp_path, clock, warehouse=f"s3://{BUCKET}/{tmp_path.name}", **store) as server:

        def vend() -> dict[str, str]:
            until = clock.time() + HOUR
            return {**store, TOKEN: str(until), f"{TOKEN}-expires-at-ms": str(int(until * 1000))}

        server.vends = vend
        yield server


def connect(server: TokenCatalog, auth: str = AUTHS[0]) -> RestCatalog:
    address = f"{server.address}/v1/oauth/tokens"
    server.refuses_with = 419 if "419" in auth else 401
    if auth != "oauth2":
        return RestCatalog("rest", uri=server.address, credential="me:secret", **{"oauth2-server-uri": address})
    words = {"client_id": "me", "client_secret": "secret", "token_url": address}
    return RestCatalog("rest", uri=server.address, auth={"type": "oauth2", "oauth2": words})


@pytest.fixture
def slow(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let more time go by between steps than tokens last; return the steps that were made."""
    made: list[str] = []

    def after_hours(step: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(step)
        def late(*words: Any, **more: Any) -> Any:
            clock.advance(2 * HOUR)
            made.append(name)
            return step(*words, **more)

        return late

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, after_hours(getattr(owner, name), name))
    return made


def rows(server: TokenCatalog) -> list[dict[str, Any]]:
    """What the table has, by the catalog behind the server."""
    found = server.tables.load_table(tuple(NAME.split("."))).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["n"])


def stream_twice(spark: SparkSession, place: Path, catalog: RestCatalog) -> list[widen.IngestResult]:
    """Return what two streams of Spark have done, which load two files each, with new fields, and prove them."""
    done: list[widen.IngestResult] = []
    for number in range(4):
        put(place / "in", f"{number}.jsonl", {"n": number, f"f{number}": "x"})
    words: dict[str, Any] = {
        "engine": "spark",
        "spark": spark,
        "once": True,
        "checkpoint": place / "cp",
        "max_files": 2,
    }
    for _ in range(2):
        stream = widen.ingest_stream(place / "in", NAME, catalog=catalog, on_interval=done.append, verify=True, **words)
        assert stream.wait()
    return done


@pytest.mark.parametrize("auth", AUTHS)
def test_loads_that_outlive_their_tokens_are_there_once(
    tmp_path: Path, server: TokenCatalog, slow: list[str], auth: str
) -> None:
    catalog = connect(server, auth)
    words = {"into": NAME, "catalog": catalog, "engine": "local"}
    for number in range(3):
        source = put(tmp_path / "in", f"{number}.jsonl", {"n": number, f"f{number}": "x"}, {"n": 10 + number})
        done = widen.ingest(source, verify=True, txn=("loader", number), **words)
        assert done.verification is not None
        assert done.verification.is_clean
        assert widen.ingest(source, txn=("loader", number), **words).is_repeated
    assert widen.ingest(tmp_path / "in", new=True, **words).is_unchanged
    assert [row["n"] for row in rows(server)] == [0, 1, 2, 10, 11, 12]
    assert {"write", "commit", "add_snapshot"} <= set(slow)
    assert server.tokens.given > len(slow) / 2


def test_keyed_loads_that_outlive_their_tokens_change_rows_once(
    tmp_path: Path, server: TokenCatalog, slow: list[str]
) -> None:
    catalog = connect(server)
    words = {"into": NAME, "catalog": catalog, "engine": "local", "key": ["n"], "sequence_by": "at"}
    words["delete_when"] = "op = 'd'"
    widen.ingest(put(tmp_path, "1.jsonl", *({"n": n, "at": 1, "op": "u"} for n in range(4))), **words)
    second = put(tmp_path, "2.jsonl", {"n": 1, "at": 2, "op": "u", "new": 7}, {"n": 2, "at": 2, "op": "d"})
    for _ in range(2):
        widen.ingest(second, **words)
    assert [(row["n"], row["at"]) for row in rows(server)] == [(0, 1), (1, 2), (3, 1)]
    assert "merge_by_key" in slow


def test_a_stream_that_outlives_its_tokens_loads_every_file_once(
    tmp_path: Path, server: TokenCatalog, slow: list[str]
) -> None:
    catalog = connect(server)
    for number in range(6):
        put(tmp_path / "in", f"{number}.jsonl", {"n": number})
    done: list[widen.IngestResult] = []
    words = {"engine": "local", "once": True, "checkpoint": tmp_path / "checkpoint", "max_files": 2}
    for _ in range(2):
        stream = widen.ingest_stream(
            tmp_path / "in", NAME, catalog=catalog, on_interval=done.append, verify=True, **words
        )
        assert stream.wait()
    assert [each.records for each in done] == [2, 2, 2]
    assert [row["n"] for row in rows(server)] == [*range(6)]
    assert slow.count("add_snapshot") == 3


def test_other_changes_outlive_their_tokens(
    tmp_path: Path, server: TokenCatalog, clock: Clock, slow: list[str]
) -> None:
    catalog = connect(server)
    first = put(tmp_path, "1.jsonl", {"n": 1})
    widen.ingest(first, NAME, catalog=catalog, engine="local")
    table = widen.IcebergTable(NAME, catalog)
    for change in (
        lambda: table.add_columns({"note": "string"}),
        lambda: table.create_branch("audit"),
        lambda: widen.ingest(put(tmp_path, "2.jsonl", {"n": 2}), NAME, catalog=catalog, engine="local", branch="audit"),
        lambda: table.refresh().fast_forward("main", "audit"),
        lambda: table.drop_branch("audit"),
        lambda: table.restore(table.history()[1].version),
        lambda: table.vacuum(0, keep_last=1, force=True),
    ):
        clock.advance(2 * HOUR)
        change()
    assert [row["n"] for row in rows(server)] == [1]
    assert "_delete_files" in slow


def test_a_token_that_lasts_is_used_again(tmp_path: Path, server: TokenCatalog) -> None:
    catalog = connect(server)
    widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), NAME, catalog=catalog, engine="local")
    tokens, loads = server.tokens.given, server.loads
    widen.ingest(put(tmp_path, "2.jsonl", {"n": 2}), NAME, catalog=catalog, engine="local")
    assert (server.tokens.given, server.loads) == (tokens, loads + 1)


def test_a_copy_for_a_task_has_no_credentials_of_the_catalog(tmp_path: Path, server: TokenCatalog) -> None:
    catalog = connect(server, "oauth2")  # its client has a lock, which cannot be copied
    widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), NAME, catalog=catalog, engine="local")
    io = to_table_name(NAME, catalog).load().io
    copy = pickle.loads(pickle.dumps(io))
    assert copy.properties == {key: value for key, value in io.properties.items() if key != "auth.manager"}
    assert float(copy.properties[TOKEN]) > 0


def test_credentials_that_the_catalog_cannot_renew_are_used_while_they_last(
    tmp_path: Path, server: TokenCatalog, clock: Clock
) -> None:
    catalog = connect(server)
    widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), NAME, catalog=catalog, engine="local")
    table = to_table_name(NAME, catalog).load()
    server.credential = "revoked"
    server.tokens.forget()
    clock.advance(HOUR - 60)
    assert table.scan().to_arrow().num_rows == 1
    clock.advance(120)
    with pytest.raises(CatalogRefused, match=r"shop\.orders"):
        table.scan().to_arrow()


@pytest.mark.parametrize("auth", AUTHS)
def test_a_commit_without_a_token_commits_nothing(
    tmp_path: Path, server: TokenCatalog, monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    catalog = connect(server, auth)
    words = {"into": NAME, "catalog": catalog, "engine": "local", "txn": ("loader", 2)}
    widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), **(words | {"txn": ("loader", 1)}))
    commit = RestCatalog.commit_table

    def revoke(*words: Any) -> Any:
        server.credential = "revoked"
        server.tokens.forget()
        return commit(*words)

    monkeypatch.setattr(RestCatalog, "commit_table", revoke)
    second = put(tmp_path, "2.jsonl", {"n": 2})
    with pytest.raises(CatalogRefused, match="Nothing was committed"):
        widen.ingest(second, **words)
    monkeypatch.setattr(RestCatalog, "commit_table", commit)
    server.credential = "me:secret"
    widen.ingest(second, **(words | {"catalog": connect(server, auth)}))
    assert [row["n"] for row in rows(server)] == [1, 2]


@pytest.mark.parametrize("asks", [{"s3.remote-signing-enabled": "true"}, {"s3.signer": "S3V4RestSigner"}])
def test_a_catalog_that_signs_requests_itself_is_refused_by_name(
    tmp_path: Path, server: TokenCatalog, asks: dict[str, str]
) -> None:
    catalog = connect(server)
    server.vends = lambda: asks
    with pytest.raises(CatalogRefused, match=r"signs each request to S3 itself \(remote signing\)"):
        widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), NAME, catalog=catalog, engine="local")
    with pytest.raises(CatalogRefused, match="remote signing"):
        widen.ingest(put(tmp_path, "1.jsonl", {"n": 1}), NAME, catalog=catalog, engine="local", key=["n"])
    assert not server.tables.table_exists(tuple(NAME.split(".")))


def test_commands_take_a_catalog_with_namespaces_of_several_levels(
    tmp_path: Path, server: TokenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{server.address}/v1/oauth/tokens"
    for key, value in {"URI": server.address, "CREDENTIAL": "me:secret", "OAUTH2_SERVER_URI": address}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    for number in range(2):
        source = str(put(tmp_path, f"{number}.jsonl", {"n": number, f"f{number}": "x"}))
        words = ("--into", NAME, "--catalog", "lake", "--to", "iceberg", "--new", "--engine", "local")
        assert run("ingest", source, *words).exit_code == 0
    assert [each["name"] for each in run_json("show", NAME, "--catalog", "lake")["columns"]] == ["f0", "n", "f1"]
    assert len(run_json("history", NAME, "--catalog", "lake")) == 2
    assert [row["n"] for row in rows(server)] == [0, 1]
    missing = run("show", "lake.nowhere.orders", "--catalog", "lake")
    assert "lake.nowhere.orders" in missing.stderr
