from __future__ import annotations

import pytest

from widen.json.document import parse_document
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.rows.row import build_routes, document_to_json, rescue

SCHEMA = parse_type("struct<a: int, r: struct<x: int>, l: array<int>, rs: array<struct<x: int>>>")


@pytest.mark.parametrize(
    ("record", "rest"),
    [
        ('{"a":1,"r":{"x":1},"l":[1,null],"rs":[{"x":1}]}', None),
        ('{"a":1.10}', '{"a":1.10}'),
        ('{"a":1e400,"b":"\\u00e9\\""}', '{"a":1e400,"b":"é\\""}'),
        ('{"r":{"x":1,"y":2}}', '{"r":{"y":2}}'),
        ('{"r":"text"}', '{"r":"text"}'),
        ('{"l":[1,"x"]}', '{"l":[1,"x"]}'),
        ('{"rs":[{"x":1},{"x":1,"y":2}]}', '{"rs":[{"x":1},{"x":1,"y":2}]}'),
        ('{"rs":{"x":1,"y":2}}', '{"rs":{"y":2}}'),
        ('{"b":{"c":[]}}', '{"b":{"c":[]}}'),
        ('{"r":{"x":null,"y":null}}', '{"r":{"y":null}}'),
        ('{"a":[],"l":{},"r":[]}', '{"a":[],"l":{},"r":[]}'),
        ('{"a":{},"l":[],"r":{},"rs":[{},null]}', '{"a":{}}'),
        ('{"a":null,"l":null,"r":null,"rs":{}}', None),
        ('{"l":[[]]}', '{"l":[[]]}'),
        ('{"l":[{}]}', '{"l":[{}]}'),
        ('{"a":[null]}', '{"a":[null]}'),
        ('{"rs":[{"x":1,"y":null}]}', '{"rs":[{"x":1,"y":null}]}'),
        ('{"b":{"c":[],"d":0}}', '{"b":{"c":[],"d":0}}'),
        ('{"a":null,"b":null,"c":[],"d":{}}', '{"b":null,"c":[],"d":{}}'),
        ('{"a":"1"}', '{"a":"1"}'),
        ('{"a":true}', '{"a":true}'),
    ],
)
def test_what_no_column_holds_is_kept_as_it_stands(record: str, rest: str | None) -> None:
    assert isinstance(SCHEMA, StructType)
    assert rescue(build_routes(SCHEMA), parse_document(record.encode())) == rest


def test_a_timestamp_does_not_keep_a_number_for_the_rescue_column() -> None:
    schema = parse_type("struct<t: timestamp, a: array<timestamp>, b: timestamp, b_long: bigint, d: double>")
    assert isinstance(schema, StructType)
    text = '{"t":1700000000,"a":[1700000000],"b":1700000000,"d":5}'
    assert rescue(build_routes(schema), parse_document(text.encode())) == (
        '{"t":1700000000,"a":[1700000000],"b":1700000000}'
    )


@pytest.mark.parametrize("text", ['{"a":[1.10,-0,1e400,"1",true,null,{}]}', '"\u2028\\u0000"', "[]", '{"\\"":1}'])
def test_the_text_of_a_document_is_that_document(text: str) -> None:
    assert parse_document(document_to_json(parse_document(text.encode())).encode()) == parse_document(text.encode())
