"""The laws of replay: the newest word wins, however the words are cut into blocks, compacted or checkpointed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from support.log_table import PROTOCOL, add, metadata, remove, write_commit, write_json
from widen.log import log_replay as line_blocks
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot

PATHS = st.sampled_from(["a", "b c", "d%20e", "f\u00e9", 'g"h'])
ACTION = st.tuples(PATHS, st.booleans(), st.integers(0, 9), st.booleans())
COMMITS = st.lists(st.lists(ACTION, max_size=4, unique_by=lambda action: action[0]), min_size=1, max_size=6)
Commits = list[list[tuple[str, bool, int, bool]]]


def _line(path: str, is_add: bool, size: int, is_tagged: bool) -> dict[str, Any]:
    return add(path, size=size, **({"tags": {"t": "1"}} if is_tagged else {})) if is_add else remove(path)


def _expected(commits: Commits) -> dict[str, int]:
    live: dict[str, int] = {}
    for commit in commits:
        for path, is_add, size, _ in commit:
            live.pop(path, None)
            if is_add:
                live[path] = size
    return live


def _live(table: Path) -> list[tuple[str, int]]:
    files = open_snapshot(LogStore(str(table))).files()
    return sorted(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(commits=COMMITS, block_bytes=st.sampled_from([1, 200, 1 << 20]), checkpoint_at=st.integers(0, 6))
def test_the_newest_word_wins(commits: Commits, block_bytes: int, checkpoint_at: int) -> None:
    expected = sorted(_expected(commits).items())
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(line_blocks, "BLOCK_BYTES", block_bytes):
        table = Path(folder)
        write_commit(table, 0, PROTOCOL, metadata())
        for version, actions in enumerate(commits, 1):
            write_commit(table, version, {"commitInfo": {}}, *(_line(*action) for action in actions))
        assert _live(table) == expected
        if checkpoint_at <= len(commits):
            write_checkpoint(open_snapshot(LogStore(folder), checkpoint_at))
            assert open_snapshot(LogStore(folder)).segment.checkpoint is not None
            assert _live(table) == expected


@settings(max_examples=30, deadline=None)
@given(commits=COMMITS)
def test_a_compaction_says_the_same(commits: Commits) -> None:
    newest = {action[0]: action for commit in commits for action in commit}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder)
        write_commit(table, 0, PROTOCOL, metadata(), add("a", size=77), add("z", size=78))
        for version, actions in enumerate(commits, 1):
            write_commit(table, version, *(_line(*action) for action in actions), {"commitInfo": {}})
        before = _live(table)
        lines = [_line(*action) for action in newest.values()]
        write_json(
            table, f"{1:020d}.{max(2, len(commits)):020d}.compacted.json", *lines, {"txn": {"appId": "x", "version": 1}}
        )
        assert _live(table) == before
