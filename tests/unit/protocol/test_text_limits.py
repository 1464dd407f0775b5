"""What char and varchar leave in the log, and what becomes of them when columns change."""

from __future__ import annotations

import pytest

from widen.errors import CorruptLog
from widen.model.schema_json import parse_type
from widen.model.types import INTEGER, STRING, Field, StructType
from widen.protocol.column_metadata import TEXT_LIMIT, text_limits, to_declared, to_stored
from widen.schema import operations as op
from widen.schema.alter import apply_operations
from widen.schema.operations import StructEnd


def field(kind: str, declared: str) -> Field:
    return Field("c", parse_type(kind), metadata={TEXT_LIMIT: declared})


@pytest.mark.parametrize(
    ("kind", "declared", "expected"),
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
        # Delta Lake leaves the declared type as it is when fields are renamed, retyped and added.
        ("struct<z:string,b:bigint,n:string>", "struct<a:varchar(3),b:int>", {("z",): 3}),
        ("struct<b:bigint>", "struct<a:varchar(3),b:int>", {}),
    ],
)
def test_the_lengths_are_in_the_declared_type(kind: str, declared: str, expected: dict[tuple[str, ...], int]) -> None:
    assert text_limits(field(kind, declared)) == expected


def test_a_column_without_a_declared_type_has_no_lengths() -> None:
    assert text_limits(Field("c", STRING)) == {}


def test_a_declared_type_that_cannot_be_parsed_is_an_error_with_the_column() -> None:
    with pytest.raises(CorruptLog, match="column c: __CHAR"):
        text_limits(Field("c", INTEGER, metadata={TEXT_LIMIT: "array<varchar(3)"}))


@pytest.mark.parametrize(
    ("declared", "stored", "text"),
    [
        ("character ( 4 )", "string", "char(4)"),
        (
            "struct<a: varchar(3) NOT NULL COMMENT 'x', `b c`: map<char(2), tinyint>>",
            "struct<a: string NOT NULL COMMENT 'x', `b c`: map<string, tinyint>>",
            "struct<a:varchar(3),`b c`:map<char(2),tinyint>>",
        ),
    ],
)
def test_the_log_has_strings_and_the_declared_type(declared: str, stored: str, text: str) -> None:
    given = Field("c", parse_type(declared, allow_limits=True), metadata={"comment": "kept"})
    assert to_stored(given) == Field("c", parse_type(stored), metadata={"comment": "kept", TEXT_LIMIT: text})
    assert to_declared(to_stored(given)) == given


CHANGES: list[tuple[op.Operation, str | None]] = [
    (op.RenameColumn(("s", "a"), "z"), "struct<z:varchar(3),l:array<char(2)>,n:int>"),
    (op.DropColumn(("s", "a")), "struct<l:array<char(2)>,n:int>"),
    (op.MoveColumn(("s", "n"), StructEnd.FIRST), "struct<n:int,a:varchar(3),l:array<char(2)>>"),
    (
        op.AddColumn(("s",), Field("x", STRING, metadata={TEXT_LIMIT: "char(1)"}), StructEnd.FIRST),
        "struct<x:char(1),a:varchar(3),l:array<char(2)>,n:int>",
    ),
    (op.AddColumn(("s",), Field("x", STRING)), "struct<a:varchar(3),l:array<char(2)>,n:int,x:string>"),
    (op.RelaxLength(("s", "a"), "varchar(9)"), "struct<a:varchar(9),l:array<char(2)>,n:int>"),
    (op.RelaxLength(("s", "l", "element"), "string"), "struct<a:varchar(3),l:array<string>,n:int>"),
    (op.ReplaceColumns(StructType((Field("s", parse_type("struct<n:int>")),))), None),
    (
        op.ReplaceColumns(StructType((Field("s", parse_type("struct<n:int,a:string>")),))),
        "struct<n:int,a:varchar(3)>",
    ),
]


@pytest.mark.parametrize(("operation", "expected"), CHANGES, ids=lambda each: type(each).__name__)
def test_limits_stay_with_their_fields(operation: op.Operation, expected: str | None) -> None:
    declared = "struct<a:varchar(3),l:array<char(2)>,n:int>"
    before = StructType((to_stored(Field("s", parse_type(declared, allow_limits=True))),))
    after = apply_operations(before, [operation]).fields[0]
    assert after.metadata.get(TEXT_LIMIT) == expected
    assert to_stored(to_declared(after)) == after
