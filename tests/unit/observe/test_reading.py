"""How values are taken: left out, masked, as text, as maps, as dates; all else stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from widen.observe.document import Day, Document, Entries, Instant, Number, parse
from widen.observe.reading import PLAIN, Reading, Take

DATED, MASKED = Reading(is_dated=True), Reading(Take.MASKED)


def read(reading: Reading, text: str) -> Document:
    return reading.value(parse(text.encode()))


def shape(value: Document) -> Any:
    """The value with the classes that say how it is taken."""
    match value:
        case Entries():
            return ("map", {key: shape(item) for key, item in value.items()})
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(item) for item in value]
        case Day() | Instant():
            return (type(value).__name__, str(value))
    return value


VALUES: list[tuple[Reading, str, Any]] = [
    (PLAIN, '{"a":[1,"2024-05-01"]}', {"a": ["1", "2024-05-01"]}),
    (DATED, '"2024-05-01"', ("Day", "2024-05-01")),
    (DATED, '["2024-05-01T10:00:00Z",1,null]', [("Instant", "2024-05-01T10:00:00Z"), "1", None]),
    (DATED, '{"x":{"y":"2024-05-01"}}', {"x": {"y": ("Day", "2024-05-01")}}),
    (Reading(maps=1), '{"k":{"x":1}}', ("map", {"k": {"x": "1"}})),
    (Reading(maps=2), '{"k":[{"x":1}]}', ("map", {"k": [("map", {"x": "1"})]})),
    (Reading(maps=1), '[{"k":1},"x"]', [("map", {"k": "1"}), "x"]),
    (Reading(maps=1, is_dated=True), '{"k":"2024-05-01"}', ("map", {"k": ("Day", "2024-05-01")})),
    (Reading(Take.AS_TEXT), '{"x":[1.10,null]}', '{"x":[1.10,null]}'),
    (Reading(Take.AS_TEXT), "[]", "[]"),
    (Reading(Take.AS_TEXT), '"x"', "x"),
    (Reading(Take.AS_TEXT), "1.10", "1.10"),
    (Reading(Take.AS_JSON), '"x"', '"x"'),
    (Reading(Take.AS_JSON), "1.10", "1.10"),
    (Reading(Take.AS_JSON), "true", "true"),
    (Reading(Take.AS_JSON), "null", None),
    (MASKED, '{"x":1}', "***"),
    (MASKED, "false", "***"),
    (MASKED, "null", None),
    (Reading(below={"x": Reading(Take.LEFT_OUT)}), '[{"x":1,"y":2}]', [{"y": "2"}]),
    (Reading(Take.AS_JSON, below={"x": Reading(Take.LEFT_OUT)}), '{"x":1,"y":2}', '{"y":2}'),
    (Reading(maps=1, below={"x": MASKED}), '{"x":1,"k":{"x":2}}', ("map", {"x": "***", "k": {"x": "***"}})),
    (Reading(maps=1, below={"x": Reading(Take.LEFT_OUT)}), '{"x":1,"k":2}', ("map", {"k": "2"})),
]


@pytest.mark.parametrize(("reading", "text", "expected"), VALUES)
def test_a_value_is_taken_as_its_field_says(reading: Reading, text: str, expected: Any) -> None:
    assert shape(read(reading, text)) == expected


def test_numbers_stay_tokens_beside_what_is_taken_otherwise() -> None:
    [number, _] = read(DATED, '[1.10,"2024-05-01"]')
    assert isinstance(number, Number)


def test_a_record_without_the_fields_that_are_left_out() -> None:
    reading = Reading(below={"phone": Reading(Take.LEFT_OUT), "name": Reading(Take.MASKED)})
    assert reading.record({"phone": "1", "name": "x", "a": "y"}) == {"name": "***", "a": "y"}
    record: dict[str, Document] = {"a": "x"}
    assert PLAIN.record(record) is record
