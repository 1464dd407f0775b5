"""Which columns cannot yield, and why."""

from __future__ import annotations

import json

from widen.evolution.policy import FixedColumn
from widen.model.schema_json import parse_type, to_json
from widen.model.types import Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.schema.table_state import TableState
from widen.targets.fixed_columns import find_fixed_columns


def state(schema: StructType, properties: dict[str, str], partitions: tuple[str, ...] = ()) -> TableState:
    features = ("invariants", "checkConstraints")
    metadata = Metadata(
        id="1",
        schema_string=to_json(schema),
        partition_columns=partitions,
        configuration=properties,
        created_time=0,
    )
    return TableState(Protocol(min_reader_version=1, min_writer_version=7, writer_features=features), metadata, 0)


def test_a_plain_table_has_none() -> None:
    assert find_fixed_columns(state(StructType((Field("a", parse_type("int")),)), {})) == {}


def test_partitions_nulls_and_rules() -> None:
    invariant = {"delta.invariants": json.dumps({"expression": {"expression": "i > 0"}})}
    schema = StructType(
        (
            Field("id", parse_type("int"), nullable=False),
            Field("p", parse_type("string")),
            Field("s", parse_type("struct<x: int, l: array<struct<z: int not null>>>")),
            Field("i", parse_type("int"), metadata=invariant),
            Field("free", parse_type("int")),
        )
    )
    properties = {"delta.constraints.positive": "s.x > 0 AND id < 9", "delta.constraints.odd": "length(p) = 1"}
    assert find_fixed_columns(state(schema, properties, ("p",))) == {
        ("id",): FixedColumn("id", "NOT NULL and referenced by the constraint positive", False, True),
        ("p",): FixedColumn("p", "a partition column and referenced by the constraint odd", False, False),
        ("s", "x"): FixedColumn("x", "referenced by the constraint positive", False, False),
        ("s", "l", "element", "z"): FixedColumn("z", "NOT NULL", True, True),
        ("i",): FixedColumn("i", "referenced by the invariant of column i", False, False),
    }
