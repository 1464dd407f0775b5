"""Branches of Iceberg tables in what needs Spark: streams, the quarantine, and SQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_ingest import write_lines
from support.command_line import run
from support.iceberg_files import embedded_catalog
from widen import ingest, ingest_stream, replay
from widen.errors import InvalidOption

NAME = "shop.orders"


class Shop:
    """A table with one row in ``main``, and the branch ``audit`` of it."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.place, self.catalog, self.words = (
            place,
            embedded_catalog(place),
            {"catalog": place / "catalog.db", "spark": spark},
        )
        ingest(write_lines(place / "1.jsonl", [{"n": 1}]), NAME, **self.words)
        widen.IcebergTable(NAME, place / "catalog.db").create_branch("audit")

    def numbers(self, branch: str = "main") -> list[int]:
        scan = self.catalog.load_table(NAME).scan().use_ref(branch)
        return sorted(row["n"] for row in scan.to_arrow().to_pylist())


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def test_a_stream_into_a_branch(shop: Shop) -> None:
    folder = shop.place / "in"
    folder.mkdir()
    for number in (2, 3):
        write_lines(folder / f"{number}.jsonl", [{"n": number}])
        words = {"branch": "audit", "once": True, **shop.words}
        ingest_stream(str(folder), NAME, checkpoint=str(shop.place / "c"), **words).wait()
    assert (shop.numbers("audit"), shop.numbers()) == ([1, 2, 3], [1])


def test_the_quarantine_of_a_branch(spark: SparkSession, tmp_path: Path) -> None:
    place = {"catalog": tmp_path / "catalog.db", "spark": spark}
    source = str(write_lines(tmp_path / "1.jsonl", [{"k": 1, "n": 1}]))
    ingest(source, NAME, partition_by=["k"], **place)
    widen.IcebergTable(NAME, place["catalog"]).create_branch("audit")
    other = str(write_lines(tmp_path / "2.jsonl", [{"k": "x", "n": 2}, {"k": 2, "n": 3}]))
    done = ingest(other, NAME, branch="audit", verify=True, **place)
    assert (done.quarantined, done.quarantine) == (1, "shop.orders_quarantine_audit")
    assert replay(done.quarantine, NAME, branch="audit", **place).left == 1


def test_the_command_and_sql(shop: Shop) -> None:
    place = str(shop.words["catalog"])
    run(
        "ingest",
        write_lines(shop.place / "2.jsonl", [{"n": 2}]),
        "--into",
        NAME,
        "--catalog",
        place,
        "--branch",
        "audit",
    )
    widen.sql(f"INSERT INTO {NAME}.branch_audit VALUES (3)", **shop.words)
    widen.sql(f"DELETE FROM {NAME}.branch_audit WHERE n = 1", **shop.words)
    assert (shop.numbers("audit"), shop.numbers()) == ([2, 3], [1])
    found = widen.sql(f"SELECT max(n) AS n FROM {NAME}.branch_audit", **shop.words)
    assert found.collect()[0].n == 3


def test_a_fold_changes_the_whole_table(shop: Shop) -> None:
    audit = widen.IcebergTable(NAME, shop.words["catalog"], branch="audit")
    with pytest.raises(InvalidOption, match="the main branch"):
        audit.fold("n")
