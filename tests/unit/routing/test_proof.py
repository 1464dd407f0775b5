from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from widen.model.text import parse_type
from widen.model.type import Field, StructType
from widen.observe.document import parse
from widen.planning.policy import Guard, Policy
from widen.routing.proof import KEPT_OUT, Proof, count_leaves, digest

SCHEMA = StructType(
    (
        Field("a", parse_type("int")),
        Field("a_string", parse_type("string"), metadata={"widen.source": ["a"]}),
        Field("d", parse_type("double")),
        Field("l", parse_type("array<int>")),
        Field("r", parse_type("struct<x: int>")),
        Field("m", parse_type("map<string,bigint>")),
        Field("m_map_string", parse_type("map<string,string>"), metadata={"widen.source": ["m"]}),
        Field("t", parse_type("timestamp")),
        Field("t_date", parse_type("date"), metadata={"widen.source": ["t"]}),
        Field("t_long", parse_type("bigint"), metadata={"widen.source": ["t"]}),
        Field("f", parse_type("float")),
        Field("_rescued", parse_type("string")),
        Field("_corrupt_record", parse_type("string")),
    )
)

AT = datetime(2024, 5, 1, tzinfo=timezone.utc)
POLICY = Policy(dated=frozenset([("t",)]), left_out=frozenset([("hidden",)]))

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
    ('{"m":{"k":1,"l":"x"}}', {"m": [("k", 1), ("l", None)], "m_map_string": [("k", "1"), ("l", "x")]}),
    ('{"m":{"k":null}}', {"m": [("k", None)]}),
    ('{"t":"2024-05-01"}', {"t": AT, "t_date": AT.date(), "t_long": 19844}),
    ('{"t":"2024-05-01T00:00:00.000Z"}', {"t": AT, "t_long": 1714521600000}),
    ('{"t":"2024-05-01T00:00:00.0000010Z"}', {"_rescued": '{"t":"2024-05-01T00:00:00.0000010Z"}'}),
    ('{"t":"2024-05-01T00:00:00.000001+00:00"}', {"t": AT.replace(microsecond=1)}),
    ('{"t":1714521600}', {"t": AT, "t_long": 1714521600}),
    ('{"f":0.5}', {"f": 0.5}),
    ('{"f":16777217.0}', {"_rescued": '{"f":16777217.0}'}),
    ('{"hidden":1,"r":{"x":1}}', {"r": {"x": 1}}),
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
    ('{"m":{"k":1}}', {"m": [("K", 1)]}),
    ('{"m":{"k":1,"l":null}}', {"m": [("k", 1)]}),
    ('{"m":{"k":"1"}}', {"m": [("k", 1)]}),
    ('{"m":{}}', {}),
    ('{"t":"2024-05-01"}', {"t": AT, "t_date": AT.replace(day=2).date(), "t_long": 19844}),
    ('{"t":"2024-05-01T00:00:00.001Z"}', {"t": AT}),
    ('{"t":"2024-05-01T02:00:00+02:00"}', {"t": AT}),
    ('{"f":0.1}', {"f": 0.10000000149011612}),
]


@pytest.mark.parametrize(("record", "row"), SAME)
def test_a_row_that_says_the_same_has_the_same_form(record: str, row: dict[str, Any]) -> None:
    proof = Proof(SCHEMA, POLICY)
    assert proof.of_record(parse(record.encode())) == proof.of_row(row)
    assert digest(proof.of_record(parse(record.encode()))) == digest(proof.of_row(row))


@pytest.mark.parametrize(("record", "row"), DIFFERENT)
def test_a_row_that_says_anything_else_has_another(record: str, row: dict[str, Any]) -> None:
    proof = Proof(SCHEMA, POLICY)
    assert digest(proof.of_record(parse(record.encode()))) != digest(proof.of_row(row))


def test_a_text_that_is_no_record_must_stand_there_whole() -> None:
    proof = Proof(SCHEMA)
    assert proof.of_corrupt(b"no\xff") == proof.of_row({"_corrupt_record": "b'no\\xff'"})
    assert proof.of_corrupt(b"no") != proof.of_row({"_corrupt_record": "n"})


def test_leaves_are_values_that_are_no_container_and_not_null() -> None:
    assert count_leaves(parse(b'{"a":[1,null,{"b":"","c":{}}],"d":false,"e":[]}')) == 3


def test_what_is_kept_out_is_told_from_its_text() -> None:
    policy = Policy(guards={("a",): Guard("a", "NOT NULL", is_required=True)}, masked=frozenset([("d",)]))
    proof = Proof(SCHEMA, policy)
    assert proof.of_record(parse(b'{"a":"x","d":1}')) == proof.of_kept_out('{"a": "x", "d": "***"}')
    assert proof.of_record(parse(b'{"a":1}')) == proof.of_kept_out('{"a":1}') == {"a": ["a", "1"]}
    assert proof.of_corrupt(b"no") == [KEPT_OUT, "*** 2 bytes that may hold d"] == proof.of_kept_out(
        "*** 2 bytes that may hold d"
    )
    assert proof.count_leaves(parse(b'{"a":1,"d":[1,2]}')) == 2
