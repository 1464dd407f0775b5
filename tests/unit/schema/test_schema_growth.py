"""What a write makes of a table: dependent expressions, names, Iceberg, and which plans may be tried again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.state import WIDE, schema
from support.state import state as made
from widen.errors import (
    ConstraintTypeMismatch,
    EnabledWithoutFeature,
    FeatureRequired,
    GeneratedColumnTypeFixed,
    GeneratedColumnTypeMismatch,
    IdentityColumnFixed,
    InvalidColumnName,
    SchemaMismatch,
)
from widen.model.schema_json import parse_type, to_json
from widen.model.types import Field, StructType
from widen.protocol.actions import Protocol
from widen.schema.growth import SchemaGrowth, can_retry_write, grow_schema, schema_change_options
from widen.schema.operations import AddColumn, WidenType
from widen.schema.source_metadata import AutomaticWidening
from widen.schema.table_state import TableState


def state(columns: str | StructType, **properties: str) -> TableState:
    return made(columns, {**WIDE, **{key.replace("__", "."): text for key, text in properties.items()}})


def with_generated(columns: str, name: str, kind: str, expression: str) -> TableState:
    generated = Field(name, parse_type(kind), metadata={"delta.generationExpression": expression})
    return state(StructType((*schema(columns).fields, generated)))


def grown(before: TableState, incoming: str, *, widening: AutomaticWidening = AutomaticWidening.ALWAYS) -> str:
    options = schema_change_options(before, merge_schema=True, widening=widening, cast=False)
    growth = grow_schema(before, schema(incoming), options)
    return TableState(before.protocol, growth.metadata, 1).schema.sql


# ---- CHECK constraints -----------------------------------------------------------------------------

CONSTRAINED = [
    ("a tinyint, b tinyint", "hash ( a ) > 0", "a int", "a", "TINYINT", "INT"),
    ("a struct<x: tinyint, y: tinyint>", "hash ( a . x ) > 0", "a struct<x: int>", "a.x", "TINYINT", "INT"),
    (
        "a struct<x: struct<z: tinyint, h: tinyint>, y: tinyint>",
        "hash ( a . x . z ) > 0",
        "a struct<x: struct<z: int>>",
        "a.x.z",
        "TINYINT",
        "INT",
    ),
    (
        "s struct<arr: array<map<tinyint, tinyint>>>",
        "hash ( s . arr [ 0 ] ) > 0",
        "s struct<arr: array<map<int, tinyint>>>",
        "s.arr.element.key",
        "TINYINT",
        "INT",
    ),
    (
        "s struct<arr: array<map<tinyint, tinyint>>>",
        "hash ( s . arr [ 0 ] ) > 0",
        "s struct<arr: array<map<tinyint, int>>>",
        "s.arr.element.value",
        "TINYINT",
        "INT",
    ),
    ("m map<smallint, int>", "sign ( m [ 7 ] ) < 0", "m map<smallint, bigint>", "m.value", "INT", "BIGINT"),
]


@pytest.mark.parametrize(("columns", "expression", "incoming", "column", "old", "new"), CONSTRAINED)
def test_a_constraint_keeps_its_columns_from_widening_by_themselves(
    columns: str, expression: str, incoming: str, column: str, old: str, new: str
) -> None:
    with pytest.raises(ConstraintTypeMismatch) as caught:
        grown(state(columns, delta__constraints__ck=expression), incoming)
    constraints = f"delta.constraints.ck -> {expression}"
    assert caught.value.fields == {"column": column, "old": old, "new": new, "constraints": constraints}
    assert caught.value.code == "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"


@pytest.mark.parametrize(
    ("columns", "expression", "incoming", "after"),
    [
        ("a tinyint, b tinyint", "hash(a) > 0", "a tinyint, b int", "struct<a: tinyint, b: int>"),
        (
            "a struct<x: tinyint, y: tinyint>",
            "hash(a.x) > 0",
            "a struct<x: tinyint, y: int>",
            "struct<a: struct<x: tinyint, y: int>>",
        ),
        (
            "a struct<x: struct<z: tinyint, h: tinyint>, y: tinyint>",
            "hash(a.x.z) > 0",
            "a struct<x: struct<h: int>, y: int>",
            "struct<a: struct<x: struct<z: tinyint, h: int>, y: int>>",
        ),
        ("a int", "a > 0", "a tinyint, n string", "struct<a: int, n: string>"),
    ],
)
def test_what_no_constraint_looks_at_widens(columns: str, expression: str, incoming: str, after: str) -> None:
    assert grown(state(columns, delta__constraints__ck=expression), incoming) == after


# ---- generated columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "expression", "incoming", "column"),
    [
        ("a tinyint, b tinyint", "hash(a)", "a int", "a"),
        ("a struct<x: tinyint, y: tinyint>", "hash(a.x)", "a struct<x: int>", "a.x"),
        ("a struct<x: struct<z: tinyint>>", "hash(a.x.z)", "a struct<x: struct<z: int>>", "a.x.z"),
        ("a array<tinyint>", "hash(a[0])", "a array<int>", "a.element"),
    ],
)
def test_a_generated_column_keeps_what_it_is_made_of_from_widening_by_itself(
    columns: str, expression: str, incoming: str, column: str
) -> None:
    with pytest.raises(GeneratedColumnTypeMismatch) as caught:
        grown(with_generated(columns, "gen", "int", expression), incoming)
    assert caught.value.fields == {
        "column": column,
        "old": "TINYINT",
        "new": "INT",
        "columns": f"gen -> {expression}",
    }
    assert caught.value.code == "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH"


def test_what_no_generated_column_is_made_of_widens() -> None:
    nested = with_generated("a struct<x: tinyint, y: tinyint>", "gen", "int", "hash(a.x)")
    assert grown(nested, "a struct<y: int>") == "struct<a: struct<x: tinyint, y: int>, gen: int>"
    items = with_generated("a array<struct<f: tinyint, g: tinyint>>", "gen", "int", "hash(a[0].f)")
    assert grown(items, "a array<struct<g: int>>") == "struct<a: array<struct<f: tinyint, g: int>>, gen: int>"


def test_columns_with_a_rule_of_their_own_keep_their_type() -> None:
    with pytest.raises(GeneratedColumnTypeFixed, match="gen"):
        grown(with_generated("a int", "gen", "int", "a + 1"), "gen bigint")
    key = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
    with pytest.raises(IdentityColumnFixed, match="i"):
        grown(state(StructType((Field("i", parse_type("bigint"), metadata=key),))), "i decimal(20,0)")


# ---- what else a new type or column needs ----------------------------------------------------------


def test_a_new_type_needs_its_feature() -> None:
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        grown(state("d date"), "d timestamp_ntz")
    supported = state("d date", delta__feature__timestampNtz="supported")
    assert grown(supported, "d timestamp_ntz") == "struct<d: timestamp_ntz>"


def test_a_new_column_needs_a_name_that_files_can_have() -> None:
    with pytest.raises(InvalidColumnName, match="a b"):
        grown(state("a int"), "`a b` int")
    assert grown(state("a int", delta__columnMapping__mode="name"), "`a b` int") == "struct<a: int, `a b`: int>"


@pytest.mark.parametrize(
    "properties",
    [
        {"delta__enableIcebergCompatV1": "true"},
        {"delta__enableIcebergCompatV2": "true"},
        {"delta__feature__icebergCompatV1": "supported", "delta__columnMapping__mode": "name"},
        {"delta__feature__icebergCompatV2": "supported", "delta__columnMapping__mode": "name"},
        {"delta__universalFormat__enabledFormats": "hudi, Iceberg"},
    ],
)
def test_what_iceberg_does_not_know_does_not_widen_by_itself(properties: dict[str, str]) -> None:
    """The strictest of three readings: the feature is supported, it is enabled, or the table is UniForm."""
    before = state("a int, d date, m decimal(9,2)", delta__feature__timestampNtz="supported", **properties)
    assert grown(before, "a bigint, m decimal(12,2)") == "struct<a: bigint, d: date, m: decimal(12,2)>"
    for incoming in ("a double", "a decimal(10,0)", "d timestamp_ntz", "m decimal(12,3)"):
        with pytest.raises(SchemaMismatch, match="in the table and"):
            grown(before, incoming)


def test_a_property_without_its_feature_is_an_illegal_state() -> None:
    broken = replace(state("a int"), protocol=Protocol(min_reader_version=1, min_writer_version=2))
    with pytest.raises(EnabledWithoutFeature):
        grown(broken, "a int")


# ---- plans that are tried again --------------------------------------------------------------------


def test_a_plan_may_be_tried_again_unless_it_would_put_something_back() -> None:
    before = state("a int")
    added = AddColumn((), Field("n", parse_type("int")))
    widened = WidenType(("a",), parse_type("int"), parse_type("bigint"))
    first, nothing = SchemaGrowth(before.metadata, (widened, added)), SchemaGrowth(before.metadata)
    assert can_retry_write(before, first, before, nothing)
    assert can_retry_write(before, nothing, before, SchemaGrowth(before.metadata, (widened,)))
    assert can_retry_write(before, first, before, SchemaGrowth(before.metadata, (added,)))
    assert not can_retry_write(before, nothing, before, SchemaGrowth(before.metadata, (added,)))
    other = replace(before, metadata=msgspec.structs.replace(before.metadata, id="another"))
    assert not can_retry_write(before, first, other, nothing)


def test_a_table_that_needs_nothing_keeps_its_metadata_word_for_word() -> None:
    before = state("a int")
    odd = before.metadata.schema_string.replace('"name"', '"unknown":1,"name"')
    before = replace(before, metadata=msgspec.structs.replace(before.metadata, schema_string=odd))
    options = schema_change_options(before, merge_schema=True, widening=AutomaticWidening.ALWAYS, cast=True)
    assert grow_schema(before, schema("a smallint"), options).metadata is before.metadata
    assert to_json(before.schema) != odd
