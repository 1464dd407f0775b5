"""What an incoming schema asks of a table."""

from __future__ import annotations

import pytest

from support.state import schema
from widen.errors import IdentityColumnGiven, IncompatibleTypes, SchemaMismatch
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, Field, StructType
from widen.protocol.type_widening import is_widening
from widen.schema.growth import SchemaChangeOptions, merge_schema
from widen.schema.operations import AddColumn, WidenType

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
    assert merge_schema(TABLE, schema(incoming), SchemaChangeOptions.NONE) == ()


def test_growth_is_a_list_of_operations() -> None:
    incoming = schema(
        "s struct<n: array<int>, x: double>, a decimal(12,2), l array<decimal(12,3)>,"
        " m map<bigint, struct<z: int, q: int>>, new string"
    )
    assert merge_schema(TABLE, incoming, SchemaChangeOptions(adds=True, widens=is_widening)) == (
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
    (operation,) = merge_schema(TABLE, StructType((field,)), SchemaChangeOptions(adds=True))
    assert operation == AddColumn((), Field("n", parse_type("int"), metadata={"comment": "c"}))


def test_a_new_struct_is_open_at_every_depth_and_brings_nothing_of_another_table() -> None:
    hidden = {"delta.columnMapping.id": 7, "delta.typeChanges": [], "comment": "c", "CURRENT_DEFAULT": "1"}
    inner = Field("x", parse_type("int"), nullable=False, metadata=hidden)
    field = Field("n", ArrayType(StructType((inner,)), contains_null=False), nullable=False)
    (operation,) = merge_schema(TABLE, StructType((field,)), SchemaChangeOptions(adds=True))
    opened = Field("x", parse_type("int"), metadata={"comment": "c"})
    assert operation == AddColumn((), Field("n", ArrayType(StructType((opened,)))))


def test_a_column_without_a_type_gets_one_without_any_widening() -> None:
    assert merge_schema(TABLE, schema("v struct<x: int not null>"), SchemaChangeOptions(adds=True)) == (
        WidenType(("v",), parse_type("void"), parse_type("struct<x: int>")),
    )
    with pytest.raises(SchemaMismatch, match="v is void in the table and int in the data") as caught:
        merge_schema(TABLE, schema("v int"), SchemaChangeOptions(widens=is_widening, casts=True))
    assert (
        caught.value.fields["fix"] == "Add the columns with merge_schema=True, or select only the columns of the table."
    )


CASTS = (
    ("int", "decimal(5,2)"),
    ("bigint", "double"),
    ("decimal(10,2)", "decimal(5,4)"),
    ("decimal(10,2)", "decimal(11,4)"),
    ("decimal(10,2)", "int"),
    ("float", "bigint"),
    ("double", "bigint"),
    ("date", "timestamp"),
    ("timestamp", "date"),
    ("timestamp_ntz", "timestamp"),
    ("double", "decimal(20,0)"),
    ("string", "int"),
    ("string", "boolean"),
    ("string", "timestamp"),
)
ONLY_IF_ASKED = (
    *(("int", "string"), ("date", "string"), ("timestamp", "string"), ("binary", "string"), ("boolean", "string")),
    *(("boolean", "int"), ("int", "boolean"), ("timestamp", "int"), ("bigint", "timestamp")),
)
NO_CASTS = (
    ("date", "int"),
    ("int", "date"),
    ("string", "binary"),
    ("array<int>", "string"),
    ("struct<x: int>", "int"),
    ("int", "struct<x: int>"),
    ("array<int>", "map<int, int>"),
)


@pytest.mark.parametrize(("table", "data"), CASTS)
def test_what_only_a_cast_makes_fit_is_refused_unless_casts_are_asked_for(table: str, data: str) -> None:
    for depth in ("c {}", "c struct<x: {}>", "c array<{}>", "c map<int, {}>", "c map<{}, int>"):
        current, incoming = schema(depth.format(table)), schema(depth.format(data))
        with pytest.raises(SchemaMismatch, match="cast=True") as caught:
            merge_schema(current, incoming, SchemaChangeOptions(adds=True))
        assert f"{parse_type(table).sql} in the table and {parse_type(data).sql} in the data" in caught.value.message
        assert merge_schema(current, incoming, SchemaChangeOptions(casts=True)) == ()


@pytest.mark.parametrize(("table", "data"), ONLY_IF_ASKED)
def test_what_delta_lake_casts_in_an_insert_is_incompatible_without_casts(table: str, data: str) -> None:
    for depth in ("c {}", "c struct<x: {}>", "c array<{}>", "c map<int, {}>", "c map<{}, int>"):
        current, incoming = schema(depth.format(table)), schema(depth.format(data))
        with pytest.raises(IncompatibleTypes):
            merge_schema(current, incoming, SchemaChangeOptions(adds=True))
        assert merge_schema(current, incoming, SchemaChangeOptions(casts=True)) == ()


@pytest.mark.parametrize(("table", "data"), NO_CASTS)
def test_what_no_cast_makes_fit_is_refused_by_both_types(table: str, data: str) -> None:
    with pytest.raises(IncompatibleTypes) as caught:
        merge_schema(
            schema(f"c {table}"), schema(f"c {data}"), SchemaChangeOptions(adds=True, widens=is_widening, casts=True)
        )
    assert caught.value.code == "DELTA_MERGE_INCOMPATIBLE_DATATYPE"
    told = f"c is {parse_type(table).sql} in the table and {parse_type(data).sql} in the data"
    assert caught.value.fields["reason"] == told


def test_the_error_has_the_whole_plan() -> None:
    with pytest.raises(IncompatibleTypes) as caught:
        merge_schema(
            TABLE, schema("a bigint, s struct<x: int, n: string>, l array<boolean>"), SchemaChangeOptions(adds=True)
        )
    assert caught.value.fields["plan"] == (
        "  - widen a from int to bigint\n"
        "  - cast s.x from int to float\n"
        "  - add s.n string\n"
        "  - l.element is decimal(9,2) in the table and boolean in the data: not possible"
    )


def test_a_widening_that_is_not_allowed_becomes_a_cast_where_casts_are_asked_for() -> None:
    assert merge_schema(TABLE, schema("a bigint"), SchemaChangeOptions(adds=True, casts=True)) == ()
    widened = merge_schema(TABLE, schema("a bigint"), SchemaChangeOptions(widens=is_widening, casts=True))
    assert widened == (WidenType(("a",), parse_type("int"), parse_type("bigint")),)


def test_a_column_that_the_table_fills_may_be_missing_even_if_it_is_never_null() -> None:
    long = parse_type("bigint")
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
    filled = [{"CURRENT_DEFAULT": "7"}, {"delta.generationExpression": "a + 1"}, identity]
    fields = [Field(f"c{at}", long, nullable=False, metadata=each) for at, each in enumerate(filled)]
    assert merge_schema(StructType(tuple(fields)), schema("c0 bigint"), SchemaChangeOptions.NONE) == ()
    with pytest.raises(IdentityColumnGiven, match="c2"):
        merge_schema(StructType(tuple(fields)), schema("C2 bigint"), SchemaChangeOptions.NONE)
    explicit = Field("c", long, metadata={**identity, "delta.identity.allowExplicitInsert": True})
    assert merge_schema(StructType((explicit,)), schema("c int"), SchemaChangeOptions.NONE) == ()


@pytest.mark.parametrize(
    ("incoming", "told", "hint"),
    [
        ("a bigint", "a is int in the table and bigint in the data", "delta.enableTypeWidening"),
        ("b int", "b (int) is not in the table", "merge_schema=True"),
        ("a string", "a is int in the table and string in the data", "alter_column"),
        ("a double, s int", "s is struct<x: float, y: date> in the table and int in the data", "alter_column"),
        ("l array<decimal(10,4)>", "l.element is decimal(9,2) in the table and decimal(10,4) in the data", "cast=True"),
        ("a int, A int", "A is a duplicate of a", "alter_column"),
        ("a int, a int", "a is a duplicate of a", "alter_column"),
    ],
)
def test_what_may_not_grow_is_told_with_a_way_out(incoming: str, told: str, hint: str) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        merge_schema(TABLE, schema(incoming), SchemaChangeOptions.NONE)
    assert told in caught.value.message
    assert hint in caught.value.advice


@pytest.mark.parametrize("shape", ["{}", "array<{}>", "map<string,{}>", "map<{},int>", "struct<n: array<{}>>"])
def test_a_struct_lacks_a_field(shape: str) -> None:
    """A write makes it null; an assignment may not, for the value that is there would be lost without a word."""
    current = schema("v " + shape.format("struct<x: int, y: int>"))
    incoming = schema("v " + shape.format("struct<y: int>"))
    assert merge_schema(current, incoming, SchemaChangeOptions(casts=True)) == ()
    with pytest.raises(SchemaMismatch, match=r"v\..*x is in the table and not in the data|v\.x is in the table"):
        merge_schema(current, incoming, SchemaChangeOptions(casts=True, fills=False))
    assert merge_schema(schema("id int, v int"), schema("id int"), SchemaChangeOptions(casts=True, fills=False)) == ()
