"""Open versions: the log files that make them up, and their content."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.log_table import (
    ADD_COLUMN,
    CHECKPOINT,
    PROTOCOL,
    SIDECAR,
    V2_CHECKPOINT,
    add,
    metadata,
    paired,
    remove,
    write_commit,
    write_json,
    write_parquet,
)
from widen.errors import CorruptLog, InvalidOption, TableNotFound, UnsupportedFeatureForRead, VersionNotFound
from widen.log import checkpoint_reader
from widen.log.commit_files import COMMIT_INFO, read_non_file_actions
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot

UUID = "00000000-1111-2222-3333-444444444444"
TAGGED = {"tags": {"ZCUBE": "1"}}
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


def opened(table: Path, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
    return open_snapshot(LogStore(str(table)), version, timestamp_ms)


def live(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.files()["path"].to_pylist())


def txn(version: int) -> dict[str, Any]:
    return {"txn": {"appId": "app", "version": version}}


def domain(text: str, *, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": "my", "configuration": text, "removed": removed}}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four versions: a and b, then c for a, then another schema text, then d."""
    write_commit(tmp_path, 0, {"commitInfo": {"operation": "WRITE"}}, metadata(), PROTOCOL, add("a"), add("b"), txn(1))
    write_commit(tmp_path, 1, remove("a"), add("c"), domain("one"))
    write_commit(tmp_path, 2, {"commitInfo": {"operation": "SET"}}, metadata({"k": "v"}), txn(2))
    write_commit(tmp_path, 3, {"commitInfo": {"operation": "WRITE"}}, add("d"), domain("two"))
    return tmp_path


LIVE = {0: ["a", "b"], 1: ["b", "c"], 2: ["b", "c"], 3: ["b", "c", "d"]}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_version_is_the_sum_of_its_commits(table: Path, version: int) -> None:
    snapshot = opened(table, version)
    assert (snapshot.version, live(snapshot)) == (version, LIVE[version])
    assert snapshot.properties == ({} if version < 2 else {"k": "v"})
    assert snapshot.transactions["app"].version == (1 if version < 2 else 2)
    assert {name: d.configuration for name, d in snapshot.domains.items()} == (
        {} if version == 0 else {"my": "one" if version < 3 else "two"}
    )


def test_the_newest_version_is_the_default(table: Path) -> None:
    snapshot = opened(table)
    assert snapshot.version == 3
    assert snapshot.schema.names == ("id", "day")
    assert snapshot.partition_columns == ("day",)
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 2)


def test_a_removed_domain_is_left_out(table: Path) -> None:
    write_commit(table, 4, domain("", removed=True))
    assert opened(table).domains == {}


def test_a_row_has_all_fields_of_its_action(tmp_path: Path) -> None:
    more = {"stats": '{"numRecords":3}', "baseRowId": 5, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}
    write_commit(tmp_path, 0, metadata(), PROTOCOL, add("k=%20ä\u2028", deletionVector=VECTOR, **more))
    expected = {
        "path": "k=%20ä\u2028",
        "partition_values": [("day", "2024-01-01")],
        "size_bytes": 100,
        "modification_time_ms": 7,
        "stats": '{"numRecords":3}',
        "deletion_vector": {
            "storage_type": "u",
            "path_or_inline_dv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": 4,
            "size_in_bytes": 40,
            "cardinality": 6,
        },
        "base_row_id": 5,
        "default_row_commit_version": 1,
        "tags": None,
        "clustering_provider": "liquid",
    }
    assert opened(tmp_path).files().to_pylist() == [expected]
    write_commit(tmp_path, 0, metadata(), PROTOCOL, add("k=%20ä\u2028", deletionVector=VECTOR, **more, **TAGGED))
    assert opened(tmp_path).files().to_pylist() == [{**expected, "tags": [("ZCUBE", "1")]}]


def test_partition_values_keep_their_keys_and_nulls(tmp_path: Path) -> None:
    rows = [add(name, partitionValues={"day": None, "id": str(number)}) for number, name in enumerate("xyz")]
    write_commit(tmp_path, 0, metadata(partitions=("id", "day")), PROTOCOL, *rows)
    found = opened(tmp_path).files().select(["path", "partition_values"]).to_pylist(maps_as_pydicts="strict")
    assert found == [
        {"path": "x", "partition_values": {"id": "0", "day": None}},
        {"path": "y", "partition_values": {"id": "1", "day": None}},
        {"path": "z", "partition_values": {"id": "2", "day": None}},
    ]


def test_an_unpartitioned_file_has_no_partition_values(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, metadata(partitions=()), PROTOCOL, add("x", partitionValues={}))
    assert opened(tmp_path).files()["partition_values"].to_pylist() == [[]]


@pytest.mark.parametrize("more", [{}, TAGGED], ids=["in columns", "line by line"])
def test_the_newest_action_of_a_file_wins(tmp_path: Path, more: dict[str, Any]) -> None:
    write_commit(tmp_path, 0, metadata(), PROTOCOL, add("a", **more), add("b", **more), add("c", **more))
    write_commit(tmp_path, 1, remove("a"), remove("b"))
    write_commit(tmp_path, 2, add("a", size=2, **more), add("c", size=3, dataChange=False, **more))
    files = opened(tmp_path).files().to_pylist()
    assert sorted((row["path"], row["size_bytes"]) for row in files) == [("a", 2), ("c", 3)]


def test_a_deletion_vector_makes_another_file_of_the_same_path(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, metadata(), PROTOCOL, add("a"))
    write_commit(tmp_path, 1, add("a", deletionVector=VECTOR), remove("a"))
    newer = {**VECTOR, "offset": 99}
    write_commit(tmp_path, 2, remove("a", deletionVector=VECTOR), add("a", deletionVector=newer))
    offsets = [
        [row["deletion_vector"] and row["deletion_vector"]["offset"] for row in opened(tmp_path, v).files().to_pylist()]
        for v in (0, 1, 2)
    ]
    assert offsets == [[None], [4], [99]]


# ---- checkpoints -----------------------------------------------------------------------------------

FIRST = [PROTOCOL, metadata({"k": "v"}), txn(2)]


def classic(table: Path) -> None:
    write_parquet(table, f"{2:020d}.checkpoint.parquet", CHECKPOINT, *FIRST, add("b"), add("c"), remove("a"))


def multipart(table: Path) -> None:
    write_parquet(table, f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet", CHECKPOINT, *FIRST, add("b"))
    write_parquet(table, f"{2:020d}.checkpoint.{2:010d}.{2:010d}.parquet", CHECKPOINT, add("c"), remove("a"))


def v2_inline(table: Path) -> None:
    rows = [{"checkpointMetadata": {"version": 2}}, *FIRST, add("b"), add("c"), remove("a")]
    write_parquet(table, f"{2:020d}.checkpoint.{UUID}.parquet", V2_CHECKPOINT, *rows)


def _sidecars(table: Path) -> list[dict[str, Any]]:
    write_parquet(table, "_sidecars/one.parquet", SIDECAR, add("b"))
    write_parquet(table, "_sidecars/two.parquet", SIDECAR, add("c"), remove("a"))
    return [{"sidecar": {"path": f"{n}.parquet", "sizeInBytes": 1, "modificationTime": 1}} for n in ("one", "two")]


def v2_sidecars(table: Path) -> None:
    rows = [{"checkpointMetadata": {"version": 2}}, *FIRST, *_sidecars(table)]
    write_parquet(table, f"{2:020d}.checkpoint.{UUID}.parquet", V2_CHECKPOINT, *rows)


def v2_json(table: Path) -> None:
    rows = [{"checkpointMetadata": {"version": 2}}, *FIRST, add("b"), add("c"), remove("a")]
    write_json(table, f"{2:020d}.checkpoint.{UUID}.json", *rows)


def v2_json_sidecars(table: Path) -> None:
    rows = [{"checkpointMetadata": {"version": 2}}, *FIRST, *_sidecars(table)]
    write_json(table, f"{2:020d}.checkpoint.{UUID}.json", *rows)


KINDS = [classic, multipart, v2_inline, v2_sidecars, v2_json, v2_json_sidecars]


@pytest.mark.parametrize("hint", [None, '{"version":2,"size":6}', '{"version":1}', '{"version":99}', "{", "[]"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_replaces_earlier_commits(table: Path, kind: Any, hint: str | None) -> None:
    kind(table)
    for version in (0, 1):  # the checkpoint must be enough
        os.unlink(table / "_delta_log" / f"{version:020d}.json")
    if hint is not None:
        (table / "_delta_log" / "_last_checkpoint").write_text(hint)
    for version in (2, 3):
        snapshot = opened(table, version)
        assert live(snapshot) == LIVE[version]
        assert snapshot.properties == {"k": "v"}
        assert snapshot.transactions["app"].version == 2
        assert sorted(remove.path for remove in snapshot.removed_files()) == ["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_commits_after_a_checkpoint_win(table: Path, kind: Any) -> None:
    kind(table)
    write_commit(table, 4, remove("b"), add("c", size=9, dataChange=False))
    files = opened(table).files().to_pylist()
    assert sorted((row["path"], row["size_bytes"]) for row in files) == [("c", 9), ("d", 100)]


def test_a_store_searches_a_checkpoint_for_the_metadata_once(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classic(table)
    store = LogStore(str(table))
    first = open_snapshot(store)
    monkeypatch.setattr(checkpoint_reader, "_rows", None)
    assert open_snapshot(store).metadata == first.metadata
    write_commit(table, 4, add("e"))
    assert open_snapshot(store).metadata == first.metadata


def test_an_incomplete_checkpoint_is_ignored(table: Path) -> None:
    multipart(table)
    os.unlink(table / "_delta_log" / f"{2:020d}.checkpoint.{2:010d}.{2:010d}.parquet")
    snapshot = opened(table)
    assert snapshot.segment.checkpoint is None
    assert live(snapshot) == LIVE[3]


def test_versions_before_a_checkpoint_can_be_opened(table: Path) -> None:
    classic(table)
    (table / "_delta_log" / "_last_checkpoint").write_text('{"version":2,"size":6}')
    assert live(opened(table, 1)) == LIVE[1]


def test_an_error_names_the_damaged_checkpoint(table: Path) -> None:
    path = write_json(table, f"{3:020d}.checkpoint.parquet", {"no": "parquet"})
    with pytest.raises(CorruptLog, match=path.name):
        opened(table).files()


@pytest.mark.parametrize("damaged", [{"path": "@@@"}, {"stats": "@@@"}, {"day": "@@@"}])
def test_a_checkpoint_whose_texts_are_not_utf8_is_damaged(table: Path, damaged: dict[str, str]) -> None:
    path = write_parquet(
        table, f"{3:020d}.checkpoint.parquet", CHECKPOINT, PROTOCOL, metadata(), add(**({"path": "x"} | damaged))
    )
    pq.write_table(pq.read_table(path), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"@@@", b"@\xae@"))
    with pytest.raises(CorruptLog, match=f"{path.name}.*UTF8"):
        opened(table).files()


def test_a_log_compaction_replaces_its_commits(table: Path) -> None:
    write_json(table, f"{1:020d}.{2:020d}.compacted.json", remove("a"), add("e"), metadata({"k": "c"}), txn(2))
    snapshot = opened(table)
    assert live(snapshot) == ["b", "d", "e"]
    assert snapshot.properties == {"k": "c"}
    assert live(opened(table, 1)) == LIVE[1]


# ---- what is wrong ---------------------------------------------------------------------------------


def test_an_error_names_the_missing_version(table: Path) -> None:
    os.unlink(table / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(CorruptLog, match="version 1 is missing"):
        opened(table)
    assert live(opened(table, 0)) == LIVE[0]


def test_a_version_that_does_not_exist_is_refused_with_the_range(table: Path) -> None:
    with pytest.raises(VersionNotFound, match="the versions are 0 to 3"):
        opened(table, 4)
    with pytest.raises(VersionNotFound):
        opened(table, -1)


def test_the_reported_range_starts_before_the_last_checkpoint(table: Path) -> None:
    classic(table)
    (table / "_delta_log" / "_last_checkpoint").write_text('{"version":2,"size":6}', encoding="utf-8")
    with pytest.raises(VersionNotFound, match="the versions are 0 to 3"):
        opened(table, 99)


def test_a_version_that_was_cleaned_up_is_refused_with_the_range(table: Path) -> None:
    classic(table)
    for version in (0, 1):
        os.unlink(table / "_delta_log" / f"{version:020d}.json")
    with pytest.raises(VersionNotFound, match="cleaned up; the versions are 2 to 3"):
        opened(table, 1)


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: (p / "_delta_log").mkdir(parents=True)]
)
def test_a_path_without_a_log_is_not_a_table(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "t")
    with pytest.raises(TableNotFound):
        opened(tmp_path / "t")


DAMAGE = {
    "cut off": ('{"add":{"path":"x","partitionValues":{},"size":1', "line, 1, is cut off"),
    "cut off after a line": ('{"commitInfo":{}}\n{"add":{"path":"x","parti', "line, 2, is cut off"),
    "empty": ("", "is empty"),
    "no JSON": ("{}\n{]}\n{}\n", "line 2 is damaged"),
    "without a size": ('{"add":{"path":"x","partitionValues":{},"modificationTime":1,"dataChange":true}}', "line 1"),
    "without a path": ('{}\n{"remove":{"dataChange":true}}', "line 2"),
    "text for a number": (
        '{"add":{"path":"x","partitionValues":{},"size":"1","modificationTime":1,"dataChange":true}}',
        "line 1",
    ),
}


@pytest.mark.parametrize(("text", "blame"), DAMAGE.values(), ids=list(DAMAGE))
def test_an_error_names_the_damaged_commit_and_line(table: Path, text: str, blame: str) -> None:
    path = table / "_delta_log" / f"{4:020d}.json"
    path.write_text(text)
    with pytest.raises(CorruptLog, match=blame) as caught:
        opened(table).files()
    assert path.name in str(caught.value)


@pytest.mark.parametrize("damaged", ["stats", "tags", "other"])
def test_a_file_action_that_is_not_utf8_is_damaged_whichever_field_it_is_in(table: Path, damaged: str) -> None:
    path = table / "_delta_log" / f"{4:020d}.json"
    line = json.dumps(add("x", stats="{}", tags=None, other="o"))
    path.write_bytes(line.replace(f'"{damaged}"', f'"{damaged}@"').encode().replace(b"@", b"\xff"))
    with pytest.raises(CorruptLog, match="line 1 is damaged"):
        opened(table).files()


def test_a_commit_info_that_is_not_utf8_does_no_harm(table: Path) -> None:
    (table / "_delta_log" / f"{4:020d}.json").write_bytes(
        b'{"commitInfo":{"user":"Jos\xe9"}}\n' + json.dumps(add("x")).encode()
    )
    assert "x" in live(opened(table))


def test_an_error_names_the_line_of_damaged_metadata(table: Path) -> None:
    write_commit(table, 4, {"commitInfo": {}}, {"metaData": {"id": "x"}})
    with pytest.raises(CorruptLog, match="line 2 is damaged"):
        opened(table)


def test_a_log_without_metadata_is_corrupt(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, PROTOCOL, add("x"))
    with pytest.raises(CorruptLog, match="metaData"):
        opened(tmp_path)


def test_an_unsupported_reader_feature_is_named(table: Path) -> None:
    features = {"readerFeatures": ["magic"], "writerFeatures": ["magic"]}
    write_commit(table, 4, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(UnsupportedFeatureForRead, match="magic"):
        opened(table)
    assert opened(table, 3).version == 3


# ---- cheap opening ---------------------------------------------------------------------------------


class CountingStore(LogStore):
    """A store that records what was read."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def read_many(self, paths: Any) -> Any:
        self.reads.extend(paths)
        return super().read_many(paths)


def checksum(size: int = 1) -> dict[str, Any]:
    return {
        "tableSizeBytes": size,
        "numFiles": 1,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": metadata({"from": "crc"})["metaData"],
        "protocol": PROTOCOL["protocol"],
    }


def test_a_checksum_gives_the_metadata_without_any_commit(table: Path) -> None:
    write_json(table, f"{3:020d}.crc", checksum())
    store = CountingStore(str(table))
    assert open_snapshot(store).properties == {"from": "crc"}
    assert [path for path in store.reads if path.endswith(".json")] == []


def test_an_older_checksum_saves_reading_the_commits_before_it(table: Path) -> None:
    write_json(table, f"{2:020d}.crc", checksum())
    store = CountingStore(str(table))
    assert open_snapshot(store).properties == {"from": "crc"}
    assert [path for path in store.reads if path.endswith(".json")] == [f"_delta_log/{3:020d}.json"]


def test_newer_commits_win_over_an_older_checksum(table: Path) -> None:
    write_json(table, f"{1:020d}.crc", checksum())
    assert opened(table).properties == {"k": "v"}


def test_a_checksum_gives_the_size_of_the_table_without_its_files(table: Path) -> None:
    write_json(table, f"{3:020d}.crc", {**checksum(), "numFiles": 7, "tableSizeBytes": 70})
    assert open_snapshot(LogStore(str(table))).count_files() == (7, 70)


def test_an_older_checksum_does_not_tell_the_size_of_the_table(table: Path) -> None:
    write_json(table, f"{2:020d}.crc", {**checksum(), "numFiles": 7, "tableSizeBytes": 70})
    snapshot = open_snapshot(LogStore(str(table)))
    sizes = snapshot.files()["size_bytes"].to_pylist()
    assert snapshot.count_files() == (len(sizes), sum(sizes))
    assert sizes


@pytest.mark.parametrize("text", ["", "{", "{}", '{"metadata":1}', json.dumps(checksum()).replace("configur", "\xff")])
def test_a_damaged_checksum_is_ignored(table: Path, text: str) -> None:
    (table / "_delta_log" / f"{3:020d}.crc").write_bytes(text.encode("latin-1"))
    assert opened(table).properties == {"k": "v"}


@pytest.mark.parametrize(
    "part",
    [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7}},
        {"metadata": {**metadata({})["metaData"], "partitionColumns": ["p", "p"]}},
    ],
)
def test_a_checksum_with_an_invalid_protocol_or_metadata_is_ignored(table: Path, part: dict[str, Any]) -> None:
    write_json(table, f"{3:020d}.crc", {**checksum(), **part})
    assert opened(table).properties == {"k": "v"}


def test_commits_between_a_damaged_checksum_and_an_older_one_count(table: Path) -> None:
    write_json(table, f"{1:020d}.crc", checksum())
    (table / "_delta_log" / f"{3:020d}.crc").write_text("{")
    assert opened(table).properties == {"k": "v"}


def test_opening_does_not_decode_file_actions(table: Path) -> None:
    write_commit(table, 4, {"add": "this is no add action"})
    snapshot = opened(table)
    assert snapshot.properties == {"k": "v"}
    with pytest.raises(CorruptLog):
        snapshot.files()


def test_a_column_named_like_an_action_is_not_an_action(table: Path) -> None:
    write_commit(table, 4, add("x", partitionValues={"metaData": "1", "protocol": "2"}, stats='{"metaData":1}'))
    assert opened(table).properties == {"k": "v"}


def test_the_last_line_needs_no_line_end() -> None:
    found = list(read_non_file_actions("p", b'{"add":{}}\n{ "commitInfo" : {"a":1}}', COMMIT_INFO))
    assert [line.commit_info for line in found] == [{"a": 1}]


def test_a_snapshot_can_be_pickled(table: Path) -> None:
    copy = pickle.loads(pickle.dumps(opened(table)))
    assert (copy.version, live(copy)) == (3, LIVE[3])


# ---- time ------------------------------------------------------------------------------------------


def set_times(table: Path, *times_ms: int) -> None:
    for version, time_ms in enumerate(times_ms):
        os.utime(table / "_delta_log" / f"{version:020d}.json", ns=(time_ms * 1_000_000, time_ms * 1_000_000))


@pytest.mark.parametrize(("time_ms", "version"), [(1000, 0), (1999, 0), (2000, 1), (2001, 2), (2999, 2), (9999, 3)])
def test_a_time_selects_the_newest_version_at_or_before_it(table: Path, time_ms: int, version: int) -> None:
    set_times(table, 1000, 2000, 1500, 3000)  # the third clock was slow: it counts as 2001
    assert opened(table, timestamp_ms=time_ms).version == version
    assert [time for _, time, _ in opened(table).history()] == [3000, 2001, 2000, 1000]
    assert opened(table).timestamp_ms == 3000


def test_a_time_before_the_first_version_is_refused_with_the_range(table: Path) -> None:
    set_times(table, 1000, 2000, 3000, 4000)
    with pytest.raises(VersionNotFound, match=r"oldest version, 0, is from 1970-01-01T00:00:01\.000Z"):
        opened(table, timestamp_ms=999)


def test_version_and_time_exclude_each_other(table: Path) -> None:
    with pytest.raises(InvalidOption):
        opened(table, 1, 1)


@pytest.mark.parametrize(("time_ms", "version"), [(1000, 0), (4999, 0), (5000, 1), (6999, 1), (7000, 2), (99999, 2)])
def test_in_commit_timestamps_win_over_file_times(tmp_path: Path, time_ms: int, version: int) -> None:
    marks = {"delta.inCommitTimestampEnablementVersion": "1", "delta.inCommitTimestampEnablementTimestamp": "5000"}
    write_commit(tmp_path, 0, metadata(), PROTOCOL)
    write_commit(
        tmp_path,
        1,
        {"commitInfo": {"inCommitTimestamp": 5000}},
        metadata({"delta.enableInCommitTimestamps": "true", **marks}),
    )
    write_commit(tmp_path, 2, {"commitInfo": {"inCommitTimestamp": 7000}})
    set_times(tmp_path, 1000, 900_000, 100)
    assert opened(tmp_path, timestamp_ms=time_ms).version == version
    assert opened(tmp_path).timestamp_ms == 7000
    assert [time for _, time, _ in opened(tmp_path).history()] == [7000, 5000, 1000]


def test_history_is_newest_first_and_limited(table: Path) -> None:
    assert [(version, info.get("operation")) for version, _, info in opened(table).history(3)] == [
        (3, "WRITE"),
        (2, "SET"),
        (1, None),
    ]
    assert [version for version, _, _ in opened(table, 1).history()] == [1, 0]


PARSED = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct([("id", pa.int32()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])),
        ("maxValues", pa.struct([("price", pa.decimal128(6, 2)), ("local", pa.timestamp("us"))])),
    ]
)


def test_statistics_come_from_the_struct_where_there_is_no_text(tmp_path: Path) -> None:
    column = pa.struct([*ADD_COLUMN, ("stats_parsed", PARSED)])
    parsed = {
        "numRecords": 2,
        "minValues": {
            "id": 1,
            "day": dt.date(2024, 2, 3),
            "at": dt.datetime(2024, 1, 1, 0, 0, 0, 123000, dt.timezone.utc),
        },
        "maxValues": {"price": Decimal("1.50"), "local": dt.datetime(2024, 1, 1, 12)},
    }
    plain = {"partitionValues": [], "size": 1, "modificationTime": 1, "dataChange": False}
    rows = [
        *({key: paired(row)[key] for key in row} for row in FIRST),
        {"add": {"path": "struct", **plain, "stats_parsed": parsed}},
        {"add": {"path": "both", **plain, "stats": '{"numRecords":7}', "stats_parsed": parsed}},
        {"add": {"path": "none", **plain}},
    ]
    schema = pa.schema([("add", column) if field.name == "add" else field for field in CHECKPOINT])
    (tmp_path / "_delta_log").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "_delta_log" / f"{2:020d}.checkpoint.parquet")
    found = {row["path"]: row["stats"] for row in opened(tmp_path).files().to_pylist()}
    assert found["both"] == '{"numRecords":7}'
    assert found["none"] is None
    assert json.loads(found["struct"]) == {
        "numRecords": 2,
        "minValues": {"id": 1, "day": "2024-02-03", "at": "2024-01-01T00:00:00.123Z"},
        "maxValues": {"price": 1.5, "local": "2024-01-01T12:00:00.000"},
    }
