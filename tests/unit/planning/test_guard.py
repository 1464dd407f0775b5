"""Which columns cannot yield, and why."""

from __future__ import annotations

import json

from widen.model.schema import to_json
from widen.model.text import parse_type
from widen.model.type import Field, StructType
from widen.planning.guard import guards_of
from widen.planning.policy import Guard
from widen.planning.state import State
from widen.protocol.action import Metadata, Protocol


def state(schema: StructType, properties: dict[str, str], partitions: tuple[str, ...] = ()) -> State:
    features = ("invariants", "checkConstraints")
    metadata = Metadata(
        id="1",
        schema_string=to_json(schema),
        partition_columns=partitions,
        configuration=properties,
        created_time=0,
    )
    return State(0, Protocol(min_reader_version=1, min_writer_version=7, writer_features=features), metadata)


def test_a_plain_table_has_none() -> None:
    assert guards_of(state(StructType((Field("a", parse_type("int")),)), {})) == {}


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
    assert guards_of(state(schema, properties, ("p",))) == {
        ("id",): Guard("id", "NOT NULL and looked at by the constraint positive", False, True),
        ("p",): Guard("p", "a partition column and looked at by the constraint odd", False, False),
        ("s", "x"): Guard("x", "looked at by the constraint positive", False, False),
        ("s", "l", "element", "z"): Guard("z", "NOT NULL", True, True),
        ("i",): Guard("i", "looked at by the invariant of column i", False, False),
    }
