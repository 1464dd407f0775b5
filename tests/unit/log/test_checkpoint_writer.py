"""Checkpoints that are written: their columns, what they keep, what they leave out."""

from __future__ import annotations

import datetime as dt
import json
import time
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from widen.errors import StorageError
from widen.log import checkpoint_writer
from widen.log.checkpoint_writer import retention_ms, write_checkpoint
from widen.log.commit import commit
from widen.log.commit_files import current_ms
from widen.log.log_segment import SIDECARS
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Action, Add, DeletionVector, DomainMetadata, Metadata, Protocol, Remove, Txn
from widen.table import Table, create_table

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in [
                ("id", "long"),
                ("price", "decimal(6,2)"),
                ("at", "timestamp"),
                (
                    "inner",
                    {"type": "struct", "fields": [{"name": "d", "type": "date", "nullable": True, "metadata": {}}]},
                ),
                ("tags", {"type": "array", "elementType": "string", "containsNull": True}),
                ("p", "integer"),
            ]
        ],
    }
)
STATS = (
    '{"numRecords":2,"minValues":{"id":1,"price":1.25,"at":"2024-01-01T02:00:00.123+02:00","inner":{"d":"2024-02-03"}},'
    '"maxValues":{"id":9},"nullCount":{"id":0,"tags":1}}'
)
VECTOR = DeletionVector(storage_type="i", path_or_inline_dv="wi5b", size_in_bytes=40, cardinality=6)
NOW_MS = int(time.time() * 1000)


def add(path: str, **more: Any) -> Add:
    values = {"path": path, "partition_values": {"p": "7"}, "size": 10, "modification_time": 1, "data_change": True}
    return Add(**{**values, **more})


def removed(path: str, deleted_ms: int) -> Remove:
    return Remove(
        path=path,
        data_change=True,
        deletion_timestamp=deleted_ms,
        extended_file_metadata=True,
        partition_values={"p": "7"},
        size=10,
        stats="{}",
        tags={"t": "1"},
    )


def write(table: Path, *actions: Action, features: tuple[str, ...] = (), **properties: str) -> Path:
    """Make a table of one version and a checkpoint of it; return the checkpoint file."""
    metadata = Metadata(
        id="m", schema_string=SCHEMA, partition_columns=("p",), configuration=properties, description="d"
    )
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    if features:
        protocol = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features
        )
    store = LogStore(str(table))
    snapshot = commit(store, None, [protocol, metadata, *actions], "CREATE TABLE", {}).or_raise().snapshot
    write_checkpoint(snapshot)
    (found,) = (table / "_delta_log").glob("*.checkpoint.*")
    return found


def rows(path: Path, column: str) -> list[dict[str, Any]]:
    table = pq.read_table(path, columns=[column])
    found = table.column(column).to_pylist(maps_as_pydicts="strict")
    return [row for row in found if row is not None]


def test_every_action_has_its_row(tmp_path: Path) -> None:
    domain = DomainMetadata(domain="my", configuration="{}", removed=False)
    path = write(
        tmp_path, add("a", stats=STATS, tags={"k": None}, deletion_vector=VECTOR), Txn(app_id="s", version=3), domain
    )
    assert path.name == f"{0:020d}.checkpoint.parquet"
    assert rows(path, "protocol") == [
        {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": None, "writerFeatures": None}
    ]
    (metadata,) = rows(path, "metaData")
    assert metadata["schemaString"] == SCHEMA
    assert metadata["partitionColumns"] == ["p"]
    assert metadata["description"] == "d"
    assert metadata["format"] == {"provider": "parquet", "options": {}}
    assert rows(path, "txn") == [{"appId": "s", "version": 3, "lastUpdated": None}]
    assert rows(path, "domainMetadata") == [{"domain": "my", "configuration": "{}", "removed": False}]
    assert rows(path, "add") == [
        {
            "path": "a",
            "partitionValues": {"p": "7"},
            "size": 10,
            "modificationTime": 1,
            "dataChange": False,
            "stats": STATS,
            "tags": {"k": None},
            "deletionVector": {
                "storageType": "i",
                "pathOrInlineDv": "wi5b",
                "offset": None,
                "sizeInBytes": 40,
                "cardinality": 6,
            },
            "baseRowId": None,
            "defaultRowCommitVersion": None,
            "clusteringProvider": None,
        }
    ]
    pointer = json.loads((tmp_path / "_delta_log" / "_last_checkpoint").read_text())
    assert pointer == {"version": 0, "size": 5, "sizeInBytes": path.stat().st_size, "numOfAddFiles": 1}


def test_feature_lists_are_never_null_where_the_version_has_them(tmp_path: Path) -> None:
    path = write(tmp_path, features=("deletionVectors",))
    assert rows(path, "protocol")[0]["readerFeatures"] == ["deletionVectors"]


def test_removed_files_are_kept_until_they_expire_without_stats_and_tags(tmp_path: Path) -> None:
    old, young = NOW_MS - 8 * 24 * 3_600_000, NOW_MS - 6 * 24 * 3_600_000
    path = write(tmp_path, removed("old", old), removed("young", young), Remove(path="timeless", data_change=True))
    assert rows(path, "remove") == [
        {
            "path": "young",
            "deletionTimestamp": young,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": {"p": "7"},
            "size": 10,
            "deletionVector": None,
            "baseRowId": None,
            "defaultRowCommitVersion": None,
        }
    ]


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        (None, 604_800_000),
        ("interval 1 week", 604_800_000),
        ("interval 2 days", 172_800_000),
        ("INTERVAL 1 day 12 hours", 129_600_000),
        ("30 minutes", 1_800_000),
        ("interval 0 seconds", 0),
        ("what", 604_800_000),
    ],
)
def test_the_retention_is_an_interval(text: str | None, expected_ms: int) -> None:
    assert retention_ms({} if text is None else {"delta.deletedFileRetentionDuration": text}) == expected_ms


def test_statistics_as_a_struct_have_the_types_of_the_table(tmp_path: Path) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    path = write(tmp_path, add("a", stats=STATS), add("b"), **properties)
    first, second = sorted(rows(path, "add"), key=lambda row: row["path"])
    assert "stats" not in first
    assert second["stats_parsed"] is None
    assert first["partitionValues_parsed"] == {"p": 7}
    parsed = first["stats_parsed"]
    assert parsed["numRecords"] == 2
    assert parsed["minValues"] == {
        "id": 1,
        "price": Decimal("1.25"),
        "at": dt.datetime(2024, 1, 1, 0, 0, 0, 123000, dt.timezone.utc),
        "inner": {"d": dt.date(2024, 2, 3)},
    }
    assert parsed["nullCount"] == {"id": 0, "price": None, "at": None, "inner": None, "tags": 1}
    again = json.loads(open_snapshot(LogStore(str(tmp_path))).files().filter([True, False])["stats"][0].as_py())
    assert again["minValues"] == {
        "id": 1,
        "price": 1.25,
        "at": "2024-01-01T00:00:00.123Z",
        "inner": {"d": "2024-02-03"},
    }


def test_a_v2_table_gets_a_checkpoint_with_a_sidecar(tmp_path: Path) -> None:
    actions = (add("a"), removed("gone", NOW_MS), Txn(app_id="s", version=3))
    path = write(tmp_path, *actions, features=("v2Checkpoint",), **{"delta.checkpointPolicy": "v2"})
    assert len(path.name) == len(f"{0:020d}.checkpoint.") + 36 + len(".parquet")
    assert rows(path, "checkpointMetadata") == [{"version": 0, "tags": None}]
    (sidecar,) = rows(path, "sidecar")
    side = tmp_path / "_delta_log" / "_sidecars" / sidecar["path"]
    assert sidecar["sizeInBytes"] == side.stat().st_size
    assert [row["path"] for row in rows(side, "add")] == ["a"]
    assert [row["path"] for row in rows(side, "remove")] == ["gone"]
    snapshot = open_snapshot(LogStore(str(tmp_path)))
    assert snapshot.segment.checkpoint is not None
    assert snapshot.files()["path"].to_pylist() == ["a"]
    assert snapshot.transactions["s"].version == 3


def test_a_table_that_supports_v2_checkpoints_without_enabling_them_gets_a_classic_one(tmp_path: Path) -> None:
    path = write(tmp_path, add("a"), features=("v2Checkpoint",), **{"delta.checkpointPolicy": "classic"})
    assert path.name == f"{0:020d}.checkpoint.parquet"
    assert not (tmp_path / "_delta_log" / "_sidecars").exists()


def test_small_actions_are_found_in_whatever_row_group_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path, *(add(f"f{number}") for number in range(50)), Txn(app_id="s", version=3))
    whole = pq.read_table(path)
    pq.write_table(whole.take(list(reversed(range(whole.num_rows)))), path, row_group_size=10)
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    (tmp_path / "_delta_log" / f"{0:020d}.crc").unlink(missing_ok=True)
    snapshot = open_snapshot(LogStore(str(tmp_path)))
    assert (snapshot.metadata.description, snapshot.protocol.min_writer_version) == ("d", 2)
    assert snapshot.transactions["s"].version == 3
    assert snapshot.files().num_rows == 50


def test_an_older_checkpoint_does_not_move_the_pointer_back(tmp_path: Path) -> None:
    write(tmp_path, add("a"))
    store = LogStore(str(tmp_path))
    store.put("_delta_log/_last_checkpoint", b'{"version":5,"size":1}')
    write_checkpoint(open_snapshot(store))
    assert json.loads(store.read("_delta_log/_last_checkpoint"))["version"] == 5


@pytest.mark.parametrize(
    ("pause_at", "is_sidecar_deleted", "is_published"),
    [(SIDECARS, False, False), (f"{1:020d}.checkpoint", True, False), (f"{1:020d}.checkpoint", False, True)],
)
def test_a_checkpoint_that_was_interrupted_for_hours_does_not_name_a_sidecar_that_may_be_gone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pause_at: str,
    is_sidecar_deleted: bool,
    is_published: bool,
) -> None:
    """Once it is there, a cleanup may rely on it: then it stays, unless its sidecar is gone."""
    create_table(str(tmp_path), "a int", properties={"delta.checkpointPolicy": "v2"})
    Table(str(tmp_path)).set_properties({"k": "v"})
    now_ms, put = current_ms(), LogStore.put

    def put_and_pause(store: LogStore, path: str, data: bytes) -> None:
        put(store, path, data)
        if pause_at in path:
            monkeypatch.setattr(checkpoint_writer, "current_ms", lambda: now_ms + 2 * 3_600_000)
            if is_sidecar_deleted:
                store.delete([entry.path for entry in store.list(SIDECARS)])

    monkeypatch.setattr(LogStore, "put", put_and_pause)
    with nullcontext() if is_published else pytest.raises(StorageError, match="interrupted for more than an hour"):
        write_checkpoint(Table(str(tmp_path)).snapshot)
    assert len(list((tmp_path / "_delta_log").glob("*.checkpoint.*"))) == is_published
    assert Table(str(tmp_path)).version == 1
