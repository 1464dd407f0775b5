"""What the metadata of a column says of its values."""

from __future__ import annotations

import pytest

from widen.errors import CorruptLog
from widen.model.type_parser import parse_type
from widen.model.types import INTEGER, Field
from widen.protocol.column_metadata import (
    Identity,
    find_default,
    find_generation,
    find_identity,
    find_invariant,
    has_generated_values,
    text_limits,
)

KEY = {"delta.identity.start": 10, "delta.identity.step": -5, "delta.identity.allowExplicitInsert": True}


def field(kind: str = "bigint", **metadata: object) -> Field:
    return Field("c", parse_type(kind), metadata=metadata)


def test_a_plain_column_has_no_rules() -> None:
    plain = field()
    found = (find_default(plain), find_generation(plain), find_identity(plain), find_invariant(plain))
    assert (found, text_limits(plain), has_generated_values(plain)) == ((None, None, None, None), {}, False)


def test_an_identity_goes_on_in_the_direction_of_its_step() -> None:
    found = find_identity(field(**KEY))
    assert found == Identity(10, -5, None, True)
    assert found.advance(5) == 5
    marked = find_identity(field(**KEY, **{"delta.identity.highWaterMark": -15}))
    assert marked is not None
    assert (marked.advance(-20), marked.advance(0)) == (-20, -15)


@pytest.mark.parametrize("missing", ["delta.identity.step", "delta.identity.allowExplicitInsert"])
def test_an_identity_that_is_not_complete_is_told_with_its_column(missing: str) -> None:
    with pytest.raises(CorruptLog, match="column c: its identity metadata are incomplete"):
        find_identity(field(**{key: value for key, value in KEY.items() if key != missing}))


def test_an_invariant_is_json_in_json() -> None:
    assert find_invariant(field(**{"delta.invariants": '{"expression":{"expression":"c > 3"}}'})) == "c > 3"
    for broken in ("c > 3", "{}", '{"expression":"c > 3"}', 7):
        with pytest.raises(CorruptLog, match="its invariant cannot be read"):
            find_invariant(field(**{"delta.invariants": broken}))


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        ("string", "varchar(5)", {(): 5}),
        ("string", "CHAR(5)", {(): 5}),
        ("string", "string", {}),
        ("array<string>", "array<varchar(2)>", {("element",): 2}),
        ("map<string,string>", "map<char(1),string>", {("key",): 1}),
        (
            "struct<a:string,b:array<map<string,string>>,c:binary>",
            "struct<a:char(3),b:array<map<string,varchar(4)>>,c:binary>",
            {("a",): 3, ("b", "element", "value"): 4},
        ),
    ],
)
def test_lengths_of_texts_stand_in_the_type_that_spark_leaves(
    kind: str, said: str, expected: dict[tuple[str, ...], int]
) -> None:
    assert text_limits(field(kind, __CHAR_VARCHAR_TYPE_STRING=said)) == expected


def test_a_type_of_spark_that_cannot_be_read_is_told_with_its_column() -> None:
    with pytest.raises(CorruptLog, match="column c: __CHAR"):
        text_limits(Field("c", INTEGER, metadata={"__CHAR_VARCHAR_TYPE_STRING": "array<varchar(3)"}))
