from __future__ import annotations

import pytest

from widen.errors import ColumnNotFound, InternalError
from widen.model.text import parse_type
from widen.model.type import INTEGER, LONG, STRING, Field, StructType
from widen.planning.apply import apply
from widen.planning.operation import AddColumn, CreateTable, WidenType, operation_from_value

SCHEMA = StructType(
    (Field("a", parse_type("array<struct<b: int>>"), metadata={"k": 1}), Field("m", parse_type("map<string,int>")))
)


def test_operations_change_what_they_name_and_keep_the_rest() -> None:
    after = apply(
        SCHEMA,
        [
            AddColumn(("a", "element"), Field("c", STRING)),
            WidenType(("a", "element", "b"), INTEGER, LONG),
            WidenType(("m", "value"), INTEGER, LONG),
            AddColumn((), Field("z", STRING)),
        ],
    )
    assert str(after) == "struct<a:array<struct<b:long,c:string>>,m:map<string,long>,z:string>"
    assert after.fields[0].metadata == {"k": 1}


def test_no_table_and_no_operation_is_the_empty_schema() -> None:
    assert apply(None, []) == StructType()
    assert apply(None, [CreateTable(SCHEMA)]) == SCHEMA


@pytest.mark.parametrize(
    "operation",
    [
        AddColumn((), Field("A", STRING)),
        AddColumn(("m", "value"), Field("x", STRING)),
        WidenType(("m", "value"), LONG, STRING),
    ],
    ids=str,
)
def test_an_operation_that_does_not_fit_is_our_own_defect(operation: AddColumn | WidenType) -> None:
    with pytest.raises(InternalError):
        apply(SCHEMA, [operation])


def test_an_unknown_place_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="nowhere"):
        apply(SCHEMA, [AddColumn(("nowhere",), Field("x", STRING))])


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (CreateTable(SCHEMA, ("a",)), "create the table with 2 columns, partitioned by a"),
        (AddColumn(("a", "element"), Field("x y", LONG)), "add a.element.`x y` bigint"),
        (WidenType(("m", "value"), INTEGER, LONG), "widen m.value from int to bigint"),
    ],
)
def test_an_operation_says_what_it_does_and_survives_json(
    operation: CreateTable | AddColumn | WidenType, text: str
) -> None:
    assert str(operation) == text
    assert operation_from_value(operation.to_value()) == operation
