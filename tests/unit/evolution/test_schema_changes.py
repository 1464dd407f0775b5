"""What a commit did to columns, as its schemas before and after show: whoever did it, by whatever call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.state import MAPPED, WIDE, after, state
from widen.evolution.schema_changes import schema_changes
from widen.protocol.actions import Metadata
from widen.report.text_format import change_text
from widen.schema.alter import parse_column_changes, parse_drops, parse_new_columns, parse_rename, plan_alter
from widen.schema.feature_removal import plan_mapping_removal
from widen.schema.table_definition import plan_set_properties
from widen.schema.table_state import TableState

COLUMNS = "a int not null, s struct<x: int, y: int, z: int>, b string"


def change_texts(before: TableState, now: TableState) -> list[str]:
    return [change_text(change) for change in schema_changes(before.schema, now.schema)]


def alter(path: str, **wanted: Any) -> Callable[[TableState], Any]:
    return lambda before: parse_column_changes(before.schema, {path: wanted})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (alter("a", comment="it's"), ['changed a from no comment to comment "it\'s"']),
        (alter("a", comment=""), ["changed a from no comment to comment ''"]),
        (alter("a", nullable=True), ["changed a from not null to nullable"]),
        (alter("b", default="'x'"), ["changed b from no default to default 'x'"]),
        (alter("s.z", first=True), ["moved s.z FIRST"]),
        (alter("a", after="b"), ["moved a AFTER b"]),
        (alter("a", type="bigint", after="b"), ["widened a from int to bigint", "moved a AFTER b"]),
        (lambda before: parse_rename(before.schema, "s.x", "n n"), ["renamed s.x to s.`n n`"]),
        (lambda before: parse_drops(before.schema, ["s"], if_exists=False), ["removed s"]),
        (lambda before: parse_new_columns(before.schema, {"s.n": "date"}), ["added s.n date"]),
    ],
)
def test_every_kind_of_change_has_a_text(asked: Callable[[TableState], Any], text: list[str]) -> None:
    before = state(COLUMNS, {**WIDE, **MAPPED, "delta.feature.allowColumnDefaults": "supported"})
    assert change_texts(before, after(before, plan_alter(before, asked(before)))) == text


def test_as_few_columns_as_can_be_have_moved() -> None:
    before = state("a int, b int, c int, d int, e int")
    now = before.with_schema(state("e int, b int, a int, c int, d int").schema)
    assert change_texts(before, now) == ["moved e FIRST", "moved b AFTER e"]


def test_columns_that_begin_to_be_mapped_are_the_same() -> None:
    before = state(COLUMNS)
    assert change_texts(before, after(before, plan_set_properties(before, MAPPED))) == []


def test_columns_that_are_no_longer_mapped_are_the_same() -> None:
    mapped = state(COLUMNS, MAPPED)
    metadata = plan_mapping_removal(mapped)[0]
    assert isinstance(metadata, Metadata)
    assert change_texts(mapped, replace(mapped, metadata=metadata)) == []
