"""Tables written by deltalake, read by us; tables written by us, read by deltalake."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.schema_json import to_json
from widen.protocol.actions import Add, Metadata, Protocol

SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{"comment":"when"}}]}'
)


def rows(start: int, count: int) -> pa.Table:
    days = [dt.date(2024, 1, 1 + number % 3) for number in range(count)]
    return pa.table({"id": pa.array(range(start, start + count)), "text": ["é x"] * count, "day": days})


def opened(location: Path, version: int | None = None) -> Snapshot:
    return open_snapshot(LogStore(str(location)), version)


def our_files(snapshot: Snapshot) -> list[tuple[str, int, dict[str, str], Any]]:
    listed = snapshot.files().to_pylist(maps_as_pydicts="strict")
    return sorted(
        (row["path"], row["size_bytes"], row["partition_values"], json.loads(row["stats"] or "{}").get("numRecords"))
        for row in listed
    )


def their_files(table: DeltaTable) -> list[tuple[str, int, dict[str, str], Any]]:
    listed = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    partitions = table.metadata().partition_columns
    return sorted(
        (
            row["path"],
            row["size_bytes"],
            {name: row[f"partition.{name}"].isoformat() for name in partitions},
            row["num_records"],
        )
        for row in listed
    )


def assert_same(location: Path, version: int) -> None:
    theirs, ours = DeltaTable(str(location), version=version), opened(location, version)
    assert ours.version == theirs.version() == version
    assert our_files(ours) == their_files(theirs)
    assert json.loads(to_json(ours.schema)) == json.loads(theirs.schema().to_json())
    assert ours.properties == theirs.metadata().configuration
    assert list(ours.partition_columns) == theirs.metadata().partition_columns


@pytest.mark.parametrize("partitions", [[], ["day"]], ids=["flat", "partitioned"])
@pytest.mark.parametrize("checkpoint_at", [None, 2, 5])
def test_what_deltalake_wrote_is_read_the_same(
    tmp_path: Path, partitions: list[str], checkpoint_at: int | None
) -> None:
    location = str(tmp_path)
    write_deltalake(
        location, rows(0, 9), partition_by=partitions, configuration={"delta.logRetentionDuration": "interval 9 days"}
    )
    for number in range(1, 4):
        properties = CommitProperties(app_transactions=[Transaction("app", number)])
        write_deltalake(location, rows(number * 10, 6), mode="append", commit_properties=properties)
    DeltaTable(location).delete("id > 20 and id < 34")
    DeltaTable(location).optimize.compact()
    if checkpoint_at is not None:
        DeltaTable(location, version=checkpoint_at).create_checkpoint()
    newest = DeltaTable(location).version()
    assert newest == 5
    for version in range(newest + 1):
        assert_same(tmp_path, version)
    assert opened(tmp_path).transactions["app"].version == 3
    ours = [(version, info["operation"]) for version, _, info in opened(tmp_path).history()]
    assert ours == [(entry["version"], entry["operation"]) for entry in DeltaTable(location).history()]


def test_an_overwrite_by_deltalake_is_read_the_same(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), rows(0, 9), partition_by=["day"])
    write_deltalake(
        str(tmp_path), rows(50, 3).select(["id"]), mode="overwrite", schema_mode="overwrite", partition_by=[]
    )
    assert_same(tmp_path, 0)
    newest = opened(tmp_path)
    assert newest.schema.names == tuple(field.name for field in DeltaTable(str(tmp_path)).schema().fields)
    assert [row[:2] for row in our_files(newest)] == [row[:2] for row in their_files(DeltaTable(str(tmp_path)))]


PROPERTIES: list[dict[str, str]] = [
    {},
    {"delta.checkpoint.writeStatsAsStruct": "true"},
    {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
]
PROTOCOLS = [
    Protocol(min_reader_version=1, min_writer_version=2),
    Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("v2Checkpoint",),
        writer_features=("v2Checkpoint", "appendOnly", "invariants"),
    ),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["classic", "v2"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=["json", "both", "struct"])
def test_what_we_wrote_is_read_the_same_by_deltalake(
    tmp_path: Path, protocol: Protocol, properties: dict[str, str]
) -> None:
    store = LogStore(str(tmp_path))
    configuration = {"delta.checkpointInterval": "4", **properties}
    metadata = Metadata(
        id="0b5c1e5e-6a3b-4c7e-9f3e-0d1c2b3a4f5e",
        schema_string=SCHEMA,
        partition_columns=("day",),
        configuration=configuration,
        name="orders",
        created_time=1_700_000_000_000,
    )
    base = commit(store, None, [protocol, metadata], "CREATE TABLE", {}).or_raise().snapshot
    for number in range(1, 7):
        new = Add(
            path=f"day=2024-01-0{number}/part%20{number}.parquet",
            partition_values={"day": f"2024-01-0{number}"},
            size=number,
            modification_time=1_700_000_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": number, "minValues": {"id": number}, "maxValues": {"id": number}}),
        )
        base = commit(store, base, [new], "WRITE", {"mode": "Append"}, metrics={"numFiles": 1}).or_raise().snapshot
    assert base.segment.checkpoint is None or base.segment.checkpoint.version == 4
    theirs = DeltaTable(str(tmp_path))
    assert theirs.version() == 6
    assert our_files(opened(tmp_path)) == their_files(theirs)
    assert json.loads(theirs.schema().to_json()) == json.loads(SCHEMA)
    assert theirs.metadata().configuration == configuration
    assert theirs.metadata().name == "orders"
    operations = [entry["operation"] for entry in theirs.history()]
    assert operations == ["WRITE"] * 6 + ["CREATE TABLE"]
