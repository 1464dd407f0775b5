"""Counts of all leaves in commitInfo: what was counted is read back, and the log stays small."""

from __future__ import annotations

import random

import msgspec
import pytest

from widen.model.column_path import Path
from widen.model.types import LONG, STRING, VOID, ArrayType, Field, StructType
from widen.protocol.actions import Add
from widen.protocol.parquet_files import LEAF_COUNTS, file_tag, move_to_commit_info, read_leaf_counts, stored_leaves

ITEMS = StructType((Field("sku", STRING), Field("note", VOID)))
SCHEMA = StructType((Field("id", LONG), Field("items", ArrayType(ITEMS)), Field("day", STRING)))
ID, SKU = ("id",), ("items", "element", "sku")


def add(path: str, values: dict[Path, int | None] | None, **tags: str) -> Add:
    tags |= {} if values is None else {LEAF_COUNTS: file_tag(values)}
    content = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return Add(path=path, tags=tags or None, **content)


def test_counts_move_from_tags_to_commit_info_and_back() -> None:
    tracked = {ID: 3, SKU: 1_000_000, ("_row-id-col-7",): 3}
    adds = [add("a", tracked, other="x"), add("b", {ID: 0, SKU: None}), add("c", None), add("d", {("x",): 5})]
    actions, info = move_to_commit_info(adds)
    assert [action.tags for action in actions] == [{"other": "x"}, None, None, None]
    assert read_leaf_counts(info, adds, stored_leaves(SCHEMA, ["day"])) == {
        "a": {ID: 3, SKU: 1_000_000},
        "b": {ID: 0},
        "c": {},
        "d": {},
    }


def test_without_tags_nothing_changes() -> None:
    assert move_to_commit_info([add("a", None)]) == ([add("a", None)], {})


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "text",
        {"leaves": "", "values": ""},
        {"leaves": None, "values": 7},
        {"leaves": "00000000", "values": "\u00e9"},
    ],
)
def test_other_entries_have_no_counts(entry: object) -> None:
    assert read_leaf_counts({LEAF_COUNTS: entry}, [add("a", None)], stored_leaves(SCHEMA)) == {}


def test_counts_belong_to_the_leaves_of_one_schema() -> None:
    adds = [add("a", {ID: 3, SKU: 1})]
    _, info = move_to_commit_info(adds)
    assert read_leaf_counts(info, adds, stored_leaves(SCHEMA)) == {}, "with the partition column as a leaf of the file"
    assert read_leaf_counts(info, [*adds, *adds], stored_leaves(SCHEMA, ["day"])) == {}, "of another number of files"


@pytest.mark.parametrize(("leaves", "most_bytes"), [(137, 360), (2000, 3_100)])
def test_an_interval_adds_few_bytes_to_the_log(leaves: int, most_bytes: int) -> None:
    dice = random.Random(leaves)
    rows = 100_000
    values = {(f"field_{n}", "value"): dice.choice((rows, rows, dice.randrange(rows))) for n in range(leaves)}
    _, info = move_to_commit_info([add("a", values)])
    assert len(msgspec.json.encode(info)) <= most_bytes
