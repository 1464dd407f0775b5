"""The history of types in a schema: written, read, grown, kept apart, taken out."""

from __future__ import annotations

import json

import pytest

from support.state import schema
from widen.errors import CorruptLog, UnsupportedTypeChange
from widen.model.column_path import fields, map_fields
from widen.model.schema_json import from_json, parse_type, to_json
from widen.model.types import Field, StructType
from widen.protocol.type_widening import (
    TypeChange,
    all_type_changes,
    ensure_changes_readable,
    has_type_changes,
    record_type_change,
    record_type_changes,
    renumber_type_changes,
    strip_type_changes,
    type_changes,
)

BYTE, SHORT, INT, LONG = (parse_type(name) for name in ("tinyint", "smallint", "int", "bigint"))
SHORT_TO_INT = {"fromType": "short", "toType": "integer"}


def entries(recorded: StructType) -> dict[str, list[dict[str, object]]]:
    """The history of every field that has one, by its path."""
    return {
        ".".join(path): field.metadata["delta.typeChanges"]
        for path, field in fields(recorded)
        if "delta.typeChanges" in field.metadata
    }


def field(*given: dict[str, object]) -> Field:
    return Field("a", INT, metadata={"delta.typeChanges": list(given)})


# ---- one field -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (TypeChange((), SHORT, INT), SHORT_TO_INT),
        (TypeChange(("key", "element"), SHORT, INT), {**SHORT_TO_INT, "fieldPath": "key.element"}),
        (TypeChange((), SHORT, INT, 1), {**SHORT_TO_INT, "tableVersion": 1}),
        (
            TypeChange(("element",), parse_type("decimal(6,2)"), parse_type("decimal(10,4)")),
            {"fromType": "decimal(6,2)", "toType": "decimal(10,4)", "fieldPath": "element"},
        ),
    ],
)
def test_an_entry_is_an_object_in_a_list(change: TypeChange, entry: dict[str, object]) -> None:
    recorded = record_type_change(Field("a", INT, metadata={"comment": "c"}), change)
    assert dict(recorded.metadata) == {"comment": "c", "delta.typeChanges": [entry]}
    assert type_changes(recorded) == (change,)


def test_a_field_without_the_key_has_no_history_and_one_with_an_empty_list_has_the_key() -> None:
    assert type_changes(Field("a", INT)) == ()
    assert type_changes(field()) == ()
    assert not has_type_changes(schema("a int"))
    assert has_type_changes(StructType((field(),)))


def test_entries_are_read_in_every_form_that_the_protocol_shows() -> None:
    spaced = {"fromType": "decimal(6, 2)", "toType": "decimal(10, 4)", "fieldPath": "element.value"}
    assert type_changes(field(spaced)) == (
        TypeChange(("element", "value"), parse_type("decimal(6,2)"), parse_type("decimal(10,4)")),
    )
    unordered = {"toType": "integer", "tableVersion": 5, "fieldPath": "key", "fromType": "short"}
    assert type_changes(field(unordered)) == (TypeChange(("key",), SHORT, INT, 5),)


@pytest.mark.parametrize("broken", [{"toType": "integer"}, {"fromType": 5, "toType": "integer"}, "short", None])
def test_an_entry_that_cannot_be_read_is_told_with_its_column(broken: object) -> None:
    with pytest.raises(CorruptLog, match="column a"):
        type_changes(field(broken))  # type: ignore[arg-type]


@pytest.mark.parametrize("broken", [None, {}, '[{"fromType": "short", "toType": "integer"}]'])
def test_a_history_that_is_no_list_is_neither_read_nor_written_over(broken: object) -> None:
    history = Field("a", INT, metadata={"delta.typeChanges": broken})
    for use in (
        type_changes,
        lambda a: record_type_change(a, TypeChange((), INT, LONG)),
        lambda a: renumber_type_changes(StructType((a,)), 1, 2),
    ):
        with pytest.raises(CorruptLog, match="column a cannot be read: it is not a list"):
            use(history)
    assert has_type_changes(StructType((history,)))


def test_a_history_grows_at_its_end_and_keeps_what_it_does_not_know() -> None:
    old = {**SHORT_TO_INT, "tableVersion": 3, "note": "kept"}
    recorded = record_type_change(record_type_change(field(old), TypeChange((), INT, LONG)), TypeChange((), INT, LONG))
    again = {"fromType": "integer", "toType": "long"}
    assert recorded.metadata["delta.typeChanges"] == [old, again, again]


# ---- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a int", "a int not null"),
        ("a int, b string", "b string, a int"),
        ("a int", "A bigint"),
        ("a int", "b bigint"),
        ("s struct<x: int>", "s struct<x: int, y: bigint>"),
        ("v void", "v int"),
        ("v array<void>", "v array<int>"),
        ("a string", "a string"),
    ],
)
def test_what_is_no_change_of_type_records_nothing(old: str, new: str) -> None:
    assert record_type_changes(schema(old), schema(new)) == schema(new)
    assert entries(record_type_changes(schema(old), schema(new))) == {}


CHANGES = [
    ("a smallint", "a int", {"a": [SHORT_TO_INT]}),
    ("m map<smallint, string>", "m map<int, string>", {"m": [{**SHORT_TO_INT, "fieldPath": "key"}]}),
    ("m map<string, smallint>", "m map<string, int>", {"m": [{**SHORT_TO_INT, "fieldPath": "value"}]}),
    ("a array<smallint>", "a array<int>", {"a": [{**SHORT_TO_INT, "fieldPath": "element"}]}),
    ("s struct<x: smallint>", "s struct<x: int>", {"s.x": [SHORT_TO_INT]}),
    ("a array<struct<x: smallint>>", "a array<struct<x: int>>", {"a.element.x": [SHORT_TO_INT]}),
    (
        "a array<map<smallint, smallint>>",
        "a array<map<int, int>>",
        {"a": [{**SHORT_TO_INT, "fieldPath": "element.key"}, {**SHORT_TO_INT, "fieldPath": "element.value"}]},
    ),
    (
        "m map<map<smallint, int>, array<smallint>>",
        "m map<map<int, int>, array<int>>",
        {"m": [{**SHORT_TO_INT, "fieldPath": "key.key"}, {**SHORT_TO_INT, "fieldPath": "value.element"}]},
    ),
    (
        "m map<struct<x: smallint>, struct<y: array<smallint>>>",
        "m map<struct<x: int>, struct<y: array<int>>>",
        {"m.key.x": [SHORT_TO_INT], "m.value.y": [{**SHORT_TO_INT, "fieldPath": "element"}]},
    ),
    (
        "s struct<element: smallint, key: array<smallint>>",
        "s struct<element: int, key: array<int>>",
        {"s.element": [SHORT_TO_INT], "s.key": [{**SHORT_TO_INT, "fieldPath": "element"}]},
    ),
    ("a smallint, b int", "b int, a int", {"a": [SHORT_TO_INT]}),
    ("a smallint, gone int", "new bigint, a int", {"a": [SHORT_TO_INT]}),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES)
def test_every_change_is_recorded_on_its_nearest_field(
    old: str, new: str, expected: dict[str, list[dict[str, object]]]
) -> None:
    recorded = record_type_changes(schema(old), schema(new))
    assert entries(recorded) == expected
    assert strip_type_changes(recorded) == schema(new)
    assert has_type_changes(recorded)
    assert not has_type_changes(strip_type_changes(recorded))


def test_a_second_change_comes_after_the_first_at_every_depth() -> None:
    first = record_type_changes(
        schema("a tinyint, l array<map<tinyint,int>>"), schema("a smallint, l array<map<smallint,int>>")
    )
    wider = schema("a int, l array<map<smallint,bigint>>")
    kept = StructType(
        tuple(new.with_metadata(**old.metadata) for old, new in zip(first.fields, wider.fields, strict=True))
    )
    assert entries(record_type_changes(first, kept)) == {
        "a": [{"fromType": "byte", "toType": "short"}, SHORT_TO_INT],
        "l": [
            {"fromType": "byte", "toType": "short", "fieldPath": "element.key"},
            {"fromType": "integer", "toType": "long", "fieldPath": "element.value"},
        ],
    }


def test_the_preview_says_the_version() -> None:
    recorded = record_type_changes(schema("a smallint, l array<smallint>"), schema("a int, l array<int>"), 7)
    assert entries(recorded) == {
        "a": [{**SHORT_TO_INT, "tableVersion": 7}],
        "l": [{**SHORT_TO_INT, "tableVersion": 7, "fieldPath": "element"}],
    }


def test_a_full_path_leads_to_every_change() -> None:
    nested = "a array<map<{0}, struct<x: {0}>>>"
    recorded = record_type_changes(schema(nested.format("smallint")), schema(nested.format("int")))
    assert [path for path, _ in all_type_changes(recorded)] == [("a", "element", "key"), ("a", "element", "value", "x")]


def test_a_schema_with_history_survives_its_json() -> None:
    recorded = record_type_changes(
        schema("l array<smallint>, s struct<x: date>"), schema("l array<int>, s struct<x: date>")
    )
    text = to_json(recorded)
    assert json.loads(text)["fields"][0]["metadata"]["delta.typeChanges"] == [{**SHORT_TO_INT, "fieldPath": "element"}]
    assert from_json(text) == recorded


# ---- the version of a commit that lost a race ------------------------------------------------------


def test_only_the_entries_of_the_lost_version_move() -> None:
    given = [SHORT_TO_INT, {**SHORT_TO_INT, "tableVersion": 3}, {**SHORT_TO_INT, "tableVersion": 4}]
    inner = StructType((field(given[2]),))
    recorded = StructType((field(*given), Field("s", inner), Field("plain", INT)))
    later = {**SHORT_TO_INT, "tableVersion": 6}
    assert entries(renumber_type_changes(recorded, 4, 6)) == {"a": [*given[:2], later], "s.a": [later]}
    assert renumber_type_changes(recorded, 5, 6) == recorded


# ---- what readers check ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "old", "new"),
    [
        ({"fromType": "integer", "toType": "string"}, "INT", "STRING"),
        ({"fromType": "integer", "toType": "boolean"}, "INT", "BOOLEAN"),
        ({"fromType": "byte", "toType": "decimal(3,0)"}, "TINYINT", "DECIMAL(3,0)"),
        ({"fromType": "decimal(9,2)", "toType": "decimal(9,3)"}, "DECIMAL(9,2)", "DECIMAL(9,3)"),
        ({"fromType": "long", "toType": "double"}, "BIGINT", "DOUBLE"),
        ({"fromType": "date", "toType": "timestamp"}, "DATE", "TIMESTAMP"),
        ({"fromType": "geometry(4326)", "toType": "integer"}, "GEOMETRY(4326)", "INT"),
        ({"fromType": "integer", "toType": "decimal(50,0)"}, "INT", "DECIMAL(50,0)"),
    ],
)
@pytest.mark.parametrize(
    ("columns", "at", "steps"),
    [
        ("a {}", "a", ""),
        ("s struct<a: {}>", "s.a", ""),
        ("a array<{}>", "a.element", "element"),
        ("a map<{}, int>", "a.key", "key"),
        ("a map<int, {}>", "a.value", "value"),
    ],
)
def test_a_recorded_change_that_is_not_in_the_matrix_stops_the_reader(
    columns: str, at: str, steps: str, metadata: dict[str, str], old: str, new: str
) -> None:
    entry = {**metadata, "fieldPath": steps} if steps else metadata
    plain = schema(columns.format("int"))
    owner = ("s", "a") if at.startswith("s.") else ("a",)
    broken = map_fields(
        plain, lambda path, f: f.with_metadata(**{"delta.typeChanges": [entry]}) if path == owner else f
    )
    assert isinstance(broken, StructType)
    with pytest.raises(UnsupportedTypeChange) as caught:
        ensure_changes_readable(broken)
    assert caught.value.fields == {"column": at, "old": old, "new": new}
    assert caught.value.code == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"


@pytest.mark.parametrize(
    "entry",
    [
        {"fromType": "string", "toType": "string"},
        {"fromType": "char(3)", "toType": "string"},
        {"fromType": "varchar(5)", "toType": "varchar(9)"},
        {"fromType": "string", "toType": "string collate UNICODE_CI"},
        {"fromType": "integer", "toType": "integer"},
        {"fromType": "short", "toType": "decimal(10,0)", "tableVersion": 1},
    ],
)
def test_changes_between_texts_do_not(entry: dict[str, object]) -> None:
    ensure_changes_readable(StructType((field(entry),)))
