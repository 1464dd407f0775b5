"""Checkpoints of every kind that we write, read by Delta Lake and deltalake with no older commit beside them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from interop import rows
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Action, DomainMetadata, Txn
from widen.table import Table, create_table

SCHEMA = "id bigint, city string, day date, who struct<name: string, age: int>"
FIRST: list[Any] = [
    (1, "Gent", date(2024, 2, 29), ("Ada", 7)),
    (2, "Brno", None, None),
    (3, None, date(1999, 12, 31), (None, -1)),
    (4, "Gent", date(2024, 2, 29), ("Emre", None)),
]
SECOND: list[Any] = [(5, "O'ulu %20", date(2024, 3, 1), None)]
VECTORS, TRACKING = {"delta.enableDeletionVectors": "true"}, {"delta.enableRowTracking": "true"}
STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "partitions": (("city", "day"), {}),
    "statistics as a struct, mapped": ((), {**STRUCT, "delta.columnMapping.mode": "name"}),
    "vectors and row tracking": (("city",), {**VECTORS, **TRACKING}),
}


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def filled(spark: SparkSession, place: str, kind: str, policy: str) -> None:
    """Two appends, a delete and a removed file, a transaction; the checkpoint stands for all of them."""
    partition_by, properties = KINDS[kind]
    table = create_table(
        place, SCHEMA, partition_by=partition_by, properties={**properties, "delta.checkpointPolicy": policy}
    )
    table = (
        table.append(rows.frame(spark, FIRST, SCHEMA).coalesce(1)).table.append(rows.frame(spark, SECOND, SCHEMA)).table
    )
    table.delete("id = 4", spark=spark)
    keep_only_a_checkpoint(place)


def keep_only_a_checkpoint(place: str) -> None:
    """Commit a transaction and a domain, write a checkpoint of that version, and delete what came before."""
    store = LogStore(place)
    actions: list[Action] = [Txn(app_id="orders", version=7)]
    if "rowTracking" in (open_snapshot(store).protocol.writer_features or ()):
        actions.append(DomainMetadata(domain="ours", configuration="{}", removed=False))
    snapshot = commit(store, open_snapshot(store), actions, "TEST", {}).or_raise().snapshot
    write_checkpoint(snapshot)
    before = snapshot.version
    log = Path(place, "_delta_log")
    for version in range(before):
        (log / f"{version:020}.json").unlink()
        (log / f"{version:020}.crc").unlink(missing_ok=True)
    (log / f"{before:020}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("kind", KINDS)
def test_delta_reads_our_checkpoint_and_goes_on(spark: SparkSession, place: str, kind: str, policy: str) -> None:
    filled(spark, place, kind, policy)
    found = spark.read.format("delta").load(place)
    assert rows.exact(found) == rows.expected([*FIRST[:3], *SECOND])
    assert [row.id for row in found.where("city = 'Gent' and day = '2024-02-29'").collect()] == [1]
    again = rows.frame(spark, FIRST[:1], SCHEMA).write.format("delta").mode("append")
    again.option("txnAppId", "orders").option("txnVersion", "7").save(place)  # is there already
    new = [(9, "Gent", None, ("Zoë", 1))]
    rows.frame(spark, new, SCHEMA).coalesce(1).write.format("delta").mode("append").save(place)
    assert rows.exact(Table(place).read(spark=spark)) == rows.expected([*FIRST[:3], *SECOND, *new])
    if TRACKING.items() <= KINDS[kind][1].items():
        now = spark.read.format("delta").load(place).selectExpr("id", "_metadata.row_id as row_id")
        ids = {row.id: row.row_id for row in now.collect()}
        assert {ids[number] for number in (1, 2, 3, 5)} < set(range(5))
        assert ids[9] == 5


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_delta_reads_the_checkpoint_of_an_empty_table(spark: SparkSession, place: str, policy: str) -> None:
    properties = {**VECTORS, "delta.checkpointPolicy": policy}
    create_table(place, SCHEMA, partition_by=("city",), properties=properties)
    keep_only_a_checkpoint(place)
    assert spark.read.format("delta").load(place).collect() == []


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_deltalake_reads_our_checkpoint(spark: SparkSession, place: str, policy: str) -> None:
    filled(spark, place, "partitions", policy)
    files = DeltaTable(place).get_add_actions(flatten=True)
    assert sorted(pa.table(files)["partition.city"].to_pylist(), key=str) == ["Brno", "Gent", None, "O'ulu %20"]
    if policy == "classic":  # of tables with V2 checkpoints deltalake reads the log only
        found = DeltaTable(place).to_pyarrow_table().sort_by("id").to_pylist()
        assert [(row["id"], row["city"], row["day"]) for row in found] == [row[:3] for row in [*FIRST[:3], *SECOND]]


def test_delta_reads_a_checkpoint_that_was_written_again(spark: SparkSession, place: str) -> None:
    create_table(place, SCHEMA, properties={"delta.checkpointInterval": "1"})
    rows.frame(spark, FIRST, SCHEMA).write.format("delta").mode("append").save(place)
    assert Path(place, "_delta_log", f".{1:020}.checkpoint.parquet.crc").is_file()  # Delta Lake's, by Hadoop
    write_checkpoint(open_snapshot(LogStore(place)))
    copy = Path(place).rename(Path(place).with_name("copy"))  # Delta Lake has the state of the other path in memory
    assert rows.exact(spark.read.format("delta").load(str(copy))) == rows.expected(FIRST)
