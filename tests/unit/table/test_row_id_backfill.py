"""Backfill: every file gets row ids of its own, none comes back that has gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.log_table import add, metadata, remove, write_commit
from widen.errors import AttemptsExhausted
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.protocol.actions import Remove
from widen.table import column_operations as module
from widen.table.column_operations import backfill_row_ids

FEATURES = ["domainMetadata", "rowTracking"]
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES}}


def table(place: Path) -> LogStore:
    files = [add(f"{name}.parquet", stats=f'{{"numRecords":{rows}}}') for name, rows in (("a", 3), ("b", 2))]
    write_commit(place, 0, PROTOCOL, metadata(partitions=()), *files)
    return LogStore(str(place))


def lines(place: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def ranges(place: Path, version: int) -> dict[str, tuple[int, int, bool]]:
    found = [line["add"] for line in lines(place, version) if "add" in line]
    return {a["path"]: (a["baseRowId"], a["defaultRowCommitVersion"], a["dataChange"]) for a in found}


def test_files_without_ids_get_some_and_the_highest_is_noted(tmp_path: Path) -> None:
    assert backfill_row_ids(table(tmp_path)).version == 1
    first, second = (ranges(tmp_path, 1)[f"{name}.parquet"] for name in "ab")
    assert (first[0], second[0]) in ((0, 3), (2, 0))
    assert first[1:] == second[1:] == (1, False)
    info, *_, domain = lines(tmp_path, 1)
    assert info["commitInfo"]["operation"] == "ROW TRACKING BACKFILL"
    assert domain["domainMetadata"] == {
        "domain": "delta.rowTracking",
        "configuration": '{"rowIdHighWaterMark":4}',
        "removed": False,
    }
    assert backfill_row_ids(LogStore(str(tmp_path))).version == 1  # there is nothing left to do


def test_many_files_take_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_PER_COMMIT", 1)
    assert backfill_row_ids(table(tmp_path)).version == 2
    said = [lines(tmp_path, version)[0]["commitInfo"]["operationParameters"] for version in (1, 2)]
    assert said == [{"batchId": 0}, {"batchId": 1}]
    taken = [ids for version in (1, 2) for ids in ranges(tmp_path, version).values()]
    assert sorted(first for first, *_ in taken) in ([0, 2], [0, 3])


def test_a_file_that_is_removed_meanwhile_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, tries = table(tmp_path), []

    def raced(*args: Any, **more: Any) -> Any:
        if not tries:
            write_commit(tmp_path, 1, {"commitInfo": {}}, remove("a.parquet"))
        tries.append(len(args[2]))
        return commit(*args, **more)

    monkeypatch.setattr(module, "commit", raced)
    snapshot = backfill_row_ids(store)
    assert tries == [2, 1]
    assert snapshot.files()["path"].to_pylist() == ["b.parquet"]


def test_who_loses_every_race_tells_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table(tmp_path)
    monkeypatch.setattr(module, "ATTEMPTS", 2)

    def raced(found: LogStore, base: Any, *rest: Any, **more: Any) -> Any:
        commit(found, base, [Remove(path="x", data_change=False)], "OTHER", {}).or_raise()
        return commit(found, base, *rest, **more)

    monkeypatch.setattr(module, "commit", raced)
    with pytest.raises(AttemptsExhausted):
        backfill_row_ids(store)
