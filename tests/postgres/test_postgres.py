"""Iceberg tables in a catalog of PostgreSQL: intervals, races of writers, and a server that goes away in a commit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Transaction

import widen
from widen import ingest
from widen.errors import CatalogError, IcebergTableNotFound, SnapshotUnknown

PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
USER = "postgres"


class Server:
    """A server on loopback. It does not run as root, so its folder belongs to the user of Debian's package."""

    def __init__(self, folder: Path) -> None:
        if PROGRAMS is None:
            pytest.fail("PostgreSQL is not here: install Debian's package postgresql.")
        self.folder, self.data, self.port = folder, folder / "data", _free_port()
        if os.geteuid() == 0:
            shutil.chown(folder, USER, USER)
        self.run("initdb", "-D", str(self.data), "-U", USER, "--auth=trust", "--no-sync")
        self.start()
        self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "lake")

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/lake"

    def run(self, program: str, *words: str) -> None:
        assert PROGRAMS is not None
        command = [str(PROGRAMS / program), *words]
        who = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        # The server that pg_ctl starts inherits the output, so it goes to a file.
        with (self.folder / "log.txt").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd="/", timeout=60, **who)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -F"
        self.run("pg_ctl", "-D", str(self.data), "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop the server as a crash does: what is not committed is lost."""
        self.run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = Path(os.path.realpath("/tmp")) / f"widen-postgres-{os.getpid()}"
    folder.mkdir()
    try:
        running = Server(folder)
        yield running
        running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Lake:
    """The catalog, and sources for it."""

    def __init__(self, server: Server, place: Path, name: str) -> None:
        self.server, self.place, self.name = server, place, name
        self.warehouse = (place / "warehouse").as_uri()

    @property
    def catalog(self) -> SqlCatalog:
        """The catalog, opened by another client than before."""
        return SqlCatalog("lake", uri=self.server.uri, warehouse=self.warehouse)

    def load(self, *records: dict[str, Any], **words: Any) -> widen.IngestResult:
        path = self.place / f"{words.get('txn', ('', len(list(self.place.glob('*.jsonl')))))[1]}.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return ingest(str(path), self.name, catalog=self.catalog, engine="local", **words)

    def rows(self) -> list[dict[str, Any]]:
        found = self.catalog.load_table(self.name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["n"])


@pytest.fixture
def lake(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return Lake(server, tmp_path, f"shop.{request.node.name}")


def test_intervals(lake: Lake) -> None:
    first = lake.load({"n": 1, "a": 1}, verify=True, new=True, txn=("loader", 1))
    second = lake.load({"n": 2**40, "a": {"b": "x"}}, verify=True, new=True, txn=("loader", 2))
    for done in (first, second):
        assert done.verification is not None
        assert done.verification.is_clean
    assert lake.load({"n": 2**40, "a": {"b": "x"}}, txn=("loader", 2)).is_repeated
    assert lake.rows() == [
        {"n": 1, "a": 1, "a_record": None},
        {"n": 2**40, "a": None, "a_record": {"b": "x"}},
    ]
    table = widen.IcebergTable(lake.name, lake.catalog)
    assert [each.version for each in table.history()] == [second.version, first.version]
    table.rename_column("a", "b").create_tag("before")
    table.restore(first.version)
    assert [row["n"] for row in lake.rows()] == [1]


def test_namespaces_of_several_levels(server: Server, tmp_path: Path) -> None:
    lake = Lake(server, tmp_path, "eu.shop.sales.orders")
    for number in (1, 2):
        lake.load({"n": number}, verify=True)
    assert [row["n"] for row in lake.rows()] == [1, 2]
    with pytest.raises(IcebergTableNotFound):
        widen.IcebergTable("eu.shop.orders", lake.catalog)


def test_writers_that_race(lake: Lake) -> None:
    lake.load({"n": 0}, txn=("first", 0))
    count = 12

    def run(number: int) -> None:
        lake.load({"n": number, f"f{number % 3}": number}, txn=(f"loader{number}", number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(1, count + 1)))
    assert [row["n"] for row in lake.rows()] == list(range(count + 1))
    assert len(lake.catalog.load_table(lake.name).snapshots()) == count + 1


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_server_that_goes_away_in_a_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, is_executed: bool) -> None:
    """What the client is not told is unknown: no file is deleted, and to repeat the call writes each record once."""
    lake.load({"n": 1}, txn=("loader", 1))
    commit, opened = Transaction.commit_transaction, lake.catalog

    def crash(transaction: Transaction) -> Any:
        done = commit(transaction) if is_executed else None
        lake.server.stop()
        if done is not None:
            raise ConnectionError("the server closed the connection unexpectedly")
        return commit(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", crash)
    with pytest.raises(SnapshotUnknown, match="Its files are kept"):
        lake.load({"n": 2}, txn=("loader", 2))
    monkeypatch.undo()
    with pytest.raises(CatalogError, match="Check the address"):
        widen.IcebergTable(lake.name, opened)
    lake.server.start()
    assert [row["n"] for row in lake.rows()] == ([1, 2] if is_executed else [1])
    assert lake.load({"n": 2}, txn=("loader", 2)).is_repeated is is_executed
    assert [row["n"] for row in lake.rows()] == [1, 2]
