"""Which files a vacuum deletes, and what it leaves in the log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from support.log_table import add, metadata, remove, write_commit
from widen.errors import CorruptFile, RetentionTooShort, StorageRefused, UnsupportedFeatureForWrite
from widen.log.log_store import LogStore
from widen.log.vacuum import plan_vacuum, run_vacuum

DAY_S = 86_400
HEX = "0123456789abcdef0123456789abcdef"
PROTOCOL = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}}
ID = "1f2e3d4c-0000-4000-8000-000000000001"
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
VECTOR_FILE = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
"""The example of PROTOCOL.md#deletion-vector-descriptor-schema."""


def write(table: Path, path: str, days: float = 30) -> str:
    """Write a file that was last changed so many days ago."""
    target = table / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"content")
    age(target, days)
    return path


def age(path: Path, days: float) -> None:
    moment = time.time() - days * DAY_S
    os.utime(path, (moment, moment))


def days_ago_ms(days: float) -> int:
    return int((time.time() - days * DAY_S) * 1000)


def commit(table: Path, version: int, *lines: dict[str, Any], days: float = 30) -> None:
    age(write_commit(table, version, *lines), days)


def planned(table: Path, **options: Any) -> list[str]:
    return [entry.path for entry in plan_vacuum(LogStore(str(table)), **options).files]


def vacuum(table: Path, **options: Any) -> None:
    done = run_vacuum(plan_vacuum(LogStore(str(table)), **options))
    assert isinstance(done, tuple)


def infos(table: Path) -> list[dict[str, Any]]:
    commits = sorted((table / "_delta_log").glob("*.json"))
    return [json.loads(commit.read_text().splitlines()[0]).get("commitInfo", {}) for commit in commits]


def test_it_deletes_what_was_removed_before_the_retention(tmp_path: Path) -> None:
    for name in ("live", "long ago", "lately", "orphan"):
        write(tmp_path, name)
    write(tmp_path, "young orphan", days=1)
    commit(tmp_path, 0, PROTOCOL, metadata(), add("live"), add("long%20ago"), add("lately"))
    commit(tmp_path, 1, remove("long%20ago", deletionTimestamp=days_ago_ms(8)), days=8)
    commit(tmp_path, 2, remove("lately", deletionTimestamp=days_ago_ms(6)), days=6)
    assert planned(tmp_path) == ["long ago", "orphan"]
    vacuum(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_delta_log", "lately", "live", "young orphan"]
    start, end = infos(tmp_path)[-2:]
    assert (start["operation"], start["operationParameters"]) == (
        "VACUUM START", {"retentionCheckEnabled": True, "defaultRetentionMillis": 7 * DAY_S * 1000},
    )  # fmt: skip
    assert start["operationMetrics"] == {"numFilesToDelete": "2", "sizeOfDataToDelete": "14"}
    assert (end["operation"], end["operationParameters"]) == ("VACUUM END", {"status": "COMPLETED"})
    assert end["operationMetrics"] == {"numDeletedFiles": "2", "numVacuumedDirectories": "2"}
    assert planned(tmp_path) == []


def test_a_file_stays_if_its_removal_was_planned_before_the_retention_but_committed_within_it(tmp_path: Path) -> None:
    write(tmp_path, "a")
    commit(tmp_path, 0, PROTOCOL, metadata(), add("a"))
    commit(tmp_path, 1, remove("a", deletionTimestamp=days_ago_ms(7.2)), days=6.9)
    assert planned(tmp_path) == []
    age(tmp_path / "_delta_log" / f"{1:020d}.json", 7.1)
    assert planned(tmp_path) == ["a"]


def test_change_files_and_vectors_stay_as_long_as_their_versions(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, VECTOR_FILE)
    for name in ("old", "new"):
        write(tmp_path, f"_change_data/{name}")
    cdc = {"path": "_change_data/old", "partitionValues": {}, "size": 7, "dataChange": False}
    commit(tmp_path, 0, PROTOCOL, metadata(), add("a", deletionVector=VECTOR), {"cdc": cdc})
    commit(tmp_path, 1, {"cdc": {**cdc, "path": "_change_data/new"}}, days=1)
    assert planned(tmp_path) == ["_change_data/old"]
    commit(tmp_path, 2, remove("a", deletionVector=VECTOR, deletionTimestamp=days_ago_ms(10)), days=1)
    assert planned(tmp_path) == ["_change_data/old"]
    for version in (1, 2):
        age(tmp_path / "_delta_log" / f"{version:020d}.json", 8)
    assert planned(tmp_path) == ["_change_data/new", "_change_data/old", "a", VECTOR_FILE]


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log/_sidecars/a.parquet",
        "_delta_log/00000000000000000007.json.tmp",
        "_delta_index/a",
        ".hidden",
        "_started_1",
        "_folder/a",
        "p=1/.hidden/a",
        "_widen/other",
        "metadata/v1.metadata.json",
        "_other=1/a",
    ],
)
def test_hidden_files_stay(tmp_path: Path, path: str) -> None:
    write(tmp_path, path)
    commit(tmp_path, 0, PROTOCOL, metadata())
    assert planned(tmp_path) == []


@pytest.mark.parametrize(
    "path",
    [
        "_day=1/a",
        "_change_data/a",
        "_change_data/day=1/a",
        f"_widen/scans/{HEX}/_spark_metadata/0",
        f"{HEX}/_temporary/0/_temporary/a.parquet",
        f"_change_data/{HEX}/_temporary/0/a.parquet",
        f"{HEX}/.{VECTOR_FILE}.{HEX}.widen-staged",
        f"_delta_log/.{1:020d}.json.{HEX}.widen-staged",
        f"_delta_log/.widen-{HEX}.probe",
        ".a.crc",
        "day=1/.a.crc",
    ],
)
def test_partitions_change_files_and_our_own_leftovers_do_not_count_as_hidden(tmp_path: Path, path: str) -> None:
    write(tmp_path, path)
    schema = {"type": "struct", "fields": [{"name": "_day", "type": "string", "nullable": True, "metadata": {}}]}
    content = {**metadata(partitions=("_day",))["metaData"], "schemaString": json.dumps(schema)}
    commit(tmp_path, 0, PROTOCOL, {"metaData": content})
    assert planned(tmp_path) == [path]


def test_a_checksum_file_stays_with_its_file(tmp_path: Path) -> None:
    write(tmp_path, "day=1/a")
    write(tmp_path, "day=1/.a.crc")
    commit(tmp_path, 0, PROTOCOL, metadata(), add("day=1/a"))
    assert planned(tmp_path) == []


@pytest.mark.parametrize(
    "spelling",
    ["p=a%2520b/x%23", "{place}/p=a%2520b/x%23", "file:{place}/p=a%2520b/x%23", "file://{place}/p=a%2520b/x%23",
     "{place}/../table/p=a%2520b//x%23", "./p=a%2520b/x%23", "p=a%20b/x#", "/another/link/table/p=a%2520b/x%23",
     "s3://other/alias/p=a%2520b/x%23"],
)  # fmt: skip
def test_every_spelling_of_a_path_keeps_its_file(tmp_path: Path, spelling: str) -> None:
    place = tmp_path / "table"
    write(place, "p=a%20b/x#")
    commit(place, 0, PROTOCOL, metadata(), add(spelling.format(place=place)))
    assert planned(place) == []


def test_nothing_outside_of_the_table_is_touched(tmp_path: Path) -> None:
    """A clone names the files of its source by absolute paths; a link leads out of the table."""
    place, source = tmp_path / "clone", tmp_path / "source"
    write(source, "a")
    write(source, "unknown")
    commit(place, 0, PROTOCOL, metadata(), add(f"file://{source}/a"))
    commit(place, 1, remove(f"file://{source}/a", deletionTimestamp=days_ago_ms(20)), days=20)
    (place / "linked").symlink_to(source, target_is_directory=True)
    assert planned(place) == []
    vacuum(place)
    assert (source / "a").exists()
    assert (source / "unknown").exists()


def test_another_table_in_a_folder_of_the_table_is_not_touched(tmp_path: Path) -> None:
    for path in ("orphan", "sub/inner/a", "sub/orphan", "sub/innermost"):
        write(tmp_path, path)
    commit(tmp_path / "sub" / "inner", 0, PROTOCOL, metadata(), add("a"))
    commit(tmp_path, 0, PROTOCOL, metadata())
    assert planned(tmp_path) == ["orphan", "sub/innermost", "sub/orphan"]


def test_less_than_the_retention_of_the_table_needs_a_word(tmp_path: Path) -> None:
    write(tmp_path, "orphan", days=0.1)
    commit(tmp_path, 0, PROTOCOL, metadata({"delta.deletedFileRetentionDuration": "interval 2 days"}))
    with pytest.raises(RetentionTooShort, match="for 48 hours, the retention of the table, not for 0"):
        planned(tmp_path, requested_ms=0)
    assert planned(tmp_path, requested_ms=2 * DAY_S * 1000) == []
    assert planned(tmp_path, requested_ms=0, force=True) == ["orphan"]
    vacuum(tmp_path, requested_ms=0, force=True)
    assert infos(tmp_path)[-2]["operationParameters"] == {
        "retentionCheckEnabled": False, "defaultRetentionMillis": 2 * DAY_S * 1000, "specifiedRetentionMillis": 0,
    }  # fmt: skip


def test_a_staged_commit_is_kept_for_a_day_in_any_case(tmp_path: Path) -> None:
    write(tmp_path, f"_delta_log/.{1:020d}.json.{HEX}.widen-staged", days=0.5)
    commit(tmp_path, 0, PROTOCOL, metadata())
    assert planned(tmp_path, requested_ms=0, force=True) == []


def test_a_table_with_a_feature_that_is_unknown_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "orphan")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["magic"]}
    commit(tmp_path, 0, {"protocol": protocol}, metadata())
    with pytest.raises(UnsupportedFeatureForWrite):
        planned(tmp_path)


def test_a_damaged_vector_ends_it_before_anything_is_deleted(tmp_path: Path) -> None:
    write(tmp_path, "orphan")
    commit(tmp_path, 0, PROTOCOL, metadata(), add("a", deletionVector={**VECTOR, "pathOrInlineDv": "short"}))
    with pytest.raises(CorruptFile):
        planned(tmp_path)


def test_a_file_that_is_restored_in_between_stays(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")
    commit(tmp_path, 0, PROTOCOL, metadata(), add("a"))
    commit(tmp_path, 1, remove("a", deletionTimestamp=days_ago_ms(20)), days=20)
    plan = plan_vacuum(LogStore(str(tmp_path)))
    commit(tmp_path, 2, add("a"), days=0)
    done = run_vacuum(plan)
    assert isinstance(done, tuple)
    assert [entry.path for entry in done[0].files] == ["b"]
    assert (tmp_path / "a").exists()


def test_a_failed_deletion_is_told_in_the_history(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name)
    commit(tmp_path, 0, PROTOCOL, metadata())
    store = LogStore(str(tmp_path))

    def refuse(paths: list[str]) -> None:
        store.delete(paths[:1])
        raise StorageRefused(location=paths[1], reason="permission denied", fix="")

    with pytest.raises(StorageRefused):
        run_vacuum(plan_vacuum(store), refuse)
    assert infos(tmp_path)[-1]["operationParameters"] == {"status": "FAILED"}
    assert planned(tmp_path) == ["b", "c"]
