"""Rows of one version in the columns of another one: only new columns are bridged."""

from __future__ import annotations

import pytest

from widen.model.type_parser import parse_type
from widen.model.types import Field, StructType
from widen.planning.write.change_feed_schema import is_representable_in


def schema(text: str) -> StructType:
    result = parse_type(f"struct<{text}>")
    assert isinstance(result, StructType)
    return result


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a int", "a int", True),
        ("a int", "a int, b string", True),
        ("s struct<x: int>", "s struct<x: int, y: int>", True),
        ("m map<int, array<struct<x: int>>>", "m map<int, array<struct<x: int, y: int>>>", True),
        ("v void", "v int", True),
        ("a smallint", "a int", False),
        ("a array<smallint>", "a array<int>", False),
        ("m map<smallint, int>", "m map<int, int>", False),
        ("a int, b int", "a int", False),
        ("a int", "b int", False),
        ("a int", "a string", False),
        ("a struct<x: int>", "a array<int>", False),
    ],
)
def test_what_came_later_may_only_add(before: str, after: str, expected: bool) -> None:
    assert is_representable_in(schema(before), 1, schema(after), 2) is expected
    assert is_representable_in(schema(after), 2, schema(before), 1) is expected


@pytest.mark.parametrize(
    ("rows", "shown", "expected"),
    [
        (("a int not null", 1), ("a int", 2), True),
        (("a int", 2), ("a int not null", 1), False),
        (("a int", 1), ("a int not null", 2), False),
        (("a int not null", 2), ("a int", 1), True),
    ],
)
def test_null_is_told_only_where_it_may_be(rows: tuple[str, int], shown: tuple[str, int], expected: bool) -> None:
    assert is_representable_in(schema(rows[0]), rows[1], schema(shown[0]), shown[1]) is expected


def test_a_column_that_was_dropped_and_came_back_is_another_one() -> None:
    def column(number: int) -> StructType:
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p{number}"}
        return StructType((Field("a", schema("a int").fields[0].type, metadata=metadata),))

    assert is_representable_in(column(1), 1, column(1), 2)
    assert not is_representable_in(column(1), 1, column(2), 2)
