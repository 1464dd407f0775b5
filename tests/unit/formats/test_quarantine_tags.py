"""The records of an interrupted load are found by its source files, and no others are."""

from __future__ import annotations

import pytest

from widen.formats.quarantine_tags import MAX_FILES, TAG, find_interrupted, with_tag
from widen.formats.table_format import LoadedFile, NewFiles
from widen.protocol.actions import Add

A, B, C = (LoadedFile(f"/landing/{name}.jsonl", 10, 1_700_000_000_000) for name in "abc")
CHANGED = LoadedFile("/landing/a.jsonl", 10, 1_700_000_000_001)
MANY = tuple(LoadedFile(f"/landing/{number}.jsonl", 10, 1) for number in range(MAX_FILES + 1))


def new(*files: LoadedFile, table: str = "/tables/t") -> NewFiles:
    return NewFiles(table, files)


def add(tags: dict[str, str | None] | None = None) -> Add:
    return Add(path="x", partition_values={}, size=1, modification_time=1, data_change=True, tags=tags)


@pytest.mark.parametrize(
    ("earlier", "now", "is_found"),
    [
        (new(A, B), new(A, B), True),
        (new(A, B), new(B, A), True),
        (new(A), new(A, B), True),  # more files have arrived since
        (new(A, B), new(A), False),  # the table has one of them, so the load was not interrupted
        (new(A), new(CHANGED), False),
        (new(A), new(B), False),
        (new(A), new(A, table="/tables/other"), False),
        (new(A, table="file:///tables/t"), new(A), True),
        (new(*MANY), new(*MANY), True),
        (new(*MANY), new(*MANY, A), False),
        (new(A), new(*MANY, A), True),
        (new(), new(A), False),
    ],
)
def test_which_load_replaces_the_records_of_another(earlier: NewFiles, now: NewFiles, is_found: bool) -> None:
    tagged = with_tag([add({"k": "v"})], earlier)
    assert tagged[0].tags is not None
    assert tagged[0].tags["k"] == "v"
    assert find_interrupted(tagged, now) == (tagged if is_found else [])


def test_records_of_other_loads_stay() -> None:
    assert with_tag([add()], None) == [add()]
    adds = [add(), add({TAG: None}), add({TAG: "{"}), add({TAG: "[1]"}), add({TAG: '{"table":"/tables/t","files":3}'})]
    assert find_interrupted(adds, new(A)) == []
    assert find_interrupted(with_tag([add()], new(A)), None) == []
