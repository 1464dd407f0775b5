"""Field rules: values are excluded, masked, or read as text, as maps or as dates; all others do not change."""

from __future__ import annotations

from typing import Any

import pytest

from widen.json.document import DateText, JsonDocument, JsonNumber, MapEntries, TimestampText, parse_document
from widen.json.field_rules import PLAIN, FieldRule, FieldRules

DATED, MASKED = FieldRules(is_dated=True), FieldRules(FieldRule.MASKED)


def apply(rules: FieldRules, text: str) -> JsonDocument:
    return rules.value(parse_document(text.encode()))


def shape(value: JsonDocument) -> Any:
    """The value with the classes that the rules give it."""
    match value:
        case MapEntries():
            return ("map", {key: shape(item) for key, item in value.items()})
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(item) for item in value]
        case DateText() | TimestampText():
            return (type(value).__name__, str(value))
    return value


VALUES: list[tuple[FieldRules, str, Any]] = [
    (PLAIN, '{"a":[1,"2024-05-01"]}', {"a": ["1", "2024-05-01"]}),
    (DATED, '"2024-05-01"', ("DateText", "2024-05-01")),
    (DATED, '["2024-05-01T10:00:00Z",1,null]', [("TimestampText", "2024-05-01T10:00:00Z"), "1", None]),
    (DATED, '{"x":{"y":"2024-05-01"}}', {"x": {"y": ("DateText", "2024-05-01")}}),
    (FieldRules(maps=1), '{"k":{"x":1}}', ("map", {"k": {"x": "1"}})),
    (FieldRules(maps=2), '{"k":[{"x":1}]}', ("map", {"k": [("map", {"x": "1"})]})),
    (FieldRules(maps=1), '[{"k":1},"x"]', [("map", {"k": "1"}), "x"]),
    (FieldRules(maps=1, is_dated=True), '{"k":"2024-05-01"}', ("map", {"k": ("DateText", "2024-05-01")})),
    (FieldRules(FieldRule.AS_TEXT), '{"x":[1.10,null]}', '{"x":[1.10,null]}'),
    (FieldRules(FieldRule.AS_TEXT), "[]", "[]"),
    (FieldRules(FieldRule.AS_TEXT), '"x"', "x"),
    (FieldRules(FieldRule.AS_TEXT), "1.10", "1.10"),
    (FieldRules(FieldRule.AS_JSON), '"x"', '"x"'),
    (FieldRules(FieldRule.AS_JSON), "1.10", "1.10"),
    (FieldRules(FieldRule.AS_JSON), "true", "true"),
    (FieldRules(FieldRule.AS_JSON), "null", None),
    (MASKED, '{"x":1}', "***"),
    (MASKED, "false", "***"),
    (MASKED, "null", None),
    (FieldRules(hidden={"x": FieldRules(FieldRule.LEFT_OUT)}), '[{"x":1,"y":2}]', [{"y": "2"}]),
    (FieldRules(FieldRule.AS_JSON, hidden={"x": FieldRules(FieldRule.LEFT_OUT)}), '{"x":1,"y":2}', '{"y":2}'),
    (FieldRules(maps=1, hidden={"x": MASKED}), '{"x":1,"k":{"x":2}}', ("map", {"x": "***", "k": {"x": "***"}})),
    (FieldRules(maps=1, hidden={"x": FieldRules(FieldRule.LEFT_OUT)}), '{"x":1,"k":2}', ("map", {"k": "2"})),
    (FieldRules(hidden={"x": MASKED}), '{"x":1,"X":2,"y":3}', {"x": "***", "X": "***", "y": "3"}),
    # A text may spell out the record; numbers and booleans cannot.
    (FieldRules(hidden={"x": MASKED}), '["x=1",2,true,null]', ["***", "2", True, None]),
    (FieldRules(FieldRule.AS_JSON, hidden={"x": MASKED}), '"x=1"', '"***"'),
    # Beside the entry that a map has by that key, only texts that may be JSON are masked.
    (
        FieldRules(maps=1, hidden={"x": MASKED}),
        '{"X":"1","k":"n","j":" {}"}',
        ("map", {"X": "***", "k": "n", "j": "***"}),
    ),
    (
        FieldRules(maps=1, hidden={"k": FieldRules(hidden={"x": MASKED})}),
        '{"k":{"x":1,"y":2},"l":{"x":1}}',
        ("map", {"k": {"x": "***", "y": "2"}, "l": {"x": "1"}}),
    ),
]


@pytest.mark.parametrize(("rules", "text", "expected"), VALUES)
def test_the_rules_of_a_field_are_applied_to_a_value(rules: FieldRules, text: str, expected: Any) -> None:
    assert shape(apply(rules, text)) == expected


def test_numbers_stay_tokens_beside_dates() -> None:
    [number, _] = apply(DATED, '[1.10,"2024-05-01"]')
    assert isinstance(number, JsonNumber)


def test_a_record_loses_excluded_fields() -> None:
    rules = FieldRules(below={"phone": FieldRules(FieldRule.LEFT_OUT), "name": FieldRules(FieldRule.MASKED)})
    assert rules.record({"phone": "1", "name": "x", "a": "y"}) == {"name": "***", "a": "y"}
    record: dict[str, JsonDocument] = {"a": "x"}
    assert PLAIN.record(record) is record
