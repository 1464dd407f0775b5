"""A load of new files that is killed between its two commits leaves no record twice in the quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergCatalogTable
from pyspark.sql import SparkSession

from widen import ingest
from widen.errors import StorageRefused
from widen.iceberg.table_commit import IcebergTransaction
from widen.log.commit_outcome import StagedFiles
from widen.log.log_store import LogStore
from widen.table import Table, create_table
from widen.targets.delta_quarantine import DeltaQuarantineWrite
from widen.targets.iceberg_quarantine import IcebergQuarantineWrite


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Path:
    table = create_table(str(tmp_path / "t"), "n int, amount int", properties={"delta.enableTypeWidening": "true"})
    table.add_constraint("positive", "amount > 0", spark=spark)
    (tmp_path / "landing").mkdir()
    write(tmp_path, "a", (1, 5), (2, -5))
    return tmp_path


def write(place: Path, name: str, *rows: tuple[int, int | str]) -> None:
    lines = [json.dumps({"n": n, "amount": amount}) + "\n" for n, amount in rows]
    (place / "landing" / f"{name}.jsonl").write_text("".join(lines))


def load(spark: SparkSession, place: Path) -> None:
    ingest(str(place / "landing"), str(place / "t"), new=True, spark=spark)


def load_and_be_killed(spark: SparkSession, place: Path) -> None:
    """End a load before its commit to the table, without anything that a living process does then."""
    put = LogStore.put_if_absent

    def refuse(store: LogStore, path: str, data: bytes) -> bool:
        if store.location.endswith("/t") and path.endswith(".json"):
            raise StorageRefused(location=path, reason="killed", fix="")
        return put(store, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaQuarantineWrite, "undo", lambda _: None)
        patch.setattr(LogStore, "put_if_absent", refuse)
        with pytest.raises(StorageRefused):
            load(spark, place)


def numbers(spark: SparkSession, place: Path, name: str) -> list[int]:
    rows = Table(str(place / name)).read(spark=spark)
    if name == "t":
        return sorted(row.n for row in rows.collect())
    return sorted(json.loads(row.text)["n"] for row in rows.collect())


def test_the_next_load_replaces_the_records_of_one_that_was_killed(spark: SparkSession, place: Path) -> None:
    load_and_be_killed(spark, place)
    assert numbers(spark, place, "t_quarantine") == [2]
    write(place, "b", (3, 7), (4, -7))  # more files arrive before the next load
    load(spark, place)
    assert numbers(spark, place, "t") == [1, 3]
    assert numbers(spark, place, "t_quarantine") == [2, 4]
    write(place, "c", (5, -9))
    load_and_be_killed(spark, place)
    Table(str(place / "t")).drop_constraint("positive")  # now the table holds every record
    load(spark, place)
    assert numbers(spark, place, "t") == [1, 3, 5]
    assert numbers(spark, place, "t_quarantine") == [2, 4]


def test_a_load_that_loses_to_the_one_it_took_for_killed_gives_its_records_back(
    spark: SparkSession, place: Path
) -> None:
    load_and_be_killed(spark, place)
    put = LogStore.put_if_absent

    def refuse(store: LogStore, path: str, data: bytes) -> bool:
        if store.location.endswith("/t") and path.endswith(".json"):
            raise StorageRefused(location=path, reason="the store refused", fix="")
        return put(store, path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogStore, "put_if_absent", refuse)
        with pytest.raises(StorageRefused):
            load(spark, place)
    assert numbers(spark, place, "t_quarantine") == [2]


# ---- Iceberg --------------------------------------------------------------------------------------


@pytest.fixture
def iceberg(spark: SparkSession, tmp_path: Path) -> Path:
    """A table partitioned by ``amount``, an integer: texts of it go to the quarantine."""
    (tmp_path / "landing").mkdir()
    write(tmp_path, "first", (0, 5))
    options: dict[str, Any] = {"catalog": tmp_path / "catalog.db", "spark": spark}
    ingest(str(tmp_path / "landing"), "shop.t", partition_by=["amount"], **options)
    write(tmp_path, "a", (1, 5), (2, "x"))
    return tmp_path


def load_iceberg(spark: SparkSession, place: Path) -> None:
    ingest(str(place / "landing"), "shop.t", catalog=place / "catalog.db", new=True, evolve="freeze", spark=spark)


def lose_iceberg(spark: SparkSession, place: Path, *, is_killed: bool) -> None:
    """End a load before its commit to the table: killed, or refused by the catalog."""
    commit = IcebergTransaction.commit

    def refuse(transaction: IcebergTransaction, staged: StagedFiles) -> Any:
        if transaction.name.identifier[-1] == "t":
            raise StorageRefused(location="t", reason="killed", fix="")
        return commit(transaction, staged)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTransaction, "commit", refuse)
        if is_killed:
            patch.setattr(IcebergQuarantineWrite, "undo", lambda _: None)
        with pytest.raises(StorageRefused):
            load_iceberg(spark, place)


def expire_snapshots(place: Path) -> None:
    """Expire all snapshots of the quarantine, also the one that added its files."""
    table = load_table(place, "t_quarantine")
    table.append(table.scan().to_arrow().slice(0, 0))
    current = table.refresh().current_snapshot()
    assert current is not None
    with table.maintenance.expire_snapshots() as expire:
        expire.by_ids([each.snapshot_id for each in table.snapshots() if each != current])
    assert len(table.refresh().snapshots()) == 1


def load_table(place: Path, name: str) -> IcebergCatalogTable:
    catalog = SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=(place / "w").as_uri())
    return catalog.load_table(f"shop.{name}")


def iceberg_numbers(place: Path, name: str) -> list[int]:
    rows = load_table(place, name).scan().to_arrow().to_pylist()
    return sorted(row["n"] if name == "t" else json.loads(row["text"])["n"] for row in rows)


def test_in_iceberg_too_the_next_load_replaces_the_records(spark: SparkSession, iceberg: Path) -> None:
    lose_iceberg(spark, iceberg, is_killed=True)
    assert iceberg_numbers(iceberg, "t_quarantine") == [2]
    expire_snapshots(iceberg)
    lose_iceberg(spark, iceberg, is_killed=False)  # it replaces the records, and gives them back
    assert iceberg_numbers(iceberg, "t_quarantine") == [2]
    expire_snapshots(iceberg)
    write(iceberg, "b", (3, 7), (4, "y"))
    load_iceberg(spark, iceberg)
    assert (iceberg_numbers(iceberg, "t"), iceberg_numbers(iceberg, "t_quarantine")) == ([0, 1, 3], [2, 4])
    write(iceberg, "c", (5, "z"))
    load_iceberg(spark, iceberg)
    assert (iceberg_numbers(iceberg, "t"), iceberg_numbers(iceberg, "t_quarantine")) == ([0, 1, 3], [2, 4, 5])
