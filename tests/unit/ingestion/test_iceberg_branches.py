"""Ingestion into branches of Iceberg tables, without Spark. PyIceberg's scan judges the rows of each branch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import InvalidOption, TableNotFound, VersionNotFound
from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.targets import find_table

NAME = "shop.orders"


class Shop:
    """A table with one row in ``main``, and the branch ``audit`` of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.catalog = embedded_catalog(place)
        self.words: dict[str, Any] = {"catalog": place / "catalog.db", "engine": "local"}
        ingest(self.file({"n": 1}), NAME, new=True, txn=("loader", 1), **self.words)
        self.table.create_branch("audit")

    def file(self, *records: dict[str, Any]) -> str:
        number = len(list(self.place.glob("*.jsonl")))
        path = self.place / f"{number}.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return str(path)

    @property
    def table(self) -> widen.IcebergTable:
        return widen.IcebergTable(NAME, self.words["catalog"])

    @property
    def audit(self) -> widen.IcebergTable:
        return widen.IcebergTable(NAME, self.words["catalog"], branch="audit")

    def numbers(self, branch: str = "main") -> list[int]:
        scan = self.catalog.load_table(NAME).scan().use_ref(branch)
        return sorted(row["n"] for row in scan.to_arrow().to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_rows_and_columns(shop: Shop) -> None:
    second = shop.file({"n": 2**40, "a": "x"}, {"n": 3})
    done = ingest(second, NAME, branch="audit", verify=True, **shop.words)
    assert done.verification is not None
    assert done.verification.is_clean
    assert shop.numbers("audit") == [1, 3, 2**40]
    assert shop.numbers() == [1]
    assert shop.table.schema.names == ("n", "a")
    assert next(each.version for each in shop.audit.history()) == done.version
    # The next load of the main branch knows the columns, but not the rows.
    ingest(shop.file({"n": 4, "a": 5}), NAME, **shop.words)
    assert shop.numbers() == [1, 4]
    assert shop.catalog.load_table(NAME).scan("n = 4").to_arrow()["a"].to_pylist() == ["5"]


def test_each_branch_knows_what_it_has_loaded(shop: Shop) -> None:
    second = shop.file({"n": 2})
    assert ingest(second, NAME, branch="audit", new=True, txn=("loader", 2), **shop.words).is_repeated is False
    assert ingest(second, NAME, branch="audit", txn=("loader", 2), **shop.words).is_repeated
    assert ingest(second, NAME, branch="audit", new=True, **shop.words).is_unchanged
    assert ingest(shop.file({"n": 1}), NAME, branch="audit", txn=("loader", 1), **shop.words).is_repeated
    assert [load.version for load in shop.audit.loads()] != [load.version for load in shop.table.loads()]
    assert [len(each.loads()) for each in (shop.audit, shop.table)] == [2, 1]
    # The main branch has not loaded it, and its own loads forget nothing of the branch.
    third = shop.file({"n": 3})
    ingest(third, NAME, new=True, txn=("loader", 3), **shop.words)
    assert ingest(second, NAME, branch="audit", new=True, **shop.words).is_unchanged
    assert ingest(third, NAME, branch="audit", txn=("loader", 3), **shop.words).is_repeated is False
    ingest(second, NAME, new=True, **shop.words)
    assert (shop.numbers(), shop.numbers("audit")) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.parametrize("who", ["widen", "other"])
def test_a_published_branch_is_loaded_in_the_main_branch(shop: Shop, who: str) -> None:
    second = shop.file({"n": 2})
    ingest(second, NAME, branch="audit", new=True, txn=("loader", 2), **shop.words)
    if who == "widen":
        shop.table.fast_forward("main", "audit").drop_branch("audit")
        assert [key for key in shop.table.properties if "audit" in key] == []
    else:
        table = shop.catalog.load_table(NAME)
        table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    assert shop.numbers() == [1, 2]
    assert ingest(second, NAME, txn=("loader", 2), **shop.words).is_repeated
    assert ingest(second, NAME, new=True, **shop.words).is_unchanged
    assert shop.numbers() == [1, 2]


def test_a_dropped_branch_leaves_no_mark(shop: Shop) -> None:
    second = shop.file({"n": 2})
    ingest(second, NAME, branch="audit", new=True, txn=("loader", 2), **shop.words)
    shop.table.drop_branch("audit").create_branch("audit")
    for branch in ("main", "audit"):
        assert not ingest(second, NAME, branch=branch, new=True, txn=("loader", 2), **shop.words).is_repeated
        assert shop.numbers(branch) == [1, 2]


def test_restoring_a_branch_leaves_the_others_alone(shop: Shop) -> None:
    before, second = shop.audit.version, shop.file({"n": 2})
    ingest(second, NAME, branch="audit", new=True, txn=("loader", 2), **shop.words)
    ingest(second, NAME, new=True, txn=("loader", 2), **shop.words)
    shop.audit.restore(before)
    assert (shop.numbers("audit"), shop.numbers()) == ([1], [1, 2])
    assert ingest(second, NAME, txn=("loader", 2), **shop.words).is_repeated
    assert not ingest(second, NAME, branch="audit", new=True, txn=("loader", 2), **shop.words).is_repeated
    assert shop.numbers("audit") == [1, 2]


def test_what_a_branch_does_not_take(shop: Shop) -> None:
    source = shop.file({"n": 2})
    target = find_table(NAME, catalog=shop.words["catalog"], branch="audit").open(Policy())
    with pytest.raises(InvalidOption, match="main branch only"):
        target.with_keys(KeyRules((("n",),)))
    with pytest.raises(VersionNotFound, match="branch later"):
        ingest(source, NAME, branch="later", **shop.words)
    with pytest.raises(TableNotFound):
        ingest(source, "shop.new", branch="audit", **shop.words)
    with pytest.raises(InvalidOption, match="Iceberg"):
        ingest(source, shop.place / "delta", branch="audit")
    assert shop.numbers("audit") == [1]
