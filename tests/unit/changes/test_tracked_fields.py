"""Two rows agree on a field if they have the same value in it, in any of its columns."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from widen.changes.tracked_fields import TrackedFields
from widen.errors import InvalidOption
from widen.evolution.key_rules import KeyRules
from widen.files.arrow_types import to_arrow_schema
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.schema.source_metadata import source_field

COLUMNS = {
    "v": "int",
    "v_double": "double",
    "v_decimal": "decimal(38,18)",
    "v_date": "date",
    "v_time": "timestamp_ntz",
    "v_instant": "timestamp",
    "v_flag": "boolean",
    "v_bytes": "binary",
    "v_string": "string",
    "v_map": "map<string,int>",
    "v_map_double": "map<string,double>",
    "v_record": "struct<a:int,b:array<int>>",
    "v_list": "array<int>",
    "v_list_string": "array<string>",
    "v_lists": "array<array<double>>",
}

Row = dict[str, Any]


def schema_of() -> StructType:
    fields = [source_field(name, parse_type(text), ("v",), is_evolved=name != "v") for name, text in COLUMNS.items()]
    return StructType((Field("id", parse_type("int")), Field("at", parse_type("int")), *fields))


def rules(**words: Any) -> KeyRules:
    return KeyRules((("id",),), (("at",),), history=True, **words)


def hashes(*rows: Row) -> list[int]:
    schema = schema_of()
    tracked = TrackedFields.of(schema, rules(history_columns=(("v",),)))
    assert tracked is not None
    whole = [{"id": at, "at": at, **row} for at, row in enumerate(rows)]
    return list(tracked.hash(pa.Table.from_pylist(whole, to_arrow_schema(schema))).to_pylist())


SAME: list[tuple[Row, Row]] = [
    ({"v": 12}, {"v_double": 12.0}),
    ({"v": 12}, {"v_double": 12.0, "v_string": "12.0", "v_list_string": ["12.0"]}),
    ({"v": -3}, {"v_decimal": Decimal("-3.00")}),
    ({"v_double": 0.1}, {"v_decimal": Decimal("0.1")}),
    ({"v_double": 1e-7}, {"v_decimal": Decimal("0.0000001")}),
    ({"v_double": 1e18}, {"v_decimal": Decimal(10**18)}),
    ({"v_double": math.nan}, {"v_double": -math.nan}),
    ({"v": 0}, {"v_double": 0.0}),
    ({"v_date": date(2026, 1, 2)}, {"v_time": datetime(2026, 1, 2)}),
    ({"v_map": [("a", 1), ("b", 2)]}, {"v_map": [("b", 2), ("a", 1)]}),
    ({"v_map": [("a", 1), ("b", None)], "v_map_double": [("b", 0.5)]}, {"v_map_double": [("b", 0.5), ("a", 1.0)]}),
    ({"v_list": [1, None]}, {"v_list": [1, None], "v_list_string": ["1", None]}),
    ({"v_list": [1, None], "v_list_string": ["1", "x"]}, {"v_list": [1, None], "v_list_string": [None, "x"]}),
    ({"v_list": [1, 2]}, {"v_list": [1, 2], "v_lists": [[1.0], [2.0]]}),
    ({"v_record": {"a": 1, "b": None}}, {"v_record": {"a": 1, "b": None}, "v_string": '{"a":1}'}),
    ({}, {"v": None, "v_record": None}),
]

DIFFERENT: list[tuple[Row, Row]] = [
    ({"v": 12}, {"v": 13}),
    ({"v": 1}, {"v_string": "1"}),
    ({"v": 1}, {"v_flag": True}),
    ({"v": 0}, {"v_double": -0.0}),
    ({"v": 0}, {}),
    ({"v_double": 1e300}, {"v_double": math.inf}),
    ({"v_double": 5e-324}, {"v_double": 0.0}),
    ({"v_string": ""}, {}),
    ({"v_string": "a"}, {"v_bytes": b"a"}),
    ({"v_date": date(2026, 1, 2)}, {"v_time": datetime(2026, 1, 2, 1)}),
    ({"v_time": datetime(2026, 1, 2)}, {"v_instant": datetime(2026, 1, 2, tzinfo=UTC)}),
    ({"v_map": []}, {}),
    ({"v_map": [("a", 1)]}, {"v_map": [("a", None)]}),
    ({"v_map": [("a", 1)]}, {"v_map": [("b", 1)]}),
    ({"v_map": [("a", 1), ("b", 2)]}, {"v_map": [("a", 2), ("b", 1)]}),
    ({"v_list": []}, {}),
    ({"v_list": [None]}, {"v_list": []}),
    ({"v_list": [1]}, {"v": 1}),
    ({"v_list": [1, 2]}, {"v_list": [2, 1]}),
    ({"v_list": [1]}, {"v_lists": [[1.0]]}),
    ({"v_list": [1, None], "v_list_string": ["1", "x"]}, {"v_list": [1, None], "v_list_string": ["1", "y"]}),
    ({"v_record": {"a": None, "b": None}}, {}),
    ({"v_record": {"a": 1, "b": [1]}}, {"v_record": {"a": 1, "b": [2]}}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_values_are_one(one: Row, other: Row) -> None:
    filler: list[Row] = [{"v_list": [9, 9]}, {"v_map": [("x", 1)]}, {}]
    found = hashes(*filler, one, *filler, other)
    assert found[3] == found[7]
    assert hashes(one, other)[0] == hashes(other, one)[0]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_values_differ(one: Row, other: Row) -> None:
    found = hashes(one, other)
    assert found[0] != found[1]


def test_what_is_not_tracked_does_not_matter() -> None:
    inner = StructType(tuple(Field(name, parse_type("int")) for name in ("x", "at", "y")))
    schema = StructType(tuple(Field(name, parse_type("int")) for name in ("id", "at", "n", "m")) + (Field("r", inner),))
    rows = [
        {"id": 1, "at": 1, "n": 1, "m": 1, "r": {"x": 1, "at": 1, "y": 1}},
        {"id": 2, "at": 2, "n": 2, "m": 1, "r": {"x": 1, "at": 2, "y": 1}},
        {"id": 2, "at": 2, "n": 2, "m": 1, "r": {"x": 1, "at": 2, "y": 2}},
        {"id": 2, "at": 2, "n": 2, "m": 2, "r": {"x": 1, "at": 2, "y": 1}},
    ]
    table = pa.Table.from_pylist(rows, to_arrow_schema(schema))

    def groups(**words: Any) -> list[int]:
        tracked = TrackedFields.of(schema, rules(**words))
        assert tracked is not None
        found = tracked.hash(table).to_pylist()
        return [found.index(each) for each in found]

    assert groups(history_except=(("N",), ("r", "at"))) == [0, 0, 2, 3]
    assert groups(history_except=(("n",), ("r",))) == [0, 0, 0, 3]
    assert groups(history_columns=(("m",), ("r", "x"))) == [0, 0, 0, 3]
    assert groups(history_columns=(("nothing",),)) == [0, 0, 0, 0]
    assert TrackedFields.of(schema, rules()) is None


def test_variants_are_refused() -> None:
    schema = StructType((Field("id", parse_type("int")), Field("d", parse_type("struct<v:variant>"))))
    with pytest.raises(InvalidOption, match="d has the type VARIANT"):
        TrackedFields.of(schema, rules(history_except=(("n",),)))
    assert TrackedFields.of(schema, rules(history_except=(("d",),))) is not None
