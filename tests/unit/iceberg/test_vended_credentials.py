"""Credentials that a catalog vends for a while: the catalog is asked again before a commit, and no more than needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from support.iceberg_files import embedded_catalog
from unit.iceberg.test_commit import SCHEMA, STATS, append
from widen.errors import CatalogRefused
from widen.iceberg import catalog
from widen.iceberg.catalog import TableName, to_table_name
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.table_commit import IcebergTransaction, NewTable, open_transaction
from widen.log.commit_outcome import StagedFiles

HOUR_MS = 3_600_000
EXPIRES = "s3.session-token-expires-at-ms"


class Clock:
    """The time of the store."""

    now_ms = 0
    """The moment until which a token that expires earlier is refused."""


class TokenIO(PyArrowFileIO):
    """Files that need a token which has not expired."""

    def new_output(self, location: str) -> Any:
        if int(self.properties["s3.session-token"]) < Clock.now_ms:
            raise PermissionError("ExpiredToken: the token has expired")
        return super().new_output(location)


class VendingCatalog(SqlCatalog):
    """A catalog that vends a token with each table; the token is the time at which it expires."""

    loads, says_when, lasts_ms = 0, True, HOUR_MS

    def load_table(self, identifier: Any) -> Table:
        table, until = super().load_table(identifier), str(Clock.now_ms + self.lasts_ms)
        type(self).loads += 1
        vended = {"s3.session-token": until} | ({EXPIRES: until} if self.says_when else {})
        table.io = TokenIO({**table.io.properties, **vended})
        return table


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableName:
    """A table of the catalog, with one snapshot."""
    monkeypatch.setattr(Clock, "now_ms", int(time.time() * 1000))
    monkeypatch.setattr(VendingCatalog, "says_when", True)
    embedded_catalog(tmp_path)
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/catalog_warehouse"
    append(to_table_name("shop.orders", SqlCatalog("default", uri=uri, warehouse=warehouse)), NewTable(SCHEMA))
    monkeypatch.setattr(VendingCatalog, "loads", 0)
    return to_table_name("shop.orders", VendingCatalog("default", uri=uri, warehouse=warehouse))


def commit(transaction: IcebergTransaction) -> int:
    transaction.add_snapshot([IcebergFile("job/part-2.parquet", 700, STATS)], {})
    version = transaction.commit(StagedFiles())
    assert isinstance(version, int)
    return version


@pytest.mark.parametrize("says_when", [True, False])
def test_a_job_that_outlives_its_token_commits(
    name: TableName, monkeypatch: pytest.MonkeyPatch, says_when: bool
) -> None:
    monkeypatch.setattr(VendingCatalog, "says_when", says_when)
    transaction = open_transaction(name, name.load(), ())
    let_hours_go_by(monkeypatch)
    version = commit(transaction)
    assert name.load().metadata.current_snapshot_id == version


def let_hours_go_by(monkeypatch: pytest.MonkeyPatch) -> None:
    later_ms = 2 * HOUR_MS
    monkeypatch.setattr(Clock, "now_ms", Clock.now_ms + later_ms)
    for each, clock in {"time": time.time, "monotonic": time.monotonic}.items():
        monkeypatch.setattr(catalog, each, lambda clock=clock: clock() + later_ms / 1000)


def test_a_token_that_expires_before_it_says_so_is_refused(name: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = open_transaction(name, name.load(), ())
    monkeypatch.setattr(Clock, "now_ms", Clock.now_ms + 2 * HOUR_MS)
    with pytest.raises(CatalogRefused, match="ExpiredToken"):
        commit(transaction)


def test_a_token_that_lasts_is_used_again(name: TableName) -> None:
    transaction = open_transaction(name, name.load(), ())
    before = VendingCatalog.loads
    transaction.add_snapshot([IcebergFile("job/part-2.parquet", 700, STATS)], {})
    assert VendingCatalog.loads == before


def test_a_commit_of_another_writer_is_still_a_conflict(name: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = open_transaction(name, name.load(), ())
    commit(open_transaction(name, name.load(), ()))
    let_hours_go_by(monkeypatch)
    transaction.add_snapshot([IcebergFile("job/part-3.parquet", 700, STATS)], {})
    assert not isinstance(transaction.commit(StagedFiles()), int)
    assert len(name.load().snapshots()) == 2
