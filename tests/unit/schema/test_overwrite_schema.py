"""Overwrites: the schema that comes with the data, options that contradict each other, and touched partitions."""

from __future__ import annotations

import json

import pytest

from widen.errors import (
    ColumnNotFound,
    ConstraintDependsOnColumn,
    FeatureRequired,
    InvalidColumnName,
    NewSchemaInPartitions,
    OverwriteRefused,
    ReplaceWhereInPartitions,
)
from widen.model.schema_json import from_json, parse_type, to_json
from widen.model.types import DATE, DOUBLE, INTEGER, STRING, ArrayType, Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.data_skipping import And, Compare, IsNull, Or, UnknownPredicate
from widen.schema.growth import ensure_consistent, partition_predicate, with_new_schema
from widen.schema.table_state import TableState

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
MAPPED = Protocol(min_reader_version=2, min_writer_version=5)


def schema(text: str) -> StructType:
    parsed = parse_type(f"struct<{text}>")
    assert isinstance(parsed, StructType)
    return parsed


def state(text: str, protocol: Protocol = PLAIN, split: tuple[str, ...] = (), **properties: str) -> TableState:
    old = StructType(tuple(f.with_metadata(**{"delta.typeChanges": [], "x": 1}) for f in schema(text)))
    metadata = Metadata(id="t", schema_string=to_json(old), partition_columns=split, configuration=properties)
    return TableState(protocol, metadata, 3)


OPTIONS = [
    ((True, False, True), ReplaceWhereInPartitions),
    ((False, True, True), NewSchemaInPartitions),
    ((True, True, False), OverwriteRefused),
]


@pytest.mark.parametrize(("options", "error"), OPTIONS)
def test_options_that_contradict_each_other(options: tuple[bool, bool, bool], error: type[Exception]) -> None:
    where, new_schema, dynamic = options
    with pytest.raises(error):
        ensure_consistent(has_where=where, has_new_schema=new_schema, is_dynamic=dynamic)


@pytest.mark.parametrize("given", ["", "where", "new_schema", "dynamic"])
def test_options_that_go_together(given: str) -> None:
    ensure_consistent(has_where=given == "where", has_new_schema=given == "new_schema", is_dynamic=given == "dynamic")


def test_the_schema_of_the_data_comes_without_history_and_open() -> None:
    new = StructType((Field("id", STRING, nullable=False, metadata={"comment": "c", "delta.typeChanges": []}),))
    found = from_json(with_new_schema(state("id int, gone int"), new).schema_string)
    assert found.fields == (Field("id", STRING, metadata={"comment": "c"}),)
    assert found.fields[0].metadata == {"comment": "c"}


def test_mapped_columns_get_names_and_ids_that_were_never_used() -> None:
    before = state("id int", MAPPED, **{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "7"})
    after = with_new_schema(before, schema("id int, b int"))
    fields = json.loads(after.schema_string)["fields"]
    assert [f["metadata"]["delta.columnMapping.id"] for f in fields] == [8, 9]
    assert all(f["metadata"]["delta.columnMapping.physicalName"].startswith("col-") for f in fields)
    assert after.configuration["delta.columnMapping.maxColumnId"] == "9"


def test_mapped_columns_that_stay_keep_their_names_and_ids() -> None:
    """As in Delta Lake, at any depth and whatever their new types; a column of another parent is a new one."""
    mapped = {"delta.columnMapping.mode": "name"}
    before = state("gone int", MAPPED, **mapped)
    first = with_new_schema(before, schema("id int, s struct<a: int, b: int>, l array<struct<a: int>>"))
    old = from_json(first.schema_string)
    after = with_new_schema(
        TableState(MAPPED, first, 4), schema("n int, S struct<A: string>, ID bigint, l array<struct<a: int, s: int>>")
    )
    new = from_json(after.schema_string)
    pairs = [((0,), None), ((1,), (1,)), ((1, 0), (1, 0)), ((2,), (0,)), ((3,), (2,)), ((3, 0), (2, 0)), ((3, 1), None)]
    known = {_identity(old, at) for at in ((0,), (1,), (1, 0), (1, 1), (2,), (2, 0))}
    for at, before_at in pairs:
        if before_at is None:
            assert _identity(new, at) not in known
        else:
            assert _identity(new, at) == _identity(old, before_at)


def _identity(struct: StructType, at: tuple[int, ...]) -> tuple[object, object]:
    """Return the id and the physical name of a field, by positions; those of the items of an array come next."""
    field = struct.fields[at[0]]
    if len(at) > 1:
        inner = field.type.element if isinstance(field.type, ArrayType) else field.type
        assert isinstance(inner, StructType)
        return _identity(inner, at[1:])
    return field.metadata["delta.columnMapping.id"], field.metadata["delta.columnMapping.physicalName"]


def test_partition_columns_stay_in_the_spelling_of_the_data() -> None:
    assert with_new_schema(state("p int, v int", split=("p",)), schema("v int, P string")).partition_columns == ("P",)
    with pytest.raises(ColumnNotFound, match="p"):
        with_new_schema(state("p int, v int", split=("p",)), schema("v int"))


def test_what_the_new_schema_may_not_break() -> None:
    guarded = state("id int, v int", **{"delta.constraints.c": "id > 0"})
    for new in ("v int", "id bigint, v int"):
        with pytest.raises(ConstraintDependsOnColumn, match="id > 0"):
            with_new_schema(guarded, schema(new))
    assert with_new_schema(guarded, schema("id int, w double"))
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        with_new_schema(state("id int"), schema("id timestamp_ntz"))
    with pytest.raises(InvalidColumnName):
        with_new_schema(state("id int"), schema("`a b` int"))


def test_partitions_are_told_by_values() -> None:
    table = StructType((Field("p", INTEGER), Field("d", DATE), Field("f", DOUBLE)))
    one = Compare(("p",), INTEGER, "=", 1)
    assert partition_predicate(table, ["p"], [("1",)]) == one
    assert partition_predicate(table, ["p"], [("1",), (None,)]) == Or(one, IsNull(("p",), INTEGER))
    assert partition_predicate(table, ["p", "f"], [("1", "NaN")]) == And(one, UnknownPredicate())
