"""Barriers: empty commits under a checkpoint, and what the history holds before them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.log_table import CHECKPOINT, PROTOCOL, add, metadata, write_commit, write_parquet
from widen.errors import StorageError
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.protocol.actions import Metadata
from widen.schema.feature_removal import REMOVABLE_FEATURES, RemovableFeature
from widen.table import maintenance as checkpoint_barrier
from widen.table.maintenance import ensure_checkpoint, history_contains, write_barrier_commit


def store(table: Path) -> LogStore:
    return LogStore(str(table))


def is_marked(found: Metadata) -> bool:
    return "mark" in found.configuration


MARKED = RemovableFeature(name="marked", is_trace=is_marked)


def test_a_barrier_is_an_empty_commit_with_a_checkpoint(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, PROTOCOL, metadata(partitions=()), add("a.parquet"))
    assert write_barrier_commit(store(tmp_path))
    lines = (tmp_path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    info = json.loads(lines[0])["commitInfo"]
    assert (len(lines), info["operation"], info["operationParameters"]) == (1, "Empty Commit", {})
    segment = open_snapshot(store(tmp_path)).segment
    assert segment.checkpoint is not None
    assert (segment.version, segment.checkpoint.version) == (1, 1)


def test_a_checkpoint_that_is_there_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_commit(tmp_path, 0, PROTOCOL, metadata(partitions=()))
    assert ensure_checkpoint(store(tmp_path), 0)
    monkeypatch.setattr(checkpoint_barrier, "write_checkpoint", lambda _: pytest.fail("written again"))
    assert ensure_checkpoint(store(tmp_path), 0)


def test_a_checkpoint_is_tried_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_commit(tmp_path, 0, PROTOCOL, metadata(partitions=()))
    tries: list[int] = []

    def fails(snapshot: Snapshot) -> None:
        tries.append(snapshot.version)
        raise StorageError(location="there", reason="no", fix="wait")

    monkeypatch.setattr(checkpoint_barrier, "write_checkpoint", fails)
    assert not ensure_checkpoint(store(tmp_path), 0)
    assert tries == [0, 0, 0]


def history(table: Path, *marked: int, last: int = 4) -> None:
    """Versions 0 to ``last``, each with its own metadata; some of them marked."""
    for version in range(last + 1):
        configuration = {"mark": "x"} if version in marked else {}
        head = [PROTOCOL] if version == 0 else []
        write_commit(table, version, *head, metadata(configuration, ()), add(f"{version}.parquet"))


@pytest.mark.parametrize(("marked", "expected"), [((), False), ((0,), True), ((2,), True), ((4,), True)])
def test_every_commit_that_is_left_is_looked_at(tmp_path: Path, marked: tuple[int, ...], expected: bool) -> None:
    history(tmp_path, *marked)
    assert history_contains(open_snapshot(store(tmp_path)), MARKED) is expected


def test_later_versions_than_the_one_asked_for_do_not_count(tmp_path: Path) -> None:
    history(tmp_path, 4)
    assert not history_contains(open_snapshot(store(tmp_path), 3), MARKED)


@pytest.mark.parametrize("configuration", [{}, {"mark": "x"}])
def test_the_oldest_checkpoint_stands_for_what_is_gone(tmp_path: Path, configuration: dict[str, str]) -> None:
    write_commit(tmp_path, 2, add("2.parquet"))
    write_commit(tmp_path, 3, add("3.parquet"))
    write_parquet(tmp_path, f"{2:020d}.checkpoint.parquet", CHECKPOINT, PROTOCOL, metadata(configuration, ()))
    assert history_contains(open_snapshot(store(tmp_path)), MARKED) is bool(configuration)


def test_commits_before_the_oldest_checkpoint_are_looked_at_too(tmp_path: Path) -> None:
    history(tmp_path, 0)
    write_parquet(tmp_path, f"{2:020d}.checkpoint.parquet", CHECKPOINT, PROTOCOL, metadata(partitions=()))
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    assert history_contains(open_snapshot(store(tmp_path)), MARKED)


VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40}


@pytest.mark.parametrize("kind", ["add", "remove"])
def test_a_deletion_vector_of_a_commit_is_a_trace(tmp_path: Path, kind: str) -> None:
    history(tmp_path)
    row = REMOVABLE_FEATURES["deletionVectors"]
    assert not history_contains(open_snapshot(store(tmp_path)), row)
    action = add("4.parquet") if kind == "add" else {"remove": {"path": "4.parquet", "dataChange": True}}
    action[kind]["deletionVector"] = {**VECTOR, "cardinality": 6}
    write_commit(tmp_path, 5, action)
    write_commit(tmp_path, 6, {"remove": {"path": "4.parquet", "dataChange": True}})
    assert history_contains(open_snapshot(store(tmp_path)), row)


def test_a_checkpoint_with_a_sidecar_is_a_trace(tmp_path: Path) -> None:
    history(tmp_path)
    row = REMOVABLE_FEATURES["v2Checkpoint"]
    assert not history_contains(open_snapshot(store(tmp_path)), row)
    name = f"{4:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"
    write_parquet(tmp_path, name, CHECKPOINT, PROTOCOL, metadata(partitions=()), add("4.parquet"))
    assert history_contains(open_snapshot(store(tmp_path)), row)
