"""The records of an interrupted load are found by its source files, and no others are."""

from __future__ import annotations

import pytest

from widen.targets.quarantine_tags import MAX_FILES, encode_tag, find_interrupted, merge_tags
from widen.targets.table_format import LoadedFile, NewFiles

A, B, C = (LoadedFile(f"/landing/{name}.jsonl", 10, 1_700_000_000_000) for name in "abc")
CHANGED = LoadedFile("/landing/a.jsonl", 10, 1_700_000_000_001)
MANY = tuple(LoadedFile(f"/landing/{number}.jsonl", 10, 1) for number in range(MAX_FILES + 1))


def new(*files: LoadedFile, table: str = "/tables/t") -> NewFiles:
    return NewFiles(table, files)


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
    assert find_interrupted([encode_tag(earlier)], str, now) == ([encode_tag(earlier)] if is_found else [])


def test_records_of_other_loads_stay() -> None:
    tags = [None, "", "{", "[1]", '{"table":"/tables/t","files":3}']
    assert find_interrupted(tags, lambda tag: tag, new(A)) == []
    assert find_interrupted([encode_tag(new(A))], str, None) == []


def test_the_merged_tag_of_two_loads_is_of_all_their_files() -> None:
    merged = merge_tags([encode_tag(new(A)), None, encode_tag(new(B))])
    assert merged == encode_tag(new(A, B))
    assert merge_tags([None]) is None
