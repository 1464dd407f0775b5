from __future__ import annotations

from typing import Any

import pytest

from widen.model.text import parse_type
from widen.model.type import Field, StructType
from widen.observe.document import parse
from widen.routing.proof import Proof, count_leaves, digest

SCHEMA = StructType(
    (
        Field("a", parse_type("int")),
        Field("a_string", parse_type("string"), metadata={"widen.source": ["a"]}),
        Field("d", parse_type("double")),
        Field("l", parse_type("array<int>")),
        Field("r", parse_type("struct<x: int>")),
        Field("_rescued", parse_type("string")),
        Field("_corrupt_record", parse_type("string")),
    )
)

SAME: list[tuple[str, dict[str, Any]]] = [
    ('{"a":1}', {"a": 1, "a_string": "1"}),
    ('{"a":"x"}', {"a_string": "x"}),
    ('{"a":null}', {}),
    ('{"d":1e3}', {"d": 1000.0}),
    ('{"d":-0.0}', {"d": -0.0}),
    ('{"d":-0}', {"d": -0.0}),
    ('{"l":[1,null]}', {"l": [1, None]}),
    ('{"l":[]}', {"l": []}),
    ('{"l":7}', {"l": [7]}),
    ('{"r":{"x":1}}', {"r": {"x": 1}}),
    ('{"r":{}}', {"r": {"x": None}}),
    ('{"r":{"x":1,"y":"2"}}', {"r": {"x": 1}, "_rescued": '{"r":{"y":"2"}}'}),
    ('{"d":1e99999999999999999999}', {"_rescued": '{"d":1e99999999999999999999}'}),
    ('{"new":{"b":[]}}', {}),
]
DIFFERENT: list[tuple[str, dict[str, Any]]] = [
    ('{"a":1}', {"a": 2}),
    ('{"a":1}', {}),
    ('{"a":"x"}', {"a_string": "X"}),
    ('{"a":2147483648}', {"a": -2147483648}),
    ('{"d":9007199254740993}', {"d": 9007199254740992.0}),
    ('{"d":0.0}', {"d": -0.0}),
    ('{"d":1e400}', {"d": float("inf")}),
    ('{"l":[1,null]}', {"l": [None, 1]}),
    ('{"l":[1,null]}', {"l": [1]}),
    ('{"l":[]}', {}),
    ('{"l":7}', {"l": [7, 7]}),
    ('{"r":{"x":1}}', {"r": {"x": None}}),
    ('{"r":{}}', {}),
    ('{"b":1}', {"_rescued": '{"b":"1"}'}),
    ('{"b":true}', {"_rescued": '{"b":"True"}'}),
    ('{"b":["1,2"]}', {"_rescued": '{"b":["1","2"]}'}),
    ('{"b":1.10}', {"_rescued": '{"b":1.1}'}),
    ('{"b":1}', {}),
    ('{"a":"x"}', {"_corrupt_record": '{"a":"x"}'}),
]


@pytest.mark.parametrize(("record", "row"), SAME)
def test_a_row_that_says_the_same_has_the_same_form(record: str, row: dict[str, Any]) -> None:
    proof = Proof(SCHEMA)
    assert proof.of_record(parse(record.encode())) == proof.of_row(row)
    assert digest(proof.of_record(parse(record.encode()))) == digest(proof.of_row(row))


@pytest.mark.parametrize(("record", "row"), DIFFERENT)
def test_a_row_that_says_anything_else_has_another(record: str, row: dict[str, Any]) -> None:
    proof = Proof(SCHEMA)
    assert digest(proof.of_record(parse(record.encode()))) != digest(proof.of_row(row))


def test_a_text_that_is_no_record_must_stand_there_whole() -> None:
    proof = Proof(SCHEMA)
    assert proof.of_corrupt(b"no\xff") == proof.of_row({"_corrupt_record": "no\\xff"})
    assert proof.of_corrupt(b"no") != proof.of_row({"_corrupt_record": "n"})


def test_leaves_are_values_that_are_no_container_and_not_null() -> None:
    assert count_leaves(parse(b'{"a":[1,null,{"b":"","c":{}}],"d":false,"e":[]}')) == 3
