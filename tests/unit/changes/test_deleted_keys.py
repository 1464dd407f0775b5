"""Lists of deleted keys that this process writes, and makes one of when there are many."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from widen.changes.deleted_keys import KeyLists
from widen.evolution.key_rules import KEY_TEXT, NUMBER, TEXT
from widen.log.commit_outcome import StagedFiles
from widen.log.log_store import LogStore

DELETIONS = [[("n:1", 2), ("n:2", 5)], [("n:1", 7), ("n:1", 2)], [("n:2", 4), ("n:3", 1)]]
"""Keys with the times of their deletions, in three lists."""


def keys_of(pairs: list[tuple[str, int]]) -> pa.Table:
    times = [Decimal(time) for _, time in pairs]
    columns = {KEY_TEXT: [key for key, _ in pairs], NUMBER: pa.array(times, pa.decimal128(38, 18))}
    return pa.table({**columns, TEXT: pa.nulls(len(pairs), pa.string())})


@pytest.mark.parametrize("at_most", [1, 16])
@pytest.mark.parametrize(
    ("every", "kept"),
    [
        (False, [("n:1", 7), ("n:2", 5), ("n:3", 1)]),
        (True, [("n:1", 2), ("n:1", 7), ("n:2", 4), ("n:2", 5), ("n:3", 1)]),
    ],
)
def test_lists_keep_the_newest_deletion_of_a_key_or_every_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most: int, every: bool, kept: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr("widen.changes.deleted_keys.MAX_LISTS", at_most)
    store, head, no_spark = LogStore(str(tmp_path)), 0, None
    for number, pairs in enumerate(DELETIONS, start=1):
        spark: Any = no_spark
        head = KeyLists(store, head, every=every).add(keys_of(pairs), number, StagedFiles(), spark)
    found = KeyLists(store, head, every=every)
    rows = found.read_here()
    assert rows is not None
    assert sorted((row[KEY_TEXT], int(row[NUMBER])) for row in rows.to_pylist()) == kept
    assert len(found._lists.files) == (1 if at_most == 1 else len(DELETIONS))
