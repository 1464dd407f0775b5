"""Versions that a cleanup deletes while a change is being made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from widen.errors import BaseExpired, StorageRefused, TableAlreadyExists
from widen.log import commit_files as commit_timestamps
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import Committed, Conflicted, Unknown, commit
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.protocol.actions import Action, Add, Metadata, Protocol

SCHEMA = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
FIRST: list[Action] = [
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(id="m", schema_string=json.dumps(SCHEMA), partition_columns=()),
]


def add(path: str) -> Add:
    return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


@pytest.fixture
def base(tmp_path: Path) -> Snapshot:
    """Version 0 of a table that has version 3 by now, and a checkpoint of it."""
    store = LogStore(str(tmp_path))
    first = commit(store, None, FIRST, "CREATE TABLE", {})
    assert isinstance(first, Committed)
    for number in range(3):
        commit(store, open_snapshot(store), [add(f"f{number}")], "WRITE", {}).or_raise()
    write_checkpoint(open_snapshot(store))
    return first.snapshot


def clean_up(base: Snapshot) -> None:
    for version in range(3):
        os.unlink(f"{base.location}/_delta_log/{version:020d}.json")


def test_a_version_that_was_cleaned_up_is_not_written_again(base: Snapshot) -> None:
    clean_up(base)
    outcome = commit(base.store, base, [add("late")], "WRITE", {})
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, BaseExpired)
    assert not base.store.find(f"_delta_log/{1:020d}.json")
    newest = open_snapshot(base.store)
    assert isinstance(commit(base.store, newest, [add("late")], "WRITE", {}), Committed)
    assert sorted(open_snapshot(base.store).files()["path"].to_pylist()) == ["f0", "f1", "f2", "late"]


def test_successors_of_a_version_that_was_cleaned_up_are_not_believed(base: Snapshot) -> None:
    os.unlink(f"{base.location}/_delta_log/{0:020d}.json")
    outcome = commit(base.store, base, [add("late")], "WRITE", {})
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, BaseExpired)


def test_the_newest_version_may_have_a_checkpoint_alone(base: Snapshot) -> None:
    clean_up(base)
    os.unlink(f"{base.location}/_delta_log/{3:020d}.json")
    outcome = commit(base.store, open_snapshot(base.store), [add("late")], "WRITE", {})
    assert isinstance(outcome, Committed)
    assert outcome.version == 4


def test_a_table_whose_first_version_was_cleaned_up_is_not_made_again(base: Snapshot) -> None:
    clean_up(base)
    outcome = commit(base.store, None, FIRST, "CREATE TABLE", {})
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, TableAlreadyExists)
    assert not base.store.find(f"_delta_log/{0:020d}.json")


def test_a_base_that_is_cleaned_up_right_before_the_log_entry_is_written_is_not_claimed(
    base: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = LogStore.put_if_absent

    def put_late(store: LogStore, path: str, data: bytes) -> bool:
        clean_up(base)
        return put(store, path, data)

    monkeypatch.setattr(LogStore, "put_if_absent", put_late)
    outcome = commit(base.store, base, [add("late")], "WRITE", {})
    assert isinstance(outcome, Unknown)
    assert outcome.error.fields["version"] == 1


def test_a_version_is_not_claimed_because_another_late_writer_wrote_the_one_before(
    base: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers began with version 0 and version 1, and went on when both, and their successors, were gone."""
    second = open_snapshot(base.store, 1)
    put = LogStore.put_if_absent

    def put_after_the_other(store: LogStore, path: str, data: bytes) -> bool:
        if path.endswith("2.json"):
            clean_up(base)
            put(store, f"_delta_log/{1:020d}.json", data)
        return put(store, path, data)

    monkeypatch.setattr(LogStore, "put_if_absent", put_after_the_other)
    outcome = commit(base.store, second, [add("late")], "WRITE", {})
    assert isinstance(outcome, Unknown)
    assert outcome.error.fields["version"] == 2


def test_a_winner_that_wrote_too_late_proves_nothing_either(base: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    put = LogStore.put_if_absent

    def put_after_the_other(store: LogStore, path: str, data: bytes) -> bool:
        if path.endswith("1.json"):
            clean_up(base)
            put(store, path, b'{"commitInfo":{"txnId":"other"}}\n')
        return put(store, path, data)

    monkeypatch.setattr(LogStore, "put_if_absent", put_after_the_other)
    outcome = commit(base.store, base, [add("late")], "WRITE", {})
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, BaseExpired)
    assert not base.store.find(f"_delta_log/{2:020d}.json")


@pytest.mark.parametrize(("pause_ms", "outcome"), [(0, Committed), (3_600_000, Unknown)])
def test_a_store_that_fails_after_the_log_entry_is_written_makes_only_a_paused_commit_unknown(
    base: Snapshot, monkeypatch: pytest.MonkeyPatch, pause_ms: int, outcome: type
) -> None:
    put = LogStore.put_if_absent

    def put_and_fail_later(store: LogStore, path: str, data: bytes) -> bool:
        written = put(store, path, data)
        now_ms = commit_timestamps.current_ms()
        monkeypatch.setattr("widen.log.commit.current_ms", lambda: now_ms + pause_ms)
        monkeypatch.setattr(LogStore, "find", refuse)
        return written

    def refuse(store: LogStore, path: str) -> bool:
        raise StorageRefused(location=path, reason="the store refused", fix="")

    newest = open_snapshot(base.store)
    monkeypatch.setattr(LogStore, "put_if_absent", put_and_fail_later)
    assert isinstance(commit(base.store, newest, [add("late")], "WRITE", {}), outcome)
