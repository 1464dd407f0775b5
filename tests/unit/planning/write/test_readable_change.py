"""Whether rows of an older schema can be read in a newer one; the pairs are those of the protocol's matrix."""

from __future__ import annotations

import pytest

from widen.model.type_parser import parse_type
from widen.model.types import Field, StructType
from widen.planning.write.readable_change import is_readable_in
from widen.protocol.column_mapping import PHYSICAL_NAME


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
def test_growth(old: str, new: str, expected: bool) -> None:
    assert is_readable_in(parse_type(old), parse_type(new)) is expected


def test_a_column_that_was_dropped_and_added_again_is_another_one() -> None:
    def schema(physical: str) -> StructType:
        integer = parse_type("int")
        return StructType((Field("a", integer, metadata={PHYSICAL_NAME: physical}),))

    assert is_readable_in(schema("x"), schema("x"))
    assert not is_readable_in(schema("x"), schema("y"))
