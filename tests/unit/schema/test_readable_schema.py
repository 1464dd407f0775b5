"""Rows of one version in the schema of another: scans widen types; the change data feed only bridges new columns."""

from __future__ import annotations

import pytest

from widen.model.schema_json import parse_type
from widen.model.types import LONG, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.schema.growth import has_same_columns, is_readable_in, is_representable_in


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
def test_the_later_version_may_only_have_new_columns(before: str, after: str, expected: bool) -> None:
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
def test_nulls_are_returned_only_in_nullable_columns(
    rows: tuple[str, int], shown: tuple[str, int], expected: bool
) -> None:
    assert is_representable_in(schema(rows[0]), rows[1], schema(shown[0]), shown[1]) is expected


def test_a_column_that_was_dropped_and_came_back_is_another_one() -> None:
    def column(number: int) -> StructType:
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p{number}"}
        return StructType((Field("a", schema("a int").fields[0].type, metadata=metadata),))

    assert is_representable_in(column(1), 1, column(1), 2)
    assert not is_representable_in(column(1), 1, column(2), 2)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("struct<a: int>", "struct<a: bigint, b: string>", True),
        ("struct<a: bigint>", "struct<a: int>", False),
        ("struct<a: int>", "struct<a: string>", False),
        ("struct<a: int>", "struct<b: int>", False),
        ("struct<a: int, b: int>", "struct<a: int>", False),
        ("struct<a: int>", "struct<A: int>", False),
        ("array<struct<a: date>>", "array<struct<a: timestamp_ntz, b: int>>", True),
        ("array<int>", "int", False),
        ("map<string, int>", "map<string, double>", True),
        ("map<int, int>", "map<bigint, int>", True),
        ("void", "string", True),
        ("float", "double", True),
        ("bigint", "double", False),
    ],
)
def test_rows_of_an_older_schema_are_readable(old: str, new: str, expected: bool) -> None:
    assert is_readable_in(parse_type(old), parse_type(new)) is expected


def test_rows_of_a_column_that_was_added_again_are_not_readable() -> None:
    def schema(physical: str) -> StructType:
        integer = parse_type("int")
        return StructType((Field("a", integer, metadata={PHYSICAL_NAME: physical}),))

    assert is_readable_in(schema("x"), schema("x"))
    assert not is_readable_in(schema("x"), schema("y"))
    assert not is_readable_in(schema("x"), schema("y"), may_drop=True)


@pytest.mark.parametrize(("physical", "expected"), [("a", True), ("col-1f", False)])
def test_a_column_stays_the_same_when_column_mapping_is_enabled(physical: str, *, expected: bool) -> None:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
    before, after = (StructType((Field("a", LONG, metadata=each),)) for each in ({}, metadata))
    for old, new in ((before, after), (after, before)):
        assert has_same_columns(old, new) is expected
        assert is_readable_in(old, new, may_drop=True) is expected
        assert is_representable_in(old, 1, new, 2) is expected
