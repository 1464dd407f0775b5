"""Every kind of change at every depth, with and without column mapping; spec of Delta Lake's ALTER TABLE."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from support.state import MAPPED, WIDE, after, schema, state
from widen.errors import EnabledWithoutFeature, FeatureRequired, TypeChangeRefused, WidenError
from widen.model.column_path import fields, find_field, parse_path, resolve
from widen.model.schema_json import from_json, parse_type
from widen.model.types import INTEGER, LONG, Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import COLUMN_ID, PHYSICAL_NAME
from widen.schema.alter import (
    parse_column_changes,
    parse_drops,
    parse_new_columns,
    parse_rename,
    parse_replacement,
    plan_alter,
)
from widen.schema.operations import (
    AddColumn,
    AddConstraint,
    DropColumn,
    DropConstraint,
    MoveColumn,
    Operation,
    SetComment,
    StructEnd,
    SyncIdentity,
    WidenType,
)
from widen.schema.table_definition import plan_set_properties
from widen.schema.table_state import MetadataChange, TableState

NESTED = "a int, s struct<x: int, y: string>, l array<map<int, struct<z: int>>>, v void"
PAIR = "struct<f: int, g: int>"
DEEP = f"top int, s {PAIR}, l array<{PAIR}>, m map<{PAIR}, {PAIR}>"
DEPTHS = ["top", "s.f", "l.element.f", "m.key.f", "m.value.f"]
MODES: list[dict[str, str]] = [{}, MAPPED, {"delta.columnMapping.mode": "id"}]
MODE_NAMES = ["none", "name", "id"]


def alter(before: TableState, path: str, **wanted: Any) -> MetadataChange | None:
    return plan_alter(before, parse_column_changes(before.schema, {path: wanted}))  # type: ignore[dict-item]


def alter_all(before: TableState, changes: Mapping[str, Any]) -> MetadataChange | None:
    return plan_alter(before, parse_column_changes(before.schema, changes))  # type: ignore[arg-type]


def add(before: TableState, columns: Mapping[str, Any]) -> MetadataChange | None:
    return plan_alter(before, parse_new_columns(before.schema, columns))  # type: ignore[arg-type]


def rename(before: TableState, path: str, name: str) -> MetadataChange | None:
    return plan_alter(before, parse_rename(before.schema, path, name))


def drop(before: TableState, *paths: str, if_exists: bool = False) -> MetadataChange | None:
    return plan_alter(before, parse_drops(before.schema, paths, if_exists=if_exists))


def replace(before: TableState, columns: str | StructType) -> MetadataChange | None:
    return plan_alter(before, parse_replacement(schema(columns) if isinstance(columns, str) else columns))


def field(found: TableState, path: str) -> Field:
    at = find_field(found.schema, parse_path(path))
    assert at is not None
    return at


def ids(found: TableState) -> dict[tuple[str, ...], tuple[Any, Any]]:
    return {path: (f.metadata.get(COLUMN_ID), f.metadata.get(PHYSICAL_NAME)) for path, f in fields(found.schema)}


def code(caught: pytest.ExceptionInfo[WidenError]) -> str:
    return caught.value.code


@pytest.fixture(params=MODES, ids=MODE_NAMES)
def mode(request: pytest.FixtureRequest) -> dict[str, str]:
    found: dict[str, str] = request.param
    return found


# ---- type ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "entry_on", "entry"),
    [
        ("a", "a", ("a",), {}),
        ("S.X", "s.x", ("s", "x"), {}),
        ("l.element.key", "l.element.key", ("l",), {"fieldPath": "element.key"}),
        ("l.element.value.z", "l.element.value.z", ("l", "element", "value", "z"), {}),
    ],
)
def test_a_change_of_type_is_recorded_and_told(
    path: str, name: str, entry_on: tuple[str, ...], entry: dict[str, str]
) -> None:
    before = state(NESTED, WIDE)
    change = alter(before, path, type="bigint")
    assert change is not None
    assert change.operation == "CHANGE COLUMN"
    nullable = not path.endswith("key")
    assert change.parameters == {"column": {"name": name, "type": "long", "nullable": nullable, "metadata": {}}}
    recorded = {
        at: field.metadata["delta.typeChanges"]
        for at, field in fields(from_json(after(before, change).metadata.schema_string))
        if "delta.typeChanges" in field.metadata
    }
    assert recorded == {entry_on: [{"fromType": "integer", "toType": "long", **entry}]}


@pytest.mark.parametrize("path", DEPTHS)
def test_a_type_changes_at_any_depth_and_keeps_names_and_ids(path: str, mode: dict[str, str]) -> None:
    before = state(DEEP, {**WIDE, **mode})
    now = after(before, alter(before, path, type="bigint"))
    assert str(field(now, path).type) == "long"
    assert field(now, path).metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert ids(now) == ids(before)


@pytest.mark.parametrize("path", ["element", "l.element.element", "l.element.key", "m.value.value", "s.key.element"])
def test_what_a_step_is_called_may_be_the_name_of_a_field(path: str) -> None:
    columns = "element int, l array<struct<element: int, key: int>>, m map<int, struct<value: int, v: int>>"
    before = state(f"{columns}, s struct<key: struct<element: int, e: int>>", {**WIDE, **MAPPED})
    now = after(before, alter(before, path, type="bigint", comment="a field"))
    assert field(now, path).metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert parse_path(path) not in ids(after(now, drop(now, path)))
    assert (*parse_path(path)[:-1], "x") in ids(after(now, rename(now, path, "x")))


def test_a_history_grows_at_its_end_and_is_told_without_the_new_entry() -> None:
    now = state("a tinyint", WIDE)
    for name in ("smallint", "bigint", "decimal(20,0)"):
        change = alter(now, "a", type=name)
        now = after(now, change)
    pairs = [(e["fromType"], e["toType"]) for e in now.schema.fields[0].metadata["delta.typeChanges"]]
    assert pairs == [("byte", "short"), ("short", "long"), ("long", "decimal(20,0)")]
    assert change is not None
    told: Any = change.parameters["column"]
    assert (told["type"], len(told["metadata"]["delta.typeChanges"])) == ("decimal(20,0)", 2)


def test_void_becomes_anything_without_a_feature() -> None:
    before = state(NESTED)
    now = after(before, alter(before, "v", type="string"))
    assert (now.schema.fields[3].type, dict(now.schema.fields[3].metadata)) == (parse_type("string"), {})
    mapped = state("a int, v void", MAPPED)
    grown = after(mapped, alter(mapped, "v", type="struct<x: array<int>>"))
    assert ids(grown)["v", "x"][0] == 3


@pytest.mark.parametrize(
    ("path", "new", "expected", "told"),
    [
        ("nope", "bigint", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA", "nope"),
        ("s.nope", "bigint", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA", "nope"),
        ("a.x", "bigint", "DELTA_COLUMN_PATH_NOT_NESTED", "a.x"),
        ("l.z", "bigint", "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME", "element"),
        ("l.element.z", "bigint", "DELTA_FOUND_MAP_TYPE_COLUMN", "key, value"),
        ("s", "struct<x: bigint, y: string>", "CANNOT_UPDATE_FIELD", "STRUCT<X: INT, Y: STRING>"),
        ("l", "array<int>", "CANNOT_UPDATE_FIELD", "l.element"),
        ("a", "array<int>", "CANNOT_UPDATE_FIELD", "ARRAY<INT>"),
        ("a", "float", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", "from INT to FLOAT"),
        ("a", "smallint", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", "from INT to SMALLINT"),
    ],
)
def test_types_that_do_not_change(path: str, new: str, expected: str, told: str) -> None:
    with pytest.raises(WidenError) as caught:
        alter(state(NESTED, WIDE), path, type=new)
    assert code(caught) == expected
    assert told in str(caught.value)


def test_a_type_change_needs_the_feature_and_those_of_the_type() -> None:
    with pytest.raises(TypeChangeRefused, match=r"set_properties\(\{'delta.enableTypeWidening': 'true'\}\)"):
        alter(state("a int"), "a", type="bigint")
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        alter(state("a date", WIDE), "a", type="timestamp_ntz")
    broken = state("a int")
    broken.metadata.configuration.update(WIDE)
    with pytest.raises(WidenError) as caught:
        alter(broken, "a", type="bigint")
    assert code(caught) == "DELTA_FEATURE_ENABLED_WITHOUT_SUPPORT"


def test_a_property_without_its_feature_is_an_error_of_every_change() -> None:
    legal = state("a int, b int", {**MAPPED, **WIDE})
    broken = dataclasses.replace(legal, protocol=state("a int", MAPPED).protocol)
    assert alter(broken, "a", type="int") is None
    for change in [
        lambda: alter(broken, "a", type="bigint"),
        lambda: alter(broken, "a", comment="x"),
        lambda: rename(broken, "a", "c"),
        lambda: add(broken, {"c": "int"}),
        lambda: drop(broken, "a"),
        lambda: replace(broken, "a int, b int, c int"),
    ]:
        with pytest.raises(EnabledWithoutFeature) as caught:
            change()
        assert caught.value.fields == {"property": "delta.enableTypeWidening", "feature": "typeWidening"}
    repaired = after(broken, plan_set_properties(broken, WIDE))
    assert "typeWidening" in (repaired.protocol.reader_features or ())
    assert alter(repaired, "a", type="bigint") is not None


def test_neighbours_of_any_kind_stay_word_for_word() -> None:
    array = {"type": "array", "elementType": "double", "containsNull": False}
    user_defined = {"type": "udt", "class": "x.Y", "pyClass": "m.C", "sqlType": array}
    collated = {"__COLLATIONS": {"c": "icu.UNICODE_CI"}}
    others: list[dict[str, Any]] = [
        {"name": "u", "type": user_defined, "nullable": True, "metadata": {}},
        {"name": "v", "type": "void", "nullable": True, "metadata": {}},
        {"name": "c", "type": "string", "nullable": True, "metadata": collated},
        {"name": "l", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
    ]
    before = state("a tinyint, s struct<x: int>", WIDE)
    text = json.loads(before.metadata.schema_string)
    text["fields"] += others
    metadata = msgspec.structs.replace(before.metadata, schema_string=json.dumps(text))
    wider = after(before, alter_all(dataclasses.replace(before, metadata=metadata), {"a": {"type": "int"}}))
    assert json.loads(wider.metadata.schema_string)["fields"][2:] == others
    assert field(wider, "a").type == parse_type("int")


def test_iceberg_knows_fewer_changes() -> None:
    iceberg = state("a int", {**WIDE, **MAPPED, "delta.feature.icebergCompatV2": "supported"})
    with pytest.raises(TypeChangeRefused, match="icebergCompatV2"):
        alter(iceberg, "a", type="double")
    assert alter(iceberg, "a", type="bigint") is not None


def test_texts_of_limited_length_get_more_room_only() -> None:
    limited = StructType((Field("v", parse_type("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),))
    before = state(limited)
    longer = alter(before, "v", type="varchar( 10 )")
    assert longer is not None
    assert dict(field(after(before, longer), "v").metadata) == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"}
    assert dict(field(after(before, alter(before, "v", type="string")), "v").metadata) == {}
    assert alter(before, "v", type="VARCHAR(5)") is None
    for new in ("varchar(4)", "char(9)"):
        with pytest.raises(TypeChangeRefused, match=r"from VARCHAR\(5\)"):
            alter(before, "v", type=new)
    with pytest.raises(TypeChangeRefused, match="from INT to VARCHAR"):
        alter(state("a int"), "a", type="varchar(5)")


def test_limits_inside_of_columns_get_more_room_only() -> None:
    declared = "struct<a:varchar(5),l:array<char(2)>>"
    inner = Field(
        "s", parse_type("struct<a:string,l:array<string>>"), metadata={"__CHAR_VARCHAR_TYPE_STRING": declared}
    )
    before = state(StructType((inner,)))
    longer = after(before, alter(before, "s.l.element", type="varchar(3)"))
    assert dict(field(longer, "s").metadata) == {
        "__CHAR_VARCHAR_TYPE_STRING": "struct<a:varchar(5),l:array<varchar(3)>>"
    }
    with pytest.raises(TypeChangeRefused, match=r"from VARCHAR\(5\)"):
        alter(before, "s.a", type="varchar(4)")
    with pytest.raises(TypeChangeRefused, match="nested"):
        alter(before, "s", type="struct<a:varchar(9),l:array<char(2)>>")


# ---- comment, nullability, default, place ----------------------------------------------------------


@pytest.mark.parametrize("path", DEPTHS)
def test_a_comment_is_set_at_any_depth(path: str, mode: dict[str, str]) -> None:
    before = state(DEEP, mode)
    change = alter(before, path, comment="it's `so`\n; DROP TABLE x -- 🦆")
    assert change is not None
    now = after(before, change)
    assert field(now, path).metadata["comment"] == "it's `so`\n; DROP TABLE x -- 🦆"
    assert ids(now) == ids(before)
    told: Any = change.parameters["column"]
    assert (change.operation, told["name"], told["metadata"]) == (
        "CHANGE COLUMN",
        path,
        dict(field(now, path).metadata),
    )


def test_the_empty_comment_is_one_too() -> None:
    before = state("a int")
    now = after(before, alter(before, "a", comment=""))
    assert dict(field(now, "a").metadata) == {"comment": ""}
    assert alter(now, "a", comment="") is None
    assert alter(now, "a") is None


@pytest.mark.parametrize("path", ["l.element", "m.key", "m.value"])
def test_items_have_a_type_and_nothing_else(path: str) -> None:
    before = state(DEEP, MAPPED)
    for wanted, expected in [
        ({"comment": "x"}, "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY"),
        ({"nullable": path == "m.key"}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ({"first": True}, "INVALID_FIELD_NAME"),
        ({"default": "1"}, "INVALID_FIELD_NAME"),
    ]:
        with pytest.raises(WidenError) as caught:
            alter(before, path, **wanted)
        assert code(caught) == expected
    for call in (lambda: rename(before, path, "x"), lambda: drop(before, path), lambda: add(before, {path: "int"})):
        with pytest.raises(WidenError) as caught:
            call()
        assert code(caught) == "INVALID_FIELD_NAME"


def test_null_is_allowed_anywhere_and_forbidden_where_no_parent_can_be_null() -> None:
    columns = (
        "a int not null, b int, s struct<x: int not null, t: struct<u: int> not null> not null, l array<struct<q: int>>"
    )
    before = state(columns)
    change = alter(before, "s.x", nullable=True)
    assert field(after(before, change), "s.x").nullable
    assert not field(after(before, alter(before, "s.t.u", nullable=False)), "s.t.u").nullable
    assert not field(after(before, alter(before, "B", nullable=False)), "b").nullable
    for path, told in [("l.element.q", "array"), ("s.t.u", "s is nullable")]:
        loose = after(before, alter(before, "s", nullable=True))
        with pytest.raises(WidenError, match=told) as caught:
            alter(loose, path, nullable=False)
        assert code(caught) == "DELTA_NOT_NULL_NESTED_FIELD"


def test_a_forbidden_null_brings_its_feature() -> None:
    before = state("a int", {"delta.feature.domainMetadata": "supported"})
    assert "invariants" in (before.protocol.writer_features or ())
    lacking = TableState(
        type(before.protocol)(min_reader_version=1, min_writer_version=7, writer_features=()), before.metadata, 0
    )
    change = alter(lacking, "a", nullable=False)
    assert change is not None
    assert after(lacking, change).protocol.writer_features == ("invariants",)


def test_a_default_needs_its_feature_and_is_constant() -> None:
    before = state("a int, s struct<x: int>, id int", {"delta.feature.allowColumnDefaults": "supported"})
    now = after(before, alter(before, "a", default="1 + 1"))
    assert dict(field(now, "a").metadata) == {"CURRENT_DEFAULT": "1 + 1"}
    assert alter(now, "a", default="1 + 1") is None
    assert dict(field(after(now, alter(now, "a", drop_default=True)), "a").metadata) == {}
    assert alter(before, "a", drop_default=True) is None
    with pytest.raises(WidenError) as caught:
        alter(state("a int"), "a", default="1")
    assert code(caught) == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    for wrong in ("id + 1", "(select 1)", "1; drop table x", "", "1 +"):
        with pytest.raises(WidenError, match="SQL expression without columns"):
            alter(before, "a", default=wrong)
    with pytest.raises(WidenError) as caught:
        alter(before, "s.x", default="1")
    assert code(caught) == "INVALID_FIELD_NAME"


@pytest.mark.parametrize("parent", ["", "s.", "l.element.", "m.key.", "m.value."])
def test_a_column_moves_within_its_struct(parent: str, mode: dict[str, str]) -> None:
    columns = "f int, g int, h int"
    struct = f"struct<{columns}>"
    before = state(f"{columns}, s {struct}, l array<{struct}>, m map<{struct}, {struct}>", mode)
    rest = ("s", "l", "m") if not parent else ()

    def names(found: TableState) -> tuple[str, ...]:
        at = resolve(found.schema, parse_path(parent[:-1]) if parent else ())[1]
        assert isinstance(at, StructType)
        return at.names

    for wanted, order, position in [
        ({"first": True}, ("h", "f", "g"), "FIRST"),
        ({"after": "F"}, ("f", "h", "g"), "AFTER F"),
    ]:
        change = alter(before, f"{parent}h", **wanted)
        assert change is not None
        assert change.parameters["position"] == position
        assert names(after(before, change)) == (*order, *rest)
        assert ids(after(before, change)) == {path: ids(before)[path] for path in ids(after(before, change))}
    for same in ({"after": "g"}, {"after": "h"}):
        assert alter(before, f"{parent}h", **same) is None
    with pytest.raises(WidenError, match="nope") as caught:
        alter(before, f"{parent}h", after="nope")
    assert code(caught) == "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"


def test_several_columns_change_in_one_commit_or_none_does() -> None:
    before = state(NESTED, WIDE)
    change = alter_all(
        before, {"a": {"type": "bigint", "comment": "x"}, "s.y": {"first": True}, "l.element.key": {"type": "int"}}
    )
    assert change is not None
    assert change.operation == "CHANGE COLUMNS"
    assert change.parameters == {
        "columns": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {"comment": "x"}},
            {"name": "s.y", "type": "string", "nullable": True, "metadata": {}, "position": "FIRST"},
        ]
    }
    assert [str(operation) for operation in change.operations] == [
        "comment on a: 'x'",
        "widen a from int to bigint",
        "move s.y FIRST",
    ]
    with pytest.raises(TypeChangeRefused):
        alter_all(before, {"a": {"type": "bigint"}, "s.x": {"type": "smallint"}})


def test_what_is_said_of_a_column_must_make_sense() -> None:
    before = state(NESTED)
    wrong = (
        ({"size": 3}, "Valid keys are: type, comment"),
        ({"first": True, "after": "v"}, "first cannot be used together with after"),
        ({"default": "1", "drop_default": True}, "default cannot be used together with drop_default"),
    )
    for wanted, message in wrong:
        with pytest.raises(WidenError, match=message):
            alter(before, "a", **wanted)
    with pytest.raises(WidenError, match="needs a type"):
        add(before, {"n": {"comment": "x"}})


def test_what_is_the_same_needs_no_commit_and_no_feature() -> None:
    before = state(NESTED)
    for path, wanted in [
        ("a", {"type": "int"}),
        ("s", {"type": "struct<x: int, y: string>"}),
        ("s.x", {"nullable": True}),
        ("l.element.key", {"nullable": False}),
        ("v", {"after": "l"}),
    ]:
        assert alter(before, path, **wanted) is None
    assert add(before, {}) is None
    assert drop(before, "nope", "s.nope", "a.b", if_exists=True) is None
    assert rename(before, "A", "a") is None
    assert replace(before, before.schema) is None


# ---- rename, drop, add -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", DEPTHS)
@pytest.mark.parametrize("name", ["new", "n `q`.r\n'\";-- 🦆 =(,)", "element", "key"])
def test_a_column_gets_another_name_and_nothing_else(path: str, name: str) -> None:
    before = state(DEEP, {**WIDE, **MAPPED})
    before = after(before, alter(before, path, type="bigint", comment="kept"))
    change = rename(before, path, name)
    now = after(before, change)
    parts = parse_path(path)
    renamed = find_field(now.schema, (*parts[:-1], name))
    assert renamed is not None
    assert renamed.metadata == field(before, path).metadata
    assert renamed.type == field(before, path).type
    assert sorted(ids(now).values(), key=str) == sorted(ids(before).values(), key=str)


def test_a_change_of_name_is_told() -> None:
    before = state("s struct<`x.y`: int, z: int>", MAPPED)
    change = rename(before, "S.`x.y`", "a b")
    assert change is not None
    assert (change.operation, dict(change.parameters)) == (
        "RENAME COLUMN",
        {"oldColumnPath": "s.`x.y`", "newColumnPath": "s.a b"},
    )


def test_names_that_no_column_gets() -> None:
    before = state("a int, b int, s struct<x: int>", MAPPED)
    for path, name, expected in [
        ("a", "B", "FIELD_ALREADY_EXISTS"),
        ("a", "", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("nope", "x", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
    ]:
        with pytest.raises(WidenError) as caught:
            rename(before, path, name)
        assert code(caught) == expected
    with pytest.raises(WidenError) as caught:
        rename(state("a int"), "a", "b")
    assert code(caught) == "DELTA_UNSUPPORTED_RENAME_COLUMN"
    assert after(before, rename(before, "a", "A")).schema.names == ("A", "b", "s")
    fed = state("a int", {**MAPPED, "delta.enableChangeDataFeed": "true"})
    with pytest.raises(WidenError, match="change data feed"):
        rename(fed, "a", "_Change_Type")


def test_what_names_a_column_follows_its_name() -> None:
    before = state(
        "p int, a int, `b,c` int, s struct<x: int, y: int>",
        {**MAPPED, "delta.dataSkippingStatsColumns": "A, `b,c`,s.x,s.y"},
        ("p",),
    )
    now = after(before, rename(before, "p", "part"))
    now = after(now, rename(now, "a", "x y"))
    now = after(now, rename(now, "s", "t"))
    now = after(now, rename(now, "`b,c`", "d`e"))
    assert now.metadata.partition_columns == ("part",)
    assert now.properties["delta.dataSkippingStatsColumns"] == "`x y`,`d``e`,t.x,t.y"
    now = after(now, drop(now, "t.x", "`d``e`"))
    assert now.properties["delta.dataSkippingStatsColumns"] == "`x y`,t.y"


@pytest.mark.parametrize("path", DEPTHS)
def test_a_column_is_dropped_with_its_history_and_never_comes_back(path: str) -> None:
    before = state(DEEP, {**WIDE, **MAPPED})
    before = after(before, alter(before, path, type="bigint"))
    change = drop(before, path.upper())
    assert change is not None
    assert (change.operation, dict(change.parameters)) == ("DROP COLUMNS", {"columns": [path]})
    now = after(before, change)
    assert parse_path(path) not in ids(now)
    again = after(now, add(now, {path: "string"}))
    assert ids(again)[parse_path(path)][0] == 1 + max(found[0] for found in ids(before).values())
    assert ids(again)[parse_path(path)][1] not in [found[1] for found in ids(before).values()]
    assert dict(field(again, path).metadata).keys() == {COLUMN_ID, PHYSICAL_NAME}


def test_columns_that_stay() -> None:
    before = state("p int, a int, s struct<x: int>", MAPPED, ("p",))
    clustered = TableState(
        before.protocol, before.metadata, before.version, ((*_physical(before, "s"), *_physical(before, "s.x")),)
    )
    for found, paths, expected in [
        (state("a int, b int"), ("a",), "DELTA_UNSUPPORTED_DROP_COLUMN"),
        (before, ("P",), "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"),
        (before, ("s.x",), "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
        (before, ("a", "s"), "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
        (before, ("s", "s.x"), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (clustered, ("s",), "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"),
        (before, ("nope",), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
    ]:
        with pytest.raises(WidenError) as caught:
            drop(found, *paths)
        assert code(caught) == expected


def _physical(found: TableState, path: str) -> tuple[str, ...]:
    return (field(found, path).metadata[PHYSICAL_NAME],)


@pytest.mark.parametrize("parent", ["", "s.", "l.element.", "m.key.", "m.value."])
def test_a_column_is_added_anywhere(parent: str, mode: dict[str, str]) -> None:
    before = state(DEEP, mode)
    first = "top" if not parent else "f"
    change = add(
        before,
        {
            f"{parent}n": {"type": "struct<q: array<int>>", "comment": "new", "after": first},
            f"{parent}n.r": "date",
            f"{parent}o": {"type": "int", "first": True},
        },
    )
    assert change is not None
    now = after(before, change)
    assert (change.operation, change.parameters["columns"]) == (
        "ADD COLUMNS",
        [
            {
                "column": {"name": f"{parent}n", "type": "struct", "nullable": True, "metadata": {"comment": "new"}},
                "position": f"AFTER {first}",
            },
            {"column": {"name": f"{parent}n.r", "type": "date", "nullable": True, "metadata": {}}},
            {
                "column": {"name": f"{parent}o", "type": "integer", "nullable": True, "metadata": {}},
                "position": "FIRST",
            },
        ],
    )
    struct = resolve(now.schema, parse_path(parent[:-1]) if parent else ())[1]
    assert isinstance(struct, StructType)
    assert struct.names[:3] == ("o", first, "n")
    assert field(now, f"{parent}n").type.sql == "struct<q: array<int>, r: date>"
    if mode:
        known = {found[0] for found in ids(before).values()}
        added = {found[0] for found in ids(now).values()} - known
        assert len(added) == 4
        assert min(added) > max(known)
        assert now.properties["delta.columnMapping.maxColumnId"] == str(max(added))


def test_columns_that_are_not_added() -> None:
    before = state(NESTED, {"delta.feature.allowColumnDefaults": "supported"})
    for path, wanted, expected in [
        ("A", "int", "FIELD_ALREADY_EXISTS"),
        ("s.X", "int", "FIELD_ALREADY_EXISTS"),
        ("n", "struct<x: int, X: int>", "FIELD_ALREADY_EXISTS"),
        ("nope.x", "int", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("a.x", "int", "DELTA_COLUMN_PATH_NOT_NESTED"),
        ("l.x", "int", "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME"),
        ("n", {"type": "int", "after": "nope"}, "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("n", {"type": "int", "nullable": False}, "DELTA_OPERATION_NOT_ALLOWED"),
        ("n", "struct<x: int not null>", "DELTA_OPERATION_NOT_ALLOWED"),
        (
            "n",
            {"type": "int", "default": "1"},
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        ),
        ("`x y`", "int", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("n", "struct<`x;y`: int>", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("n", "struct<t: timestamp_ntz>", "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"),
    ]:
        with pytest.raises(WidenError) as caught:
            add(before, {path: wanted})
        assert code(caught) == expected, path


def test_a_new_column_brings_no_ids_of_another_table() -> None:
    there = state("s struct<x: int>", {**WIDE, **MAPPED})
    there = after(there, alter(there, "s.x", type="bigint"))
    here = state("a int, b int, c int", MAPPED)
    now = after(here, add(here, {"s": there.schema.fields[0].type}))
    assert {path: found[0] for path, found in ids(now).items()} == {
        ("a",): 1,
        ("b",): 2,
        ("c",): 3,
        ("s",): 4,
        ("s", "x"): 5,
    }
    assert "delta.typeChanges" not in now.metadata.schema_string


# ---- what depends on columns -----------------------------------------------------------------------


def guarded(columns: str, expression: str, *, generated: bool = False) -> TableState:
    """A table whose expression looks at columns; ``gen`` is made by it, or a constraint holds it."""
    if not generated:
        return state(columns, {**WIDE, **MAPPED, "delta.constraints.ck": expression})
    made = Field("gen", parse_type("int"), metadata={"delta.generationExpression": expression})
    return state(StructType((*schema(columns).fields, made)), {**WIDE, **MAPPED})


GUARDED = (
    "a struct<x: int, y: int>, l array<int>, m map<int, int>, ls array<struct<x: int, y: int>>, element int, b int"
)


@pytest.mark.parametrize("generated", [False, True], ids=["constraint", "generated"])
@pytest.mark.parametrize(
    ("expression", "blocked", "free"),
    [
        ("a.x", ["a.x"], ["a.y", "b"]),
        ("hash ( `A` )", ["a.x", "a.y"], ["b", "l.element"]),
        ("l[1]", ["l.element"], ["element", "m.key"]),
        ("hash(l)", ["l.element"], ["b"]),
        ("m[7]", ["m.key", "m.value"], ["b"]),
        ("ls.x[0]", ["ls.element.x"], ["ls.element.y", "a.x"]),
        ("ls[0].y", ["ls.element.y"], ["ls.element.x", "a.y"]),
        ("transform(l, v -> v + b)[0]", ["l.element", "b"], ["element"]),
        ("this is no(( SQL about `B`", ["b"], ["l.element"]),
    ],
)
def test_expressions_protect_what_they_look_at(
    expression: str, blocked: list[str], free: list[str], generated: bool
) -> None:
    before = guarded(GUARDED, expression, generated=generated)
    kind = "GENERATED_COLUMNS" if generated else "CONSTRAINT"
    for path in blocked:
        with pytest.raises(WidenError) as caught:
            alter(before, path, type="bigint")
        assert code(caught) == f"DELTA_{kind}_DEPENDENT_COLUMN_CHANGE", path
        name = "gen" if generated else "delta.constraints.ck"
        assert f"{name} -> {expression}" in str(caught.value)
        assert alter(before, path, type="int") is None
    for path in free:
        assert alter(before, path, type="bigint") is not None, path


def test_names_are_protected_too_and_comments_and_places_are_not() -> None:
    before = guarded(GUARDED, "a.x > 0")
    for call in (
        lambda: rename(before, "a", "z"),
        lambda: rename(before, "a.x", "z"),
        lambda: drop(before, "a"),
        lambda: drop(before, "a.x"),
        lambda: replace(before, GUARDED.replace("a struct<x: int, y: int>, ", "")),
        lambda: replace(before, GUARDED.replace("a struct<x: int,", "a struct<x: bigint,")),
    ):
        with pytest.raises(WidenError) as caught:
            call()
        assert code(caught) == "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
    assert rename(before, "a.y", "z") is not None
    assert drop(before, "a.y") is not None
    assert replace(before, GUARDED.replace("y: int>, l", "y: bigint>, l")) is not None
    assert alter(before, "a.x", comment="x", after="y") is not None


def test_generated_columns_count_only_where_the_protocol_says_so() -> None:
    before = guarded("a int", "a + 1", generated=True)
    unaware = TableState(
        type(before.protocol)(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("typeWidening",),
            writer_features=("typeWidening",),
        ),
        before.metadata,
        0,
    )
    assert alter(unaware, "a", type="bigint") is not None
    with pytest.raises(WidenError) as caught:
        alter(before, "gen", type="bigint")
    assert code(caught) == "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"


def test_an_identity_column_stays_what_it_is() -> None:
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
    columns = StructType(
        (Field("id", parse_type("bigint"), nullable=False, metadata=identity), Field("a", parse_type("int")))
    )
    before = state(columns, {**WIDE, **MAPPED, "delta.feature.allowColumnDefaults": "supported"})
    for wanted in ({"type": "decimal(20,0)"}, {"nullable": True}, {"default": "1"}):
        with pytest.raises(WidenError) as caught:
            alter(before, "id", **wanted)
        assert code(caught) == "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
    loose = StructType((Field("id", parse_type("bigint"), metadata=identity), Field("a", parse_type("int"))))
    with pytest.raises(WidenError) as caught:  # also where the column is nullable already, as Delta Lake
        alter(state(loose, WIDE), "id", nullable=True)
    assert code(caught) == "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
    with pytest.raises(WidenError) as caught:
        replace(before, "id bigint not null, a int")
    assert code(caught) == "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    assert alter(before, "id", comment="x", after="a") is not None
    assert rename(before, "id", "number") is not None
    synced = plan_alter(before, [SyncIdentity(("id",), 7)])
    assert synced is not None
    assert field(after(before, synced), "id").metadata["delta.identity.highWaterMark"] == 7
    assert synced.operation == "CHANGE COLUMN"
    with pytest.raises(WidenError) as caught:
        plan_alter(before, [SyncIdentity(("a",), 7)])
    assert code(caught) == "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN"


# ---- replace ---------------------------------------------------------------------------------------


def test_columns_are_replaced_and_what_stays_keeps_what_is_known_of_it(mode: dict[str, str]) -> None:
    before = state("a tinyint, b int not null, s struct<x: int, y: array<int>>, m map<int, int>", {**WIDE, **mode})
    before = after(before, alter(before, "a", type="smallint", comment="kept"))
    change = replace(
        before, "S struct<Y: array<bigint>, x: int, z: date>, m map<bigint, bigint>, b int, A int, n string"
    )
    assert change is not None
    now = after(before, change)
    assert now.schema.sql == (
        "struct<s: struct<y: array<bigint>, x: int, z: date>, m: map<bigint,bigint>, b: int, a: int, n: string>"
    )
    assert field(now, "a").metadata["comment"] == "kept"
    assert [(e["fromType"], e["toType"]) for e in field(now, "a").metadata["delta.typeChanges"]] == [
        ("byte", "short"),
        ("short", "integer"),
    ]
    assert field(now, "s.y").metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element"}
    ]
    assert [e["fieldPath"] for e in field(now, "m").metadata["delta.typeChanges"]] == ["key", "value"]
    assert {path: ids(now)[path] for path in ids(before)} == ids(before)
    assert change.operation == "REPLACE COLUMNS"
    told: Any = change.parameters["columns"]
    assert [(column["name"], column["type"]) for column in told] == [
        ("S", "struct"),
        ("m", "map"),
        ("b", "integer"),
        ("A", "integer"),
        ("n", "string"),
    ]


@pytest.mark.parametrize(
    ("columns", "expected", "told"),
    [
        (
            "p int, a int, s struct<x: int, y: int>",
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            "l would be dropped",
        ),
        (
            "p int, a int, s struct<x: int>, l array<int>",
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            "s.y would be dropped",
        ),
        (
            "p int, a int, s struct<x: int, z: int>, l array<int>",
            "DELTA_AMBIGUOUS_DATA_TYPE_CHANGE",
            "dropping y and adding z",
        ),
        (
            "p int, a smallint, s struct<x: int, y: int>, l array<int>",
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            "does not support",
        ),
        ("p int, a int, s int, l array<int>", "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP", "to INT"),
        (
            "p int, a int not null, s struct<x: int, y: int>, l array<int>",
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            "a would become NOT NULL",
        ),
        ("p int, a int, s struct<x: int, y: int>, l array<int>, n int not null", "DELTA_OPERATION_NOT_ALLOWED", "n"),
        ("p int, a int, s struct<x: int, y: int>, l array<int>, A int", "FIELD_ALREADY_EXISTS", "A"),
        (
            "p int, a int, s struct<x: int, y: int>, l array<int>, `n n` int",
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            "n n",
        ),
    ],
)
def test_columns_that_do_not_replace_others(columns: str, expected: str, told: str) -> None:
    before = state("p int, a int, s struct<x: int, y: int>, l array<int>", WIDE, ("p",))
    with pytest.raises(WidenError) as caught:
        replace(before, columns)
    assert code(caught) == expected
    assert told in str(caught.value)


def test_a_replacement_may_drop_where_columns_are_mapped_but_not_all() -> None:
    before = state("p int, a int, s struct<x: int, y: int>", MAPPED, ("p",))
    assert after(before, replace(before, "s struct<y: int>, p int")).schema.sql == "struct<s: struct<y: int>, p: int>"
    for columns, expected in [
        ("a int", "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"),
        ("p int", "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
    ]:
        with pytest.raises(WidenError) as caught:
            replace(before, columns)
        assert code(caught) == expected


# ---- constraints -----------------------------------------------------------------------------------


def test_a_constraint_is_a_property_and_brings_its_feature() -> None:
    before = state("a int", {"delta.feature.domainMetadata": "supported"})
    change = plan_alter(before, [AddConstraint("Positive", "a > 0")])
    assert change is not None
    assert (change.operation, dict(change.parameters)) == ("ADD CONSTRAINT", {"name": "Positive", "expr": "a > 0"})
    now = after(before, change)
    assert now.properties["delta.constraints.positive"] == "a > 0"
    assert "checkConstraints" in (now.protocol.writer_features or ())
    gone = plan_alter(now, [DropConstraint("POSITIVE")])
    assert gone is not None
    assert dict(gone.parameters) == {"name": "POSITIVE", "expr": "a > 0", "existed": "true"}
    assert "delta.constraints.positive" not in after(now, gone).properties
    for operation, expected in [
        (AddConstraint("posiTIVE", "a > 1"), "DELTA_CONSTRAINT_ALREADY_EXISTS"),
        (AddConstraint(" ", "a > 1"), "DELTA_INVALID_CONSTRAINT_NAME"),
        (AddConstraint("__CHAR_VARCHAR_STRING_LENGTH_CHECK__", "a > 1"), "DELTA_INVALID_CONSTRAINT_NAME"),
        (DropConstraint("other"), "DELTA_CONSTRAINT_DOES_NOT_EXIST"),
    ]:
        with pytest.raises(WidenError) as caught:
            plan_alter(now, [operation])
        assert code(caught) == expected


# ---- column mapping comes later --------------------------------------------------------------------


def test_a_table_that_begins_to_map_keeps_its_names_in_the_files() -> None:
    plain = state("a int, s struct<x: int>")
    now = after(plain, plan_set_properties(plain, MAPPED))
    now = after(now, rename(now, "a", "b"))
    now = after(now, rename(now, "s.x", "y"))
    assert ids(now) == {("b",): (1, "a"), ("s",): (2, "s"), ("s", "y"): (3, "x")}


def test_a_commit_that_changes_columns_has_metadata_and_nothing_else() -> None:
    before = state(NESTED, WIDE)
    change = alter(before, "a", type="bigint")
    assert change is not None
    assert [type(action) for action in change.actions] == [Metadata]


# ---- many columns at once --------------------------------------------------------------------------


def calls_of(run: Callable[[], object]) -> int:
    """Return how many functions of Python a call enters."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["types", "types and comments", "places", "additions", "drops", "fields of a struct"])
def test_a_change_of_every_column_takes_work_in_proportion_to_them(kind: str) -> None:
    def work(count: int) -> int:
        columns = ", ".join(f"c{each}: int" for each in range(count))
        before = state(f"k int, s struct<{columns}>, {columns}", {**WIDE, **MAPPED})
        names = [f"c{each}" for each in range(count)]
        operations: list[Operation] = {
            "types": [WidenType((name,), INTEGER, LONG) for name in names],
            "types and comments": [
                each for name in names for each in (WidenType((name,), INTEGER, LONG), SetComment((name,), "x"))
            ],
            "places": [MoveColumn((name,), StructEnd.FIRST) for name in names],
            "additions": [AddColumn((), Field(f"n{name}", LONG)) for name in names],
            "drops": [DropColumn((name,)) for name in names],
            "fields of a struct": [WidenType(("s", name), INTEGER, LONG) for name in names],
        }[kind]
        return calls_of(lambda: plan_alter(before, operations))

    assert work(160) < 4.6 * work(40)


def test_operations_on_one_column_and_on_what_is_in_it_are_checked_one_after_the_other() -> None:
    before = state("a int, s struct<x: int, y: int>", {**WIDE, **MAPPED})
    for operations in (
        [WidenType(("a",), INTEGER, LONG), WidenType(("A",), INTEGER, LONG)],
        [AddColumn((), Field("n", LONG)), AddColumn((), Field("N", LONG))],
        [DropColumn(("s", "x")), DropColumn(("s", "y"))],
        [DropColumn(("s",)), DropColumn(("a",))],
    ):
        with pytest.raises(WidenError):
            plan_alter(before, operations)
    nested = [AddColumn((), Field("n", schema("b int"))), AddColumn(("n",), Field("c", LONG))]
    assert after(before, plan_alter(before, nested)).schema.sql.endswith("n: struct<b: int, c: bigint>>")


def test_a_variant_column_brings_its_feature_as_in_delta_lake() -> None:
    for type_of_column in ("variant", "struct<v: variant>"):
        change = add(state("a int"), {"v": type_of_column})
        assert change is not None
        [protocol] = [action for action in change.actions if isinstance(action, Protocol)]
        assert protocol.reader_features == ("variantType",)
        assert "variantType" in (protocol.writer_features or ())
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        add(state("a int"), {"t": "timestamp_ntz"})
