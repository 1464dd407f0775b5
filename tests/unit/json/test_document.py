from __future__ import annotations

from typing import Any

import pytest

from widen.json.document import (
    MAX_LEVELS,
    InvalidJson,
    JsonNumber,
    document_to_json,
    has_leaf,
    parse_document,
    parse_nested,
)


@pytest.mark.parametrize(
    "token", ["0", "-0", "-0.0", "1.10", "1e3", "1E400", "9007199254740993", "9" * 5000, "0." + "1" * 5000]
)
def test_a_number_keeps_its_spelling(token: str) -> None:
    value = parse_document(f'{{"a": {token}}}'.encode())["a"]
    assert type(value) is JsonNumber
    assert value == token


@pytest.mark.parametrize(
    ("text", "document"),
    [
        (b'{"a": "1"}', {"a": "1"}),
        (b'\xef\xbb\xbf{"a": null}', {"a": None}),
        (b'{"\\u0061": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "\\u0000\\u0022:"}', {"a": '\0":'}),
        (b'{"a": {"a": true}, "A": false}', {"a": {"a": True}, "A": False}),
        (b" [ ] ", []),
        (b'"x"', "x"),
    ],
)
def test_a_text_becomes_its_document(text: bytes, document: Any) -> None:
    assert parse_document(text) == document


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_what_python_writes_for_doubles_without_a_number_is_one_if_allowed(token: str) -> None:
    text = f'{{"a":[{token}],"b":{{"c":{token}}}}}'.encode()
    document = parse_document(text, allows_nan=True)
    assert document == {"a": [token], "b": {"c": token}}
    assert type(document["a"][0]) is JsonNumber
    assert document_to_json(document).encode() == text
    deep = b'{"a":' * 60 + token.encode() + b"}" * 60
    nested = parse_document(deep, allows_nan=True)
    assert document_to_json(nested).encode() == deep
    for _ in range(MAX_LEVELS - 1):
        nested = nested["a"]
    assert document_to_json(parse_nested(nested["a"])) == nested["a"]


@pytest.mark.parametrize("token", ["nan", "+NaN", "-NaN", "+Infinity", "infinity", "Inf", "-inf", "INF"])
def test_other_spellings_are_not_json(token: str) -> None:
    assert isinstance(parse_document(f'{{"a":{token}}}'.encode(), allows_nan=True), InvalidJson)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":1,"a":2}', "the key 'a' appears twice"),
        (b'{"a":1,"\\u0061":1}', "the key 'a' appears twice"),
        (b'{"x":[{"b":1 , "b" :2}]}', "the key 'b' appears twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":Infinity}', "Infinity is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"\\uDC00":1}', "surrogate"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":01}', ""),
        (b'{"a":.5}', ""),
        (b'{"a":1', ""),
        (b'{"a":1} x', ""),
        (b'{"a":"\x01"}', ""),
        (b"", ""),
    ],
)
def test_a_text_that_cannot_be_stored_exactly_is_rejected(text: bytes, reason: str) -> None:
    result = parse_document(text)
    assert isinstance(result, InvalidJson)
    assert reason in result.reason


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_nesting_has_a_bound_that_does_not_depend_on_the_stack(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> Any:
        return parse_document(opening * depth + b"1" + closing * depth)

    for depth in (MAX_LEVELS, MAX_LEVELS + 1, 200):
        assert not isinstance(nested(depth), InvalidJson)
    for depth in (201, 900, 5000, 100_000):
        assert nested(depth) == InvalidJson("more than 200 nested records and arrays")


def test_values_below_41_levels_become_json_text() -> None:
    inner = parse_document(b"[" * 40 + b'{"a":[1.10,{"b":[]}],"c":null}' + b"]" * 40)
    for _ in range(40):
        [inner] = inner
    assert inner == {"a": '[1.10,{"b":[]}]', "c": None}
    text = parse_document(b"[" * 41 + b'{"a":1e400}' + b"]" * 41)
    for _ in range(41):
        [text] = text
    assert text == '{"a":1e400}'


def test_a_deep_document_keeps_the_text_of_the_source() -> None:
    source = "[" * 60 + '{"a":"[1]"}' + "]" * 60
    assert document_to_json(parse_document(source.encode())) == source


def test_adjacent_brackets_are_not_nesting() -> None:
    assert parse_document(b'{"a":[' + b",".join([b"{}"] * 500) + b'],"b":"' + b"[" * 500 + b'"}')["a"] == [{}] * 500


def test_the_levels_of_a_part_include_those_above_it() -> None:
    assert parse_document(b"[[]]", MAX_LEVELS - 2) == [[]]
    assert parse_document(b"[[]]", MAX_LEVELS - 1) == ["[]"]
    assert parse_document(b"[[]]", MAX_LEVELS) == "[[]]"


@pytest.mark.parametrize("above", [1, MAX_LEVELS - 1, MAX_LEVELS, 60])
def test_the_limit_of_a_part_includes_the_levels_above_it(above: int) -> None:
    depth = 200 - above
    assert not isinstance(parse_document(b"[" * depth + b"]" * depth, above), InvalidJson)
    assert isinstance(parse_document(b"[" * (depth + 1) + b"]" * (depth + 1), above), InvalidJson)


def test_a_record_has_as_many_levels_in_an_array_as_in_a_line_of_its_own() -> None:
    record = b'{"a":' * 50 + b"1" + b"}" * 50
    assert parse_document(b"[" + record + b"]") == [parse_document(record)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [(None, False), ([], False), ({}, False), ({"a": [None, {"b": []}]}, False), ([[False]], True), ("", True)],
)
def test_nulls_and_empty_values_have_no_leaf(document: Any, expected: bool) -> None:
    assert has_leaf(document) is expected
