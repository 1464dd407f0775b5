"""Every spelling of a path has the same key; different files have different keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import log_table as log
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.file_list import canonical_path
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot

OUTSIDE = (
    "/o/a%20b",
    "/o/a b",
    "file:/o/a%20b",
    "file:///o/a%20b",
    "FILE:/o/a b",
    "file://localhost/o/a%20b",
    "/o//x/../a%20b",
)
INSIDE = (
    "a%20b",
    "a b",
    "./a b",
    "x/../a%20b",
    "{table}/a%20b",
    "file:{table}/a%20b",
    "file://{table}/a b",
    "file://Localhost{table}/a b",
)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("tags", [None, {"k": "v"}])  # lines with tags are decoded one by one
@pytest.mark.parametrize("spellings", [OUTSIDE, INSIDE], ids=["outside", "inside"])
def test_a_remove_matches_its_add_in_every_spelling(
    tmp_path: Path, spellings: tuple[str, ...], tags: Any, checkpointed: bool
) -> None:
    for number, (one, other) in enumerate((a, b) for a in spellings for b in spellings):
        table = tmp_path / str(number)
        added, removed = (text.format(table=table) for text in (one, other))
        more = {} if tags is None else {"tags": tags}
        log.write_commit(table, 0, log.PROTOCOL, log.metadata(), log.add(added, **more), log.add("stays"))
        store = LogStore(str(table))
        if checkpointed:
            write_checkpoint(open_snapshot(store))
        log.write_commit(table, 1, log.remove(removed), log.add("new"))
        snapshot = open_snapshot(store)
        assert sorted(snapshot.files()["path"].to_pylist()) == ["new", "stays"], (added, removed)
        assert [each.path for each in snapshot.removed_files()] == [removed]


def vector(**more: Any) -> dict[str, Any]:
    return {"storageType": "p", "pathOrInlineDv": "/o/v.bin", "sizeInBytes": 4, "cardinality": 1, **more}


@pytest.mark.parametrize(
    "same", [{}, {"offset": 0}, {"pathOrInlineDv": "file:/o/v.bin"}, {"pathOrInlineDv": "file:///o/%76.bin"}]
)
def test_a_deletion_vector_matches_in_every_spelling(tmp_path: Path, same: dict[str, Any]) -> None:
    log.write_commit(tmp_path, 0, log.PROTOCOL, log.metadata(), log.add("a", deletionVector=vector()))
    log.write_commit(tmp_path, 1, log.remove("a", deletionVector=vector(**same)), log.add("b"))
    assert open_snapshot(LogStore(str(tmp_path))).files()["path"].to_pylist() == ["b"]


def test_different_files_have_different_keys(tmp_path: Path) -> None:
    paths = (
        "a%FF",
        "a%FE",
        "a%2520b",
        "a%20b",
        "/o/a",
        "o/a",
        "s3://o/a",
        "s3://p/a",
        "a+b",
        "A",
        "a:b",
        "file://o/o/a",
        "/o/o/a",
    )
    assert len({canonical_path(path, str(tmp_path)) for path in paths}) == len(paths)
    adds = [log.add("a", deletionVector=vector(offset=number)) for number in (1, 5)]
    log.write_commit(tmp_path, 0, log.PROTOCOL, log.metadata(), *adds, *(log.add(path) for path in paths))
    log.write_commit(tmp_path, 1, log.remove("b"), log.remove("a"))
    assert open_snapshot(LogStore(str(tmp_path))).files().num_rows == len(paths) + 2


@pytest.mark.parametrize("path", ["s3://b/t/x%20y", "s3a://b/t/x y", "S3A://b/t//x%20y", "x y"])
def test_paths_of_object_stores_are_canonical_too(path: str) -> None:
    assert canonical_path(path, "s3://b/t") == canonical_path("x%20y", "s3://b/t") == "x y"
