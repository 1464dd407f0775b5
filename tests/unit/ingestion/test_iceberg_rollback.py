"""Batches that are repeated after another client has moved an Iceberg table back to an older snapshot, without Spark.

PyIceberg moves the table back, and its scan judges the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

import widen
from support.iceberg_files import embedded_catalog
from widen import ingest

NAME = "shop.orders"


class Shop:
    """A table into which the application ``loader`` has loaded the batches 1 to 3, with their numbers as rows."""

    def __init__(self, place: Path) -> None:
        self.place, self.catalog = place, embedded_catalog(place)
        self.versions = [self.load(number).version for number in (1, 2, 3)]

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def load(self, number: int, *, app: str = "loader", **words: Any) -> widen.IngestResult:
        path = self.place / f"{number}.jsonl"
        path.write_text(json.dumps({"n": number}) + "\n")
        txn = (app, number)
        return ingest(str(path), NAME, catalog=self.place / "catalog.db", engine="local", txn=txn, **words)

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.table.scan().to_arrow().to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def move_back(shop: Shop) -> None:
    shop.table.manage_snapshots().rollback_to_snapshot(shop.versions[0]).commit()


def move_back_and_expire(shop: Shop) -> None:
    move_back(shop)
    shop.table.maintenance.expire_snapshots().by_ids(shop.versions[1:]).commit()


def move_back_and_write_elsewhere(shop: Shop) -> None:
    """Every snapshot of the application has expired: only older metadata files know what came before what."""
    move_back(shop)
    shop.load(10, app="other")
    last = shop.load(11, app="other").version
    gone = [each.snapshot_id for each in shop.table.snapshots() if each.snapshot_id != last]
    shop.table.maintenance.expire_snapshots().by_ids(gone).commit()


def move_back_by_restore(shop: Shop) -> None:
    widen.IcebergTable(NAME, shop.place / "catalog.db").restore(shop.versions[0])


@pytest.mark.parametrize(
    "go_back", [move_back, move_back_and_expire, move_back_and_write_elsewhere, move_back_by_restore]
)
def test_a_batch_that_was_rolled_back_is_loaded_again(shop: Shop, go_back: Callable[[Shop], None]) -> None:
    go_back(shop)
    kept = shop.numbers()
    assert shop.load(1).is_repeated
    assert not shop.load(2).is_repeated
    assert shop.load(2).is_repeated
    assert not shop.load(3).is_repeated
    assert shop.numbers() == sorted([*kept, 2, 3])


def expire(shop: Shop) -> None:
    gone = [each.snapshot_id for each in shop.table.snapshots()][:-1]
    shop.table.maintenance.expire_snapshots().by_ids(gone).commit()


def drop_older_metadata(shop: Shop) -> None:
    expire(shop)
    for entry in shop.table.metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()


@pytest.mark.parametrize("later", [expire, drop_older_metadata])
def test_a_batch_whose_snapshot_has_expired_is_not_loaded_again(shop: Shop, later: Callable[[Shop], None]) -> None:
    shop.load(10, app="other")
    later(shop)
    assert all(shop.load(number).is_repeated for number in (1, 2, 3))
    assert shop.numbers() == [1, 2, 3, 10]


def test_a_batch_counts_again_when_the_table_moves_forward_again(shop: Shop) -> None:
    move_back(shop)
    shop.table.manage_snapshots().set_current_snapshot(snapshot_id=shop.versions[2]).commit()
    assert all(shop.load(number).is_repeated for number in (1, 2, 3))
    assert shop.numbers() == [1, 2, 3]


def test_records_of_a_quarantine_that_was_rolled_back_are_quarantined_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    bad = tmp_path / "bad.jsonl"
    words: dict[str, Any] = {"catalog": tmp_path / "catalog.db", "engine": "local", "key": ["id"]}
    for number in (1, 2):
        bad.write_text(json.dumps({"id": number}) + "\n" + json.dumps({"v": number}) + "\n")
        ingest(str(bad), "shop.keyed", txn=("loader", number), **words)
    for name in ("shop.keyed", "shop.keyed_quarantine"):
        table = shop.catalog.load_table(name)
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert not ingest(str(bad), "shop.keyed", txn=("loader", 2), **words).is_repeated
    kept = shop.catalog.load_table("shop.keyed_quarantine").scan().to_arrow()["text"].to_pylist()
    assert sorted(kept) == ['{"v": 1}', '{"v": 2}']
