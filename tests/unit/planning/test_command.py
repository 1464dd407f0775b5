"""Commands: creation, properties, features, columns; spec of Delta's protocol and ALTER TABLE."""

from __future__ import annotations

import pytest

from widen.errors import (
    ColumnNotFound,
    EnabledWithoutFeature,
    FeatureRequired,
    InvalidOption,
    NestedTypeChangeRefused,
    TypeChangeRefused,
)
from widen.model.path import fields, parse_path
from widen.model.schema import from_json
from widen.model.text import parse_type
from widen.model.type import StructType
from widen.planning.alter import ColumnChange, alter_column
from widen.planning.command import Change, State, add_columns, add_feature, create, set_properties, unset_properties
from widen.protocol.action import Metadata, Protocol

WIDE = {"delta.enableTypeWidening": "true"}


def state(columns: str, properties: dict[str, str] | None = None, partition_by: tuple[str, ...] = ()) -> State:
    parsed = parse_type(f"struct<{columns}>")
    assert isinstance(parsed, StructType)
    return after(
        State(-1, Protocol(min_reader_version=1, min_writer_version=2), _nothing()),
        _create(parsed, properties, partition_by),
    )


def _nothing() -> Metadata:
    return Metadata(id="x", schema_string='{"type":"struct","fields":[]}', partition_columns=())


def _create(schema: StructType, properties: dict[str, str] | None, partition_by: tuple[str, ...]) -> Change:
    return create(schema, partition_by, properties or {}, 1)


def after(before: State, change: Change | None) -> State:
    assert change is not None
    metadata = next((a for a in change.actions if isinstance(a, Metadata)), before.metadata)
    protocol = next((a for a in change.actions if isinstance(a, Protocol)), before.protocol)
    return State(before.version + 1, protocol, metadata)


def alter(before: State, path: str, **wanted: object) -> Change | None:
    if isinstance(wanted.get("type"), str):
        wanted["type"] = parse_type(str(wanted["type"]))
    return alter_column(before, parse_path(path), ColumnChange(**wanted))  # type: ignore[arg-type]


# ---- creation and properties -----------------------------------------------------------------------


def test_a_plain_table_has_the_plain_protocol() -> None:
    made = state("a int, b string", {"delta.appendOnly": "true", "note": "x"}, ("B",))
    assert made.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert made.metadata.partition_columns == ("b",)
    assert made.properties == {"delta.appendOnly": "true", "note": "x"}


def test_the_schema_and_the_properties_bring_their_features() -> None:
    made = state("a timestamp_ntz", {**WIDE, "delta.feature.deletionVectors": "supported"})
    features = ("appendOnly", "deletionVectors", "invariants", "timestampNtz", "typeWidening")
    assert made.protocol == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors", "timestampNtz", "typeWidening"),
        writer_features=features,
    )
    assert made.properties == WIDE


def test_enabling_widening_adds_the_feature_in_the_same_commit() -> None:
    before = state("a int")
    change = set_properties(before, WIDE)
    assert change is not None
    assert [type(action) for action in change.actions] == [Metadata, Protocol]
    assert (change.operation, change.parameters) == ("SET TBLPROPERTIES", {"properties": WIDE})
    now = after(before, change)
    assert now.protocol == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("typeWidening",),
        writer_features=("appendOnly", "invariants", "typeWidening"),
    )
    assert set_properties(now, WIDE) is None
    disabled = after(now, set_properties(now, {"delta.enableTypeWidening": "false"}))
    assert disabled.protocol == now.protocol
    assert after(now, unset_properties(now, ["delta.enableTypeWidening"])).properties == {}
    assert unset_properties(now, ["other"]) is None


def test_the_preview_is_kept_where_it_is() -> None:
    before = state("a int", {"delta.feature.typeWidening-preview": "supported"})
    now = after(before, set_properties(before, WIDE))
    assert now.protocol.reader_features == ("typeWidening-preview",)
    changed = after(now, alter(now, "a", type="bigint"))
    field = from_json(changed.metadata.schema_string).fields[0]
    assert field.metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long", "tableVersion": 2}]


def test_features_are_added_once() -> None:
    before = state("a int")
    now = after(before, add_feature(before, "TIMESTAMPNTZ"))
    assert now.protocol.reader_features == ("timestampNtz",)
    assert add_feature(now, "timestampNtz") is None
    with pytest.raises(InvalidOption, match="teleport"):
        add_feature(now, "teleport")


@pytest.mark.parametrize(
    ("columns", "partition_by", "properties"),
    [
        ("a int, A int", (), {}),
        ("a int", ("a",), {}),
        ("a int, b array<int>", ("b",), {}),
        ("a int", (), {"delta.enableTypeWidening": "bla"}),
        ("a int", (), {"delta.columnMapping.mode": "both"}),
        ("a int", (), {"x": 1}),
    ],
)
def test_what_no_table_can_be(columns: str, partition_by: tuple[str, ...], properties: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        state(columns, properties, partition_by)


def test_a_partition_column_must_be_there() -> None:
    with pytest.raises(ColumnNotFound, match="b is not in the schema"):
        state("a int", {}, ("b",))


# ---- columns ---------------------------------------------------------------------------------------

NESTED = "a int, s struct<x: int, y: string>, l array<map<int, struct<z: int>>>, v void"


def test_columns_are_added_anywhere() -> None:
    before = state(NESTED)
    change = add_columns(before, {"b": parse_type("date"), "l.element.value.n": parse_type("int")})
    assert change is not None
    assert change.operation == "ADD COLUMNS"
    now = after(before, change)
    assert now.schema.sql == (
        "struct<a: int, s: struct<x: int, y: string>, l: array<map<int,struct<z: int, n: int>>>, v: void, b: date>"
    )
    for path, kind in [
        ("A", InvalidOption),
        ("s.x", InvalidOption),
        ("nope.x", ColumnNotFound),
        ("a.x", ColumnNotFound),
    ]:
        with pytest.raises(kind):
            add_columns(before, {path: parse_type("int")})
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        add_columns(before, {"n": parse_type("struct<t: timestamp_ntz>")})
    assert add_columns(before, {}) is None


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
    assert change.parameters["column"] == {"name": name, "type": "long", "nullable": nullable, "metadata": {}}
    recorded = {
        at: field.metadata["delta.typeChanges"]
        for at, field in fields(from_json(after(before, change).metadata.schema_string))
        if "delta.typeChanges" in field.metadata
    }
    assert recorded == {entry_on: [{"fromType": "integer", "toType": "long", **entry}]}


def test_a_history_grows_at_its_end() -> None:
    now = state("a tinyint", WIDE)
    for name in ("smallint", "bigint", "decimal(20,0)"):
        now = after(now, alter(now, "a", type=name))
    pairs = [(e["fromType"], e["toType"]) for e in now.schema.fields[0].metadata["delta.typeChanges"]]
    assert pairs == [("byte", "short"), ("short", "long"), ("long", "decimal(20,0)")]


def test_what_is_the_same_needs_no_commit_and_no_feature() -> None:
    before = state(NESTED)
    assert alter(before, "a", type="int") is None
    assert alter(before, "s.x", nullable=True) is None
    assert alter(before, "l.element.key", nullable=False) is None


def test_void_becomes_anything_without_a_feature() -> None:
    before = state(NESTED)
    now = after(before, alter(before, "v", type="string"))
    assert (now.schema.fields[3].type, dict(now.schema.fields[3].metadata)) == (parse_type("string"), {})


@pytest.mark.parametrize(
    ("path", "new", "error", "told"),
    [
        ("nope", "bigint", ColumnNotFound, "nope"),
        ("s.nope", "bigint", ColumnNotFound, "nope"),
        ("s", "struct<x: bigint, y: string>", NestedTypeChangeRefused, "STRUCT<X: INT, Y: STRING>"),
        ("l", "array<int>", NestedTypeChangeRefused, "it has parts"),
        ("a", "array<int>", NestedTypeChangeRefused, "ARRAY<INT>"),
        ("a", "float", TypeChangeRefused, "from INT to FLOAT"),
        ("a", "smallint", TypeChangeRefused, "from INT to SMALLINT"),
    ],
)
def test_refusals(path: str, new: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error) as caught:
        alter(state(NESTED, WIDE), path, type=new)
    assert told in str(caught.value)


def test_refusals_that_depend_on_the_table() -> None:
    with pytest.raises(TypeChangeRefused, match=r"set_properties\(\{'delta.enableTypeWidening': 'true'\}\)"):
        alter(state("a int"), "a", type="bigint")
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        alter(state("a date", WIDE), "a", type="timestamp_ntz")
    lost = state("a int")
    broken = State(
        0,
        lost.protocol,
        Metadata(id="x", schema_string=lost.metadata.schema_string, partition_columns=(), configuration=WIDE),
    )
    with pytest.raises(EnabledWithoutFeature):
        alter(broken, "a", type="bigint")
    constrained = state("a int, ab int", {**WIDE, "delta.constraints.c": "hash ( `A` ) > 0"})
    with pytest.raises(TypeChangeRefused, match="hash"):
        alter(constrained, "a", type="bigint")
    assert alter(constrained, "ab", type="bigint") is not None
    iceberg = state("a int", {**WIDE, "delta.columnMapping.mode": "name", "delta.feature.icebergCompatV2": "supported"})
    with pytest.raises(TypeChangeRefused, match="icebergCompatV2"):
        alter(iceberg, "a", type="double")
    assert alter(iceberg, "a", type="bigint") is not None


def test_comment_nullability_and_place() -> None:
    before = state("a int not null, s struct<x: int, y: int, z: int>, b int")
    now = after(before, alter(before, "a", comment="hello", nullable=True))
    assert (now.schema.fields[0].nullable, dict(now.schema.fields[0].metadata)) == (True, {"comment": "hello"})
    moved = alter(before, "b", after="FIRST")
    assert moved is not None
    assert moved.parameters["position"] == "FIRST"
    assert after(before, moved).schema.names == ("b", "a", "s")
    inner = after(before, alter(before, "s.x", after="Y")).schema.fields[1].type
    assert isinstance(inner, StructType)
    assert inner.names == ("y", "x", "z")
    assert alter(before, "s.x", after="x") is None
    with pytest.raises(InvalidOption, match="null"):
        alter(before, "b", nullable=False)
    with pytest.raises(ColumnNotFound):
        alter(before, "b", after="nope")
    with pytest.raises(InvalidOption, match="no comment"):
        alter(state(NESTED), "l.element", comment="x")
