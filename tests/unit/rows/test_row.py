from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from widen.evolution.policy import Mode, Policy, build_field_rules
from widen.json.document import parse_document
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.rows.row import build_routes, rescue, to_row


def columns(**types: str) -> StructType:
    """Columns of the field ``a``: what comes after the first underscore is a suffix."""
    return StructType(
        tuple(
            Field(name, parse_type(text), metadata={"widen.source": [name.split("_")[0]]})
            for name, text in types.items()
        )
    )


ALL = columns(a="bigint", a_date="date", a_string="string", a_array_date="array<date>", a_array_string="array<string>")
MIXED = columns(a_array_long="array<bigint>", a_string="string", a_array2_string="array<array<string>>")
RECORDS = columns(a="array<struct<x: bigint>>", a_record="struct<x: bigint>", a_string="string")

MAPS = columns(a="map<string,bigint>", a_map_string="map<string,string>", a_string="string")
DEEP = columns(a="map<string,struct<x: bigint>>", a_map_array_long="map<string,array<bigint>>")
MAY = date(2024, 5, 1)
AS_MAP, AS_DATE = Policy(pins={("a",): parse_type("map<string,int>")}), Policy(date_fields=frozenset([()]))

ROWS: list[tuple[StructType, str, dict[str, Any]]] = [
    (ALL, "4", {"a": 4, "a_string": "4", "a_array_string": ["4"]}),
    (ALL, '"x"', {"a_string": "x", "a_array_string": ["x"]}),
    (ALL, "true", {"a_string": "true", "a_array_string": ["true"]}),
    (ALL, '["x",null,2]', {"a_array_string": ["x", None, "2"]}),
    (ALL, "[]", {"a_array_date": [], "a_array_string": []}),
    (ALL, "[null]", {"a_array_date": [None], "a_array_string": [None]}),
    (ALL, "[[]]", {"a_array_date": [None], "a_array_string": [None]}),
    (ALL, "null", {}),
    (ALL, "{}", {}),
    (ALL, '[["x"]]', {}),
    (MIXED, '[1,"x",[2]]', {"a_array_long": [1, None, None], "a_array2_string": [["1"], ["x"], ["2"]]}),
    (MIXED, '["x"]', {"a_array2_string": [["x"]]}),
    (MIXED, "[[]]", {"a_array_long": [None], "a_array2_string": [[]]}),
    (RECORDS, '{"x":1}', {"a": [{"x": 1}], "a_record": {"x": 1}}),
    (RECORDS, "{}", {"a": [{}], "a_record": {}}),
    (RECORDS, '[{"x":1},null,"y"]', {"a": [{"x": 1}, None, None]}),
    (RECORDS, '"y"', {"a_string": "y"}),
    (columns(a="array<struct<x: bigint>>", a_array_long="array<bigint>"), "[{}]", {"a": [{}]}),
]


SPLIT = Policy(Mode.SPLIT)

TAKEN: list[tuple[StructType, Policy, str, dict[str, Any]]] = [
    (ALL, SPLIT, "true", {"a": 1, "a_string": "true", "a_array_string": ["true"]}),
    (ALL, Policy(pins={("a",): Mode.SPLIT}), "false", {"a": 0, "a_string": "false", "a_array_string": ["false"]}),
    (MIXED, SPLIT, "[1,true]", {"a_array_long": [1, 1], "a_array2_string": [["1"], ["true"]]}),
    (MIXED, Policy(), "[1,true]", {"a_array_long": [1, None], "a_array2_string": [["1"], ["true"]]}),
    (MAPS, Policy(), '{"k":1,"l":"x"}', {"a": [("k", 1), ("l", None)], "a_map_string": [("k", "1"), ("l", "x")]}),
    (MAPS, Policy(), '{"l":"x"}', {"a_map_string": [("l", "x")]}),
    (MAPS, Policy(), '{"k":null}', {"a": [("k", None)], "a_map_string": [("k", None)]}),
    (MAPS, Policy(), "{}", {"a": [], "a_map_string": []}),
    (MAPS, Policy(), '"x"', {"a_string": "x"}),
    (DEEP, Policy(), '{"k":{"x":1}}', {"a": [("k", {"x": 1})]}),
    (DEEP, Policy(), '{"k":[2],"l":3}', {"a_map_array_long": [("k", [2]), ("l", [3])]}),
    (columns(a="array<map<string,int>>"), Policy(), '{"k":1}', {"a": [[("k", 1)]]}),
    (columns(a="array<map<string,int>>"), Policy(), '[{"k":1},null,"x"]', {"a": [[("k", 1)], None, None]}),
    (columns(a="struct<k: int>"), AS_MAP, '{"k":1}', {}),
    (
        ALL,
        AS_DATE,
        '"2024-05-01"',
        {"a": 19844, "a_date": MAY, "a_string": "2024-05-01", "a_array_date": [MAY], "a_array_string": ["2024-05-01"]},
    ),
    (ALL, AS_DATE, '["2024-05-01","x"]', {"a_array_date": [MAY, None], "a_array_string": ["2024-05-01", "x"]}),
    (
        ALL,
        AS_DATE,
        '"1970-01-01T00:00:00.5Z"',
        {"a": 500, "a_string": "1970-01-01T00:00:00.5Z", "a_array_string": ["1970-01-01T00:00:00.5Z"]},
    ),
]


@pytest.mark.parametrize(("schema", "policy", "value", "row"), TAKEN)
def test_a_value_goes_where_it_is_taken_for(
    schema: StructType, policy: Policy, value: str, row: dict[str, Any]
) -> None:
    record = build_field_rules(schema, policy).record(parse_document(f'{{"a":{value}}}'.encode()))
    assert to_row(build_routes(schema, policy), record) == row


@pytest.mark.parametrize(("schema", "value", "row"), ROWS)
def test_a_value_goes_to_every_column_that_holds_it(schema: StructType, value: str, row: dict[str, Any]) -> None:
    assert to_row(build_routes(schema), parse_document(f'{{"a":{value}}}'.encode())) == row


def test_no_key_lands_in_the_column_of_another() -> None:
    schema = StructType(
        (*columns(a="bigint", a_string="string"), Field("A_2", parse_type("bigint"), metadata={"widen.source": ["A"]}))
    )
    record = parse_document(b'{"a":1,"A":2,"a_string":"lost","A_2":3}')
    assert to_row(build_routes(schema), record) == {"a": 1, "a_string": "1", "A_2": 2}
    assert rescue(build_routes(schema), record) == '{"a_string":"lost","A_2":3}'
