"""Loads of different files at the same time: each is tried again until it is committed, and none is refused."""

from __future__ import annotations

import itertools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

import widen
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.iceberg.catalog import to_table_name

WRITERS, ROUNDS = 4, 10 if os.environ.get("WIDEN_TEST_FAULTS") else 1
LOADS: dict[str, dict[str, Any]] = {
    "new": {"new": True},
    "key": {"key": ["id"]},
    "new and key": {"new": True, "key": ["id"]},
}


RACES = list(itertools.product(LOADS, ["delta", "iceberg"], [True, False]))
SOME = RACES if ROUNDS > 1 else [RACES[at] for at in (0, 3, 5, 6, 8, 11)]
"""Each load into a table of each format, of which half are new ones."""


@pytest.mark.parametrize(
    ("load", "kind", "is_first"), RACES if ROUNDS > 1 else [RACES[at] for at in (0, 3, 5, 6, 8, 11)]
)
def test_no_load_is_refused_because_of_the_others(tmp_path: Path, kind: str, load: str, *, is_first: bool) -> None:
    for number in range(ROUNDS):
        race(tmp_path / str(number), kind, LOADS[load], is_first=is_first)


def race(place: Path, kind: str, words: dict[str, Any], *, is_first: bool) -> None:
    """Load as many folders as there are writers at once, each with a column of its own and a record without a key."""
    target = "shop.t" if kind == "iceberg" else str(place / "t")
    words = {**words, "engine": "local"} | ({"catalog": place / "catalog.db"} if kind == "iceberg" else {})
    start = threading.Barrier(WRITERS)

    def load(number: int, *, waits: bool = True) -> widen.IngestResult:
        file = place / f"in{number}" / "x.jsonl"
        file.parent.mkdir(parents=True)
        records = [{"id": 10 * number + each, f"c{number}": 1} for each in range(3)]
        file.write_text("".join(json.dumps(each) + "\n" for each in [*records, {"note": number}]))
        if waits:
            start.wait()
        return ingest(str(file.parent), target, **words)

    if kind == "delta":  # deltalake cannot read tables with type widening
        widen.create_table(target, "id bigint")
    numbers = list(range(WRITERS))
    if not is_first:
        load(WRITERS, waits=False)
        numbers.append(WRITERS)
    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(load, range(WRITERS)))
    assert sum(each.records for each in results) >= 3 * WRITERS

    def column(name: str, suffix: str = "") -> list[Any]:
        if kind == "iceberg":
            return embedded_catalog(place).load_table(target + suffix).scan().to_arrow()[name].to_pylist()
        return DeltaTable(target + suffix).to_pyarrow_table()[name].to_pylist()

    ids = [10 * number + each for number in numbers for each in range(3)]
    assert sorted(each for each in column("id") if each is not None) == ids
    if "key" in words:
        assert sorted(column("text", "_quarantine")) == sorted(f'{{"note": {number}}}' for number in numbers)


def test_a_catalog_that_two_processes_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg looks whether the tables exist, and then creates them: the other process was faster here."""
    create = SqlCatalog.create_tables

    def create_late(catalog: SqlCatalog) -> None:
        monkeypatch.setattr(SqlCatalog, "create_tables", create)
        create(catalog)
        SqlCatalogBaseTable.metadata.create_all(catalog.engine, checkfirst=False)

    monkeypatch.setattr(SqlCatalog, "create_tables", create_late)
    assert to_table_name("shop.t", tmp_path / "catalog.db").find() is None


def test_a_namespace_that_two_processes_create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, create = to_table_name("shop.t", tmp_path / "catalog.db"), SqlCatalog.create_namespace

    def create_late(catalog: SqlCatalog, namespace: Any, *arguments: Any) -> None:
        create(catalog, namespace, *arguments)  # the other process
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "namespace_exists", lambda *_: False)
            create(catalog, namespace, *arguments)

    monkeypatch.setattr(SqlCatalog, "create_namespace", create_late)
    name.create_namespace()
    assert name.catalog.open().namespace_exists("shop")
