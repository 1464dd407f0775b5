"""What an incoming schema asks of a table."""

from __future__ import annotations

import pytest

from widen.errors import SchemaMismatch
from widen.model.text import parse_type
from widen.model.type import Field, StructType
from widen.planning.merge import merge
from widen.planning.operation import AddColumn, WidenType


def schema(text: str) -> StructType:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, StructType)
    return parsed


TABLE = schema("a int, s struct<x: float, y: date>, l array<decimal(9,2)>, m map<int, struct<z: bigint>>, v void")


@pytest.mark.parametrize(
    "incoming",
    [
        "a int",
        "A tinyint, S struct<Y: date, X: float>",
        "a void, s void",
        "s struct<x: void>, v void",
        "l array<int>".replace("int", "decimal(5,2)"),
        "m map<tinyint, struct<Z: int>>",
        "",
    ],
)
def test_what_fits_asks_for_nothing(incoming: str) -> None:
    assert merge(TABLE, schema(incoming), adds=False, widens=False) == ()


def test_growth_is_a_list_of_operations() -> None:
    incoming = schema(
        "s struct<n: array<int>, x: double>, a decimal(12,2), l array<decimal(12,3)>,"
        " m map<bigint, struct<z: int, q: int>>, new string"
    )
    assert merge(TABLE, incoming, adds=True, widens=True) == (
        AddColumn(("s",), Field("n", parse_type("array<int>"))),
        WidenType(("s", "x"), parse_type("float"), parse_type("double")),
        WidenType(("a",), parse_type("int"), parse_type("decimal(12,2)")),
        WidenType(("l", "element"), parse_type("decimal(9,2)"), parse_type("decimal(12,3)")),
        WidenType(("m", "key"), parse_type("int"), parse_type("bigint")),
        AddColumn(("m", "value"), Field("q", parse_type("int"))),
        AddColumn((), Field("new", parse_type("string"))),
    )


def test_a_new_field_may_be_null_and_keeps_only_its_comment() -> None:
    field = Field("n", parse_type("int"), nullable=False, metadata={"comment": "c", "delta.typeChanges": []})
    (operation,) = merge(TABLE, StructType((field,)), adds=True, widens=False)
    assert operation == AddColumn((), Field("n", parse_type("int"), metadata={"comment": "c"}))


@pytest.mark.parametrize(
    ("incoming", "told", "hint"),
    [
        ("a bigint", "a is int in the table and bigint in the data", "delta.enableTypeWidening"),
        ("b int", "b (int) is not in the table", "merge_schema=True"),
        ("a string", "a is int in the table and string in the data", "alter_column"),
        ("a double, s int", "s is struct<x: float, y: date> in the table and int in the data", "merge_schema=True"),
        ("l array<decimal(10,4)>", "l.element is decimal(9,2) in the table and decimal(10,4) in the data", "Cast"),
    ],
)
def test_what_may_not_grow_is_told_with_a_way_out(incoming: str, told: str, hint: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        merge(TABLE, schema(incoming), adds=hint == "delta.enableTypeWidening", widens=False)
    assert told in caught.value.message
    assert hint in caught.value.advice
