"""Which schemas rows can be stored under; the shapes are those of the protocol's section on void."""

from __future__ import annotations

import pytest

from support.state import schema
from widen.errors import NestedVoidColumn, NoStoredColumns
from widen.protocol.parquet_files import ensure_storable, without_void


@pytest.mark.parametrize(
    ("columns", "partition_by", "place"),
    [
        ("v void", (), "the table"),
        ("v void, p int", ("p",), "the table"),
        ("a int, s struct<v: void, w: void>", (), "column s"),
        ("a int, s struct<x: int, t: struct<v: void>>", (), "column s.t"),
        ("a int, l array<struct<t: struct<v: void>>>", (), "column l.element.t"),
    ],
)
def test_nothing_but_voids_cannot_be_stored(columns: str, partition_by: tuple[str, ...], place: str) -> None:
    with pytest.raises(NoStoredColumns) as caught:
        ensure_storable(schema(columns), partition_by)
    assert (caught.value.fields["place"], caught.value.code) == (place, "DELTA_CANNOT_WRITE_EMPTY_SCHEMA")


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ("a int, l array<void>", "l.element"),
        ("a int, m map<int, void>", "m.value"),
        ("a int, l array<struct<x: int, v: void>>", "l.element.v"),
        ("a int, s struct<m: map<string, array<void>>>", "s.m.value.element"),
    ],
)
def test_no_void_can_be_stored_inside_an_array_or_a_map(columns: str, column: str) -> None:
    with pytest.raises(NestedVoidColumn) as caught:
        ensure_storable(schema(columns), ())
    expected = (column, "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE")
    assert (caught.value.fields["column"], caught.value.code) == expected


def test_files_hold_all_but_the_voids() -> None:
    given = schema("v void, a int, s struct<x: int, v: void, t: struct<w: void, y: date>>, l array<int>")
    ensure_storable(given, ("a",))
    assert without_void(given) == schema("a int, s struct<x: int, t: struct<y: date>>, l array<int>")
