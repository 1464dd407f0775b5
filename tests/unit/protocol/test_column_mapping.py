"""Column mapping: PROTOCOL.md#column-mapping."""

from __future__ import annotations

import itertools

import pytest

from widen.errors import CorruptLog, InvalidOption
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import (
    assign_ids,
    ensure_mode,
    max_column_id,
    to_physical,
    to_physical_path,
)
from widen.protocol.table_configuration import TableConfiguration

SCHEMA = parse_type("struct<a: int, s: struct<x: int>, l: array<struct<y: map<string, struct<z: int>>>>>")
assert isinstance(SCHEMA, StructType)


def assigned() -> tuple[StructType, int]:
    assert isinstance(SCHEMA, StructType)
    numbers = itertools.count()
    return assign_ids(SCHEMA, 7, lambda field: f"{field.name}-{next(numbers)}")


def test_every_field_gets_an_id_parents_first() -> None:
    schema, last = assigned()
    ids = {path: field.metadata["delta.columnMapping.id"] for path, field in _fields(schema)}
    assert last == 13
    assert ids == {
        ("a",): 8,
        ("s",): 9,
        ("s", "x"): 10,
        ("l",): 11,
        ("l", "element", "y"): 12,
        ("l", "element", "y", "value", "z"): 13,
    }
    assert len({field.metadata["delta.columnMapping.physicalName"] for _, field in _fields(schema)}) == 6


def test_what_has_an_id_keeps_it() -> None:
    schema, last = assigned()
    grown = schema.with_field(Field("new", parse_type("int")))
    again, highest = assign_ids(grown, last, lambda field: "fresh")
    assert again.fields[:3] == schema.fields
    assert dict(again.fields[3].metadata) == {
        "delta.columnMapping.id": 14,
        "delta.columnMapping.physicalName": "fresh",
    }
    assert highest == 14


def test_names_in_files() -> None:
    schema, _ = assigned()
    physical = to_physical(schema, "name")
    path = to_physical_path(schema, ("l", "element", "y", "value", "z"), "id")
    assert path == (physical.fields[2].name, "element", path[2], "value", path[4])
    assert [step.partition("-")[0] for step in path] == ["l", "element", "y", "value", "z"]
    assert to_physical_path(schema, ("l", "element"), "none") == ("l", "element")
    assert to_physical(schema, "none") == schema


def test_a_missing_physical_name_is_an_error() -> None:
    assert isinstance(SCHEMA, StructType)
    with pytest.raises(CorruptLog, match=r"column \w+ does not have a delta.columnMapping.physicalName"):
        to_physical(SCHEMA, "name")


@pytest.mark.parametrize(
    ("protocol", "mode"),
    [
        (Protocol(min_reader_version=1, min_writer_version=2), "none"),
        (Protocol(min_reader_version=2, min_writer_version=5), "name"),
        (
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("columnMapping",),
                writer_features=("columnMapping",),
            ),
            "name",
        ),
        (Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=()), "none"),
    ],
)
def test_the_property_counts_only_where_the_protocol_supports_it(protocol: Protocol, mode: str) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    metadata = Metadata(id="m", schema_string="{}", partition_columns=(), configuration=properties)
    assert TableConfiguration(protocol, metadata).mapping == mode


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"delta\.columnMapping\.mode"):
        ensure_mode({"delta.columnMapping.mode": "names"})


def test_the_highest_id_is_never_given_again() -> None:
    schema, _ = assigned()
    assert max_column_id(schema, {}) == 13
    assert max_column_id(schema, {"delta.columnMapping.maxColumnId": "40"}) == 40
    assert max_column_id(StructType(), {}) == 0


def _fields(schema: StructType) -> list[tuple[tuple[str, ...], Field]]:
    from widen.model.column_path import fields

    return list(fields(schema))
