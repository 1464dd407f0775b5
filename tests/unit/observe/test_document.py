from __future__ import annotations

from typing import Any

import pytest

from widen.observe.document import MAX_DEPTH, NotJson, Number, has_leaf, parse


@pytest.mark.parametrize(
    "token", ["0", "-0", "-0.0", "1.10", "1e3", "1E400", "9007199254740993", "9" * 5000, "0." + "1" * 5000]
)
def test_a_number_stays_the_token_that_it_is(token: str) -> None:
    value = parse(f'{{"a": {token}}}'.encode())["a"]
    assert type(value) is Number
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
    assert parse(text) == document


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":1,"a":2}', "the key 'a' stands twice"),
        (b'{"a":1,"\\u0061":1}', "the key 'a' stands twice"),
        (b'{"x":[{"b":1 , "b" :2}]}', "the key 'b' stands twice"),
        (b'{"a":NaN}', "NaN is no JSON"),
        (b'{"a":Infinity}', "Infinity is no JSON"),
        (b'{"a":-Infinity}', "-Infinity is no JSON"),
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
def test_what_cannot_be_kept_exactly_is_refused(text: bytes, reason: str) -> None:
    found = parse(text)
    assert isinstance(found, NotJson)
    assert reason in found.reason


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_nesting_has_a_bound_that_does_not_depend_on_the_stack(opening: bytes, closing: bytes) -> None:
    def nested(depth: int) -> Any:
        return parse(opening * depth + b"1" + closing * depth)

    assert not isinstance(nested(MAX_DEPTH), NotJson)
    for depth in (MAX_DEPTH + 1, 900, 5000, 100_000):
        assert nested(depth) == NotJson("more than 50 records and arrays stand in each other")


def test_many_brackets_beside_each_other_are_not_deep() -> None:
    assert parse(b'{"a":[' + b",".join([b"{}"] * 500) + b'],"b":"' + b"[" * 500 + b'"}')["a"] == [{}] * 500


def test_a_part_of_a_text_counts_what_it_stands_in() -> None:
    assert parse(b"[[]]", MAX_DEPTH - 2) == [[]]
    assert isinstance(parse(b"[[]]", MAX_DEPTH - 1), NotJson)


@pytest.mark.parametrize(
    ("document", "expected"),
    [(None, False), ([], False), ({}, False), ({"a": [None, {"b": []}]}, False), ([[False]], True), ("", True)],
)
def test_null_and_what_is_empty_have_no_leaf(document: Any, expected: bool) -> None:
    assert has_leaf(document) is expected
