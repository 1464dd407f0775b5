from __future__ import annotations

from typing import Any

import pytest

from widen.model.text import parse_type
from widen.model.type import Field, StructType
from widen.observe.document import parse
from widen.routing.rescue import rescue
from widen.routing.route import routes
from widen.routing.row import to_row


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

ROWS: list[tuple[StructType, str, dict[str, Any]]] = [
    (ALL, "4", {"a": 4, "a_string": "4", "a_array_string": ["4"]}),
    (ALL, '"x"', {"a_string": "x", "a_array_string": ["x"]}),
    (ALL, "true", {"a": 1, "a_string": "true", "a_array_string": ["true"]}),
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
]


@pytest.mark.parametrize(("schema", "value", "row"), ROWS)
def test_a_value_goes_to_every_column_that_holds_it(schema: StructType, value: str, row: dict[str, Any]) -> None:
    assert to_row(routes(schema), parse(f'{{"a":{value}}}'.encode())) == row


def test_no_key_lands_in_the_column_of_another() -> None:
    schema = StructType(
        (*columns(a="bigint", a_string="string"), Field("A_2", parse_type("bigint"), metadata={"widen.source": ["A"]}))
    )
    record = parse(b'{"a":1,"A":2,"a_string":"lost","A_2":3}')
    assert to_row(routes(schema), record) == {"a": 1, "a_string": "1", "A_2": 2}
    assert rescue(routes(schema), record) == '{"a_string":"lost","A_2":3}'
