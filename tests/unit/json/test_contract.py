"""Records held against a contract: each keyword, and what is not supported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from widen.errors import InvalidOption
from widen.json.contract import ensure_contract, find_breaches
from widen.json.document import parse_document

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": ["number", "null"]},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False},
        "by": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def breaches(contract: Any, text: str) -> list[tuple[str, str]]:
    ensure_contract(contract)
    return [
        (found.path, found.reason) for found in find_breaches(contract, parse_document(text.encode(), allows_nan=True))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": 1, "total": 2.5, "day": "2024-01-31", "tags": ["x"], "who": {}, "by": {"u": 1}, "any": [1]}', []),
        ('{"id": 1, "total": 7}', []),
        ('{"id": 1, "total": null}', []),
        ('{"id": 12345678901234567890123}', []),
        ("{}", [("id", "is missing")]),
        ('{"id": 1.0}', [("id", "is a number, not an integer")]),
        ('{"id": "1"}', [("id", "is a string, not an integer")]),
        ('{"id": null}', [("id", "is null, not an integer")]),
        ('{"id": 1, "total": true}', [("total", "is a boolean, not a number or null")]),
        ('{"id": 1, "day": "31.1.2024"}', [("day", "is not of the format date")]),
        ('{"id": 1, "tags": ["x", 1, 2]}', [("tags", "is an integer, not a string")] * 2),
        ('{"id": 1, "tags": {}}', [("tags", "is an object, not an array")]),
        ('{"id": 1, "who": {"nam": 1}}', [("who.nam", "is a new field")]),
        ('{"id": 1, "who": {"name": 1}}', [("who.name", "is an integer, not a string")]),
        ('{"id": 1, "by": {"u": "x"}}', [("by.`*`", "is a string, not an integer")]),
        ('{"id": 1, "new": 1}', [("new", "is a new field")]),
    ],
)
def test_an_order(text: str, expected: list[tuple[str, str]]) -> None:
    assert breaches(ORDER, text) == expected


@pytest.mark.parametrize(
    ("keyword", "value", "good", "bad"),
    [
        ("enum", ["a", 1, None], ['"a"', "1", "1.0", "null"], ['"b"', "2", "true"]),
        ("const", True, ["true"], ["1", "false", '"true"']),
        ("minimum", 1, ["1", "1.5", '"x"', "NaN", "Infinity"], ["0.99", "-1", "-Infinity"]),
        ("maximum", 10, ["10", "9.99", "-Infinity"], ["10.01", "1e400", "NaN", "Infinity"]),
        ("minLength", 2, ['"ab"', "1"], ['"a"']),
        ("maxLength", 2, ['"ab"', "100"], ['"abc"']),
        ("pattern", "^a", ['"ab"', "1"], ['"ba"']),
        ("format", "date-time", ['"2024-01-31T10:00:00Z"'], ['"2024-01-31"', '"x"']),
        ("anyOf", [{"type": "string"}, {"minimum": 5}], ['"x"', "5"], ["4"]),
        ("items", {"type": "integer"}, ["[1]", "[]", '"x"'], ["[true]"]),
        ("additionalProperties", True, ['{"b": 1}'], []),
    ],
)
def test_each_keyword(keyword: str, value: object, good: list[str], bad: list[str]) -> None:
    contract = {"properties": {"a": {keyword: value}}}
    assert [text for text in good if breaches(contract, f'{{"a": {text}}}')] == []
    assert [text for text in bad if not breaches(contract, f'{{"a": {text}}}')] == []


@pytest.mark.parametrize(
    ("contract", "place"),
    [
        ({"$ref": "#/x"}, "contract.$ref"),
        ({"properties": {"a": {"not": {}}}}, "contract.properties.a.not"),
        ({"items": {"format": "email"}}, "contract.items.format"),
        ({"anyOf": [{"type": "int"}]}, "contract.anyOf.0.type"),
        ({"required": "id"}, "contract.required"),
        ({"minimum": True}, "contract.minimum"),
        ({"maximum": float("nan")}, "contract.maximum"),
        ({"type": {"a": 1}}, "contract.type"),
        ({"type": [{}]}, "contract.type"),
        ({"format": [1]}, "contract.format"),
        ({"required": [{}]}, "contract.required"),
        ({"pattern": "("}, "contract.pattern"),
        ([1], "contract"),
    ],
)
def test_what_is_not_supported_is_refused(contract: object, place: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        ensure_contract(contract)
    assert caught.value.fields["option"] == place


def test_false_allows_nothing_and_true_everything() -> None:
    assert breaches(False, json.dumps({})) == [("the record", "is not allowed")]
    assert breaches(True, json.dumps({"a": 1})) == []
