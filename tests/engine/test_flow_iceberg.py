"""Flows into Iceberg tables with keys, and flows that read Iceberg tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import widen
from support.command_line import run
from support.iceberg_files import embedded_catalog
from widen.errors import FlowChanged, InvalidOption, SourceHistoryLost, SourceRowsRemoved
from widen.targets import iceberg as iceberg_target

SILVER = "SELECT id, day, amount * 2 AS twice FROM source"
GOLD = "SELECT day, sum(twice) AS total, count(*) AS orders FROM source GROUP BY day"


class Lake:
    """Delta tables in a folder, Iceberg tables in a catalog, and flows between them."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.file = spark, place, str(place / "catalog.db")
        self.catalog = embedded_catalog(place)

    def add(self, query: str) -> None:
        widen.ingest(self.spark.sql(query), self.path("bronze"))

    def path(self, name: str) -> str:
        return str(self.place / name)

    def flow(self, source: str, into: str, **words: Any) -> list[widen.FlowBatch]:
        """A name with a dot is that of an Iceberg table."""
        words = {"checkpoint": self.path(f"_flows_{into}"), "once": True, "spark": self.spark, **words}
        tables = [name if "." in name else self.path(name) for name in (source, into)]
        for option, name in (("source_catalog", source), ("catalog", into)):
            if "." in name:
                words[option] = self.file
        return widen.flow(*tables, **words).batches

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        table = self.iceberg(name) if "." in name else widen.Table(self.path(name))
        return sorted((tuple(row) for row in table.read(spark=self.spark).collect()), key=repr)

    def iceberg(self, name: str) -> widen.IcebergTable:
        return widen.IcebergTable(name, catalog=self.file)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def test_updates_and_deletes_run_through_iceberg(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> list[int]:
        into_silver = lake.flow("bronze", "ns.silver", sql=SILVER, keys=["id"], partition_by=["day"], verify=True)
        return [len(into_silver), len(lake.flow("ns.silver", "gold", sql=GOLD, keys=["day"]))]

    lake.add("SELECT id, IF(id < 3, 'mon', 'tue') day, CAST(id AS int) amount FROM range(5) t(id)")
    assert batches() == [1, 1]
    assert lake.rows("gold") == [("mon", 6, 3), ("tue", 14, 2)]
    silver = lake.catalog.load_table("ns.silver")
    silver.append(pa.table({"id": pa.array([77], pa.int64()), "day": ["sun"]}))  # a row that no flow owns
    bronze = widen.Table(lake.path("bronze"))
    bronze.update({"amount": "100"}, "id = 4")
    bronze.delete("day = 'mon'")
    lake.add("SELECT CAST(9 AS bigint) id, 'wed' day, CAST(5000000000 AS bigint) amount")
    raced = []

    def lose_the_race(*words: Any) -> Any:
        if not raced:
            raced.append(lake.catalog.load_table("ns.silver"))
            raced[0].append(pa.table({"id": pa.array([9], pa.int64()), "day": ["old"]}))
        return remove_replaced_rows(*words)

    remove_replaced_rows = iceberg_target.remove_replaced_iceberg_rows
    monkeypatch.setattr(iceberg_target, "remove_replaced_iceberg_rows", lose_the_race)
    assert batches() == [1, 1]
    assert lake.rows("ns.silver") == [("sun", 77, None), ("tue", 3, 6), ("tue", 4, 200), ("wed", 9, 10000000000)]
    assert lake.rows("gold") == [("sun", None, 1), ("tue", 206, 2), ("wed", 10000000000, 1)]
    assert batches() == [0, 0]
    lake.catalog.load_table("ns.silver").delete("id = 3")
    lake.iceberg("ns.silver").rename_column("id", "number").append(lake.spark.sql("SELECT 5 number, 'tue' day"))
    assert len(lake.flow("ns.silver", "gold", sql=GOLD, keys=["day"])) == 1
    assert lake.rows("gold") == [("sun", None, 1), ("tue", 200, 2), ("wed", 10000000000, 1)]


def test_only_files_with_replaced_rows_are_written_again(lake: Lake) -> None:
    lake.add("SELECT 1 id, 'a' v")
    lake.flow("bronze", "ns.t", keys=["id"])
    lake.add("SELECT 2 id, 'b' v")
    lake.flow("bronze", "ns.t", keys=["id"])
    before = lake.iceberg("ns.t").files()["path"].to_pylist()
    widen.Table(lake.path("bronze")).update({"v": "'c'"}, "id = 2")
    lake.flow("bronze", "ns.t", keys=["id"])
    assert lake.rows("ns.t") == [(1, "a"), (2, "c")]
    after = lake.iceberg("ns.t").files()["path"].to_pylist()
    assert len(set(before) & set(after)) == len(before) - 1 == len(after) - 1
    lake.flow("bronze", "ns.t", keys=["id"], rebuild=True)
    assert lake.rows("ns.t") == [(1, "a"), (2, "c")]
    assert not set(after) & set(lake.iceberg("ns.t").files()["path"].to_pylist())


@pytest.mark.parametrize(
    ("kind", "keys", "partition_by"),
    [
        ("int", ["1", "2", "3"], None),
        ("string", ["'a'", "'b'", "'c'"], "k"),
        ("decimal(9,2)", ["-1.50", "-1.49", "7"], None),
    ],
)
def test_files_without_the_keys_of_a_batch_are_not_read(
    lake: Lake, kind: str, keys: list[str], partition_by: str | None
) -> None:
    """The table has a file for each key and one for null; two more key columns do not have an order that is used."""
    rows = "SELECT CAST({} AS {}) AS k, timestamp'2024-01-01 00:00:00Z' AS at, 1.5D AS d, {} AS n"
    target: Any = None
    files: list[Path] = []
    for key in (*keys, "NULL"):
        arrow = lake.spark.sql(rows.format(key, kind, 1)).toArrow()
        arrow = arrow.cast(pa.schema([field.with_nullable(True) for field in arrow.schema]))
        if target is None:
            target = lake.catalog.create_table("ns.t", arrow.schema)
            if partition_by:
                with target.update_spec() as spec:
                    spec.add_identity(partition_by)
        before = set(lake.place.glob("**/*.parquet"))
        target.append(arrow)
        files.append(next(iter(set(lake.place.glob("**/*.parquet")) - before)))
    lake.add(rows.format(keys[1], kind, 2) + " UNION ALL " + rows.format("NULL", kind, 2))
    hidden = [path.rename(path.with_suffix(".hidden")) for path in (files[0], files[2])]
    lake.flow("bronze", "ns.t", keys=["k", "at", "d"])
    for path in hidden:
        path.rename(path.with_suffix(".parquet"))
    found = sorted((row[0] is None, row[0], row[3]) for row in lake.rows("ns.t"))
    assert [row[2] for row in found] == [1, 2, 1, 2]


def test_an_iceberg_table_is_read_snapshot_by_snapshot(lake: Lake) -> None:
    """A flow without keys: parts, new columns, removed rows, a rollback and expired snapshots."""
    spark = lake.spark
    table = lake.catalog.create_table("ns.s", pa.schema([("id", pa.int32())]))
    assert lake.flow("ns.s", "archive")[0].result is None
    unread = lake.catalog.create_table("ns.unread", pa.schema([("id", pa.int32())]))
    lake.flow("ns.unread", "unread")
    for first in (0, 2):
        unread.append(pa.table({"id": pa.array([first], pa.int32())}))
        table.append(pa.table({"id": pa.array([first, first + 1], pa.int32())}))
    assert [batch.last for batch in lake.flow("ns.s", "archive", max_bytes=1)] == [1, 2]
    unread.maintenance.expire_snapshots().by_id(unread.snapshots()[0].snapshot_id).commit()
    with pytest.raises(SourceHistoryLost, match="sequence number 0"):
        lake.flow("ns.unread", "unread")
    source = lake.iceberg("ns.s")
    source.append(spark.sql("SELECT 5000000000 id, 'new' v, timestamp_ntz'2024-01-01 00:00:00' at"), merge_schema=True)
    (batch,) = lake.flow("ns.s", "archive")
    assert batch.last == 3
    assert [row[0] for row in lake.rows("archive")] == [0, 1, 2, 3, 5000000000]
    assert lake.flow("ns.s", "archive") == []
    lake.catalog.load_table("ns.s").delete("id = 1")
    source.append(spark.sql("SELECT 6 id"))
    with pytest.raises(SourceRowsRemoved, match="in version 4"):
        lake.flow("ns.s", "archive")
    (batch,) = lake.flow("ns.s", "archive", removed="skip")
    assert (batch.skipped, batch.last) == ((4,), 5)
    assert len(lake.rows("archive")) == 6
    snapshots = {each.sequence_number: each.snapshot_id for each in source.refresh().table.snapshots()}
    lake.catalog.load_table("ns.s").manage_snapshots().rollback_to_snapshot(snapshots[3]).commit()
    with pytest.raises(FlowChanged, match="it has read version 5"):
        lake.flow("ns.s", "archive")
    source.append(spark.sql("SELECT 7 id"))
    with pytest.raises(SourceHistoryLost, match="sequence number 5 has expired, or was rolled back"):
        lake.flow("ns.s", "archive")
    (batch,) = lake.flow("ns.s", "archive", rebuild=True)
    assert sorted(row[0] for row in lake.rows("archive")) == [0, 1, 2, 3, 7, 5000000000]
    source.append(spark.sql("SELECT 8 id"))
    source.append(spark.sql("SELECT 9 id"))
    lake.catalog.load_table("ns.s").maintenance.expire_snapshots().by_id(
        source.refresh().table.snapshots()[-2].snapshot_id
    ).commit()
    with pytest.raises(SourceHistoryLost, match="sequence number 6"):
        lake.flow("ns.s", "archive")


def test_flows_of_iceberg_by_the_command_line(lake: Lake) -> None:
    lake.catalog.create_table("ns.s", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1, 2]}))
    step = {"source": "ns.s", "source_catalog": lake.file, "into": "ns.t", "catalog": lake.file, "keys": ["id"]}
    chain = lake.place / "chain.toml"
    lines = (f"{key} = {json.dumps(value)}" for key, value in {**step, "checkpoint": lake.path("cp")}.items())
    chain.write_text("[[step]]\n" + "\n".join(lines))
    assert run("flow", str(chain), "--once").exit_code == 0
    assert lake.rows("ns.t") == [(1,), (2,)]
    again = ("flow", "ns.s", "--source-catalog", lake.file, "--into", lake.path("d"), "--checkpoint", lake.path("cp2"))
    assert run(*again, "--once").exit_code == 0
    assert lake.rows("d") == [(1,), (2,)]
    with pytest.raises(InvalidOption, match="Must not be the source"):
        lake.flow("ns.s", "ns.s")
    lake.catalog.create_table("ns.old", pa.schema([("id", pa.int64())]), properties={"format-version": "1"}).append(
        pa.table({"id": [1]})
    )
    with pytest.raises(InvalidOption, match="format version 1"):
        lake.flow("ns.old", "d2")


@pytest.mark.parametrize(
    ("into", "names"),
    [
        ("ns.files", ["id", "_file_2", "_pos_2", "_file_2_2", "_change_type_2", "_metadata_2"]),
        ("files", ["id", "_file", "_pos", "_file_2", "_change_type_2", "_metadata_2"]),
    ],
)
def test_a_new_table_has_no_reserved_names(lake: Lake, into: str, names: list[str]) -> None:
    """As in an ingestion; the columns keep their types, and the next batch finds them."""
    columns = "id int, _file string, _pos bigint, _file_2 string, _change_type date, _metadata struct<_file: int>"
    metadata = {"delta.columnMapping.mode": "none"}
    widen.create_table(lake.path("odd"), columns, properties=metadata)
    values = "'a' AS _file, 7L AS _pos, 'b' AS _file_2, DATE'2024-01-01' AS _change_type, named_struct('_file', 1)"
    for number in (1, 2):
        widen.Table(lake.path("odd")).append(lake.spark.sql(f"SELECT {number} AS id, {values} AS _metadata"))
        lake.flow("odd", into, verify=True)
    rows = (lake.iceberg(into) if "." in into else widen.Table(lake.path(into))).read(spark=lake.spark)
    assert sorted(rows.columns) == sorted(names)
    assert dict(rows.dtypes)["_change_type_2"] == "date"
    found = rows.select(*names[:4]).orderBy("id").collect()
    assert [tuple(row) for row in found] == [(1, "a", 7, "b"), (2, "a", 7, "b")]
    assert rows.selectExpr("_metadata_2._file").distinct().collect()[0][0] == 1
