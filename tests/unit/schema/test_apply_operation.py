from __future__ import annotations

import json
from typing import get_args

import pytest

from support.operation import operation_from_value
from widen.errors import ColumnNotFound, InternalError
from widen.model.schema_json import parse_type
from widen.model.types import INTEGER, LONG, STRING, Field, StructType
from widen.schema.alter import apply_operations
from widen.schema.checks import CHECKS
from widen.schema.operations import (
    AddColumn,
    AddConstraint,
    AfterField,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    MoveColumn,
    Operation,
    RelaxLength,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetDefault,
    SetNotNull,
    StructEnd,
    SyncIdentity,
    WidenType,
)

SCHEMA = StructType(
    (Field("a", parse_type("array<struct<b: int>>"), metadata={"k": 1}), Field("m", parse_type("map<string,int>")))
)


def test_operations_change_what_they_name_and_keep_the_rest() -> None:
    after = apply_operations(
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
    assert apply_operations(None, []) == StructType()
    assert apply_operations(None, [CreateTable(SCHEMA)]) == SCHEMA


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
        apply_operations(SCHEMA, [operation])


def test_an_unknown_place_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="nowhere"):
        apply_operations(SCHEMA, [AddColumn(("nowhere",), Field("x", STRING))])


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (CreateTable(SCHEMA, ("a",)), "create the table with 2 columns, partitioned by a"),
        (AddColumn(("a", "element"), Field("x y", LONG)), "add a.element.`x y` bigint"),
        (AddColumn((), Field("x", LONG), StructEnd.FIRST), "add x bigint FIRST"),
        (AddColumn((), Field("x", LONG), AfterField("a b")), "add x bigint AFTER `a b`"),
        (WidenType(("m", "value"), INTEGER, LONG), "widen m.value from int to bigint"),
        (RelaxLength(("v",), "varchar(9)"), "change the limit of v to varchar(9)"),
        (RenameColumn(("a", "element", "b"), "c d"), "rename a.element.b to `c d`"),
        (DropColumn(("a", "element", "b")), "drop a.element.b"),
        (MoveColumn(("a",), AfterField("m")), "move a AFTER m"),
        (SetComment(("a",), "it's"), 'comment on a: "it\'s"'),
        (DropNotNull(("a",)), "allow null in a"),
        (SetNotNull(("a",)), "forbid null in a"),
        (SetDefault(("a",), "1 + 1"), "set the default of a to 1 + 1"),
        (DropDefault(("a",)), "drop the default of a"),
        (SyncIdentity(("a",), 7), "continue a after 7"),
        (ReplaceColumns(SCHEMA), "replace the columns with a: array<struct<b: int>>, m: map<string,int>"),
        (AddConstraint("c", "a > 0"), "add the constraint c: a > 0"),
        (DropConstraint("c"), "drop the constraint c"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_operation_says_what_it_does_and_survives_json(operation: Operation, text: str) -> None:
    assert str(operation) == text
    assert operation_from_value(json.loads(json.dumps(operation.to_value()))) == operation


def test_every_kind_of_operation_is_judged() -> None:
    assert set(CHECKS) == set(get_args(Operation)) - {CreateTable}
