"""What is assigned to: paths that are there, do not contradict each other and lead through structs only."""

from __future__ import annotations

import pytest

from widen.errors import AssignmentConflict, ColumnNotFound, InvalidPath, ItemAssignmentRefused
from widen.model.column_path import Path
from widen.model.schema_json import parse_type
from widen.model.types import DOUBLE, LONG, STRING, StructType
from widen.schema.growth import Relation, assigned_paths, overlay_types


def schema(text: str) -> StructType:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, StructType)
    return parsed


TABLE = schema("Id int, s struct<x: int, `y.z`: struct<w: string>>, l array<struct<q: int>>, m map<string, int>")

FOUND: list[tuple[list[str], list[Path]]] = [
    (["id"], [("Id",)]),
    (["S.X", "s.`y.z`.w"], [("s", "x"), ("s", "y.z", "w")]),
    (["l", "m", "s"], [("l",), ("m",), ("s",)]),
]


@pytest.mark.parametrize(("texts", "paths"), FOUND)
def test_paths_are_spelled_as_in_the_schema(texts: list[str], paths: list[Path]) -> None:
    assert list(assigned_paths(Relation(TABLE), texts).values()) == paths


REFUSED: list[tuple[list[str], type[Exception], str]] = [
    (["nothing"], ColumnNotFound, "nothing"),
    (["s.nothing"], ColumnNotFound, "x, `y.z`"),
    (["s."], InvalidPath, "name is missing"),
    (["id", "ID"], AssignmentConflict, "Id and Id"),
    (["s", "s.x"], AssignmentConflict, r"s and s\.x"),
    (["s.x", "id", "s.`y.z`.w", "s.`y.z`"], AssignmentConflict, r"s\.`y\.z` and s\.`y\.z`\.w"),
    (["l.element"], ItemAssignmentRefused, "l is array"),
    (["l.element.q"], ItemAssignmentRefused, "l is array"),
    (["m.value"], ItemAssignmentRefused, "m is map"),
]


@pytest.mark.parametrize(("texts", "error", "told"), REFUSED)
def test_what_cannot_be_assigned(texts: list[str], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        assigned_paths(Relation(TABLE), texts)


def test_types_are_laid_over_those_of_the_table() -> None:
    found = overlay_types(schema("id int, s struct<x: int, y: int>, v string"), {("s", "y"): LONG, ("v",): DOUBLE})
    assert found == schema("id int, s struct<x: int, y: bigint>, v double")
    assert overlay_types(schema("id int"), {("new",): STRING}) == schema("id int, new string")


def test_columns_that_the_table_fills_are_left_out_unless_assigned() -> None:
    table = StructType((schema("id int").fields[0].with_metadata(CURRENT_DEFAULT="1"), *schema("v int").fields))
    assert overlay_types(table, {}).names == ("v",)
    assert overlay_types(table, {("id",): LONG}) == schema("id bigint, v int")


def test_new_fields_of_new_structs_are_laid_over() -> None:
    found = overlay_types(schema("id int"), {("s", "x"): LONG, ("s", "n", "y"): STRING})
    assert found == schema("id int, s struct<n: struct<y: string>, x: bigint>")


CALLED_T = Relation(schema("id int, x int, T struct<x: int, t: int>"), "t")
SOURCE = Relation(schema("ID int, new struct<A: int>, t struct<more: int>, id2 int, x struct<y: int>"), "s")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("t.x", ("x",)),
        ("T.T", ("T",)),
        ("t.t.x", ("T", "x")),
        ("t", ("T",)),
        ("s.new.a", ("new", "A")),
        ("NEW", ("new",)),
        ("t.more", ("T", "more")),
        ("s.T.more", ("T", "more")),
        ("s.id", ("id",)),
    ],
)
def test_an_alias_comes_before_a_column_of_that_name(text: str, path: Path) -> None:
    assert assigned_paths(CALLED_T, [text], SOURCE) == {text: path}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("t.nothing", ColumnNotFound),
        ("s.t.x", ColumnNotFound),
        ("nothing", ColumnNotFound),
        ("x.y", ItemAssignmentRefused),
    ],
)
def test_what_neither_side_has(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        assigned_paths(CALLED_T, [text], SOURCE)


def test_only_the_source_adds_columns() -> None:
    with pytest.raises(ColumnNotFound):
        assigned_paths(CALLED_T, ["new"])
