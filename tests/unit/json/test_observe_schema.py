"""Observations of a schema: the facts that types determine, and those that they leave open."""

from __future__ import annotations

import pytest

from widen.json.kinds import Kind
from widen.json.observation import FieldObservation, KindObservation, observe_schema, unknown_types
from widen.model.schema_json import parse_type
from widen.model.types import StructType


def observe(text: str, *, assume_exact: bool = False) -> FieldObservation:
    schema = parse_type(f"struct<a: {text}>")
    assert isinstance(schema, StructType)
    return observe_schema(schema, assume_exact=assume_exact)["a"]


KINDS: dict[str, tuple[str, KindObservation]] = {
    "boolean": ("boolean", KindObservation()),
    "tinyint": ("long", KindObservation(integer_digits=3)),
    "smallint": ("long", KindObservation(integer_digits=5)),
    "int": ("long", KindObservation(integer_digits=10)),
    "bigint": ("long", KindObservation(integer_digits=19, fits_int32=False, exact_double=False)),
    "float": ("double", KindObservation(fits_int32=False, decimal_exact=False)),
    "double": ("double", KindObservation(fits_int32=False, decimal_exact=False)),
    "decimal(12,2)": ("decimal", KindObservation(integer_digits=10, scale=2, fits_int32=False)),
    "decimal(20,2)": ("decimal", KindObservation(integer_digits=18, scale=2, fits_int32=False, exact_double=False)),
    "date": ("date", KindObservation()),
    "timestamp": ("timestamp", KindObservation(epoch_ms_exact=False)),
    "timestamp_ntz": ("timestamp_ntz", KindObservation()),
    "string": ("string", KindObservation()),
    "binary": ("binary", KindObservation()),
}


@pytest.mark.parametrize("text", KINDS)
def test_every_type_is_a_kind(text: str) -> None:
    word, values = KINDS[text]
    values.type = text
    assert observe(text).kinds == {Kind(word): values}
    assert observe(f"array<array<{text}>>").kinds == {Kind(word, 2): values}


def test_facts_that_a_type_leaves_open_may_be_assumed_exact() -> None:
    best_case = observe("bigint", assume_exact=True).kinds[Kind("long")]
    assert (best_case.exact_double, best_case.integer_digits, best_case.fits_int32) == (True, 1, False)
    assert observe("timestamp", assume_exact=True).kinds[Kind("timestamp")].epoch_ms_exact


def test_records_and_maps_hold_fields() -> None:
    found = observe("array<struct<x: int, y: map<int, array<date>>>>")
    assert set(found.kinds) == {Kind("record", 1)}
    assert set(found.records[1]) == {"x", "y"}
    assert set(found.records[1]["y"].kinds) == {Kind("map")}
    assert set(found.records[1]["y"].maps[0].kinds) == {Kind("date", 1)}


def test_void_has_no_kind() -> None:
    assert observe("array<void>") == FieldObservation(nulls={1: 1})


@pytest.mark.parametrize("text", ["map<binary, int>", "map<struct<x: int>, int>", "variant"])
def test_types_without_a_kind_are_yielded_with_their_path(text: str) -> None:
    found = list(unknown_types(parse_type(f"struct<a: array<struct<b: {text}>>>")))
    assert found == [(("a", "b"), parse_type(text))]
