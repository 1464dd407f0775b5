"""Fractions as decimals with the digits as written."""

from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.ingestion.policy_config import parse_policy
from widen.model.types import StructType
from widen.observe.json_document import parse_document
from widen.observe.observation import Observation, observation_from_json
from widen.observe.observe_document import observe_record
from widen.planning.evolution.evolve import evolve


def observed(*texts: str) -> Observation:
    found = Observation(records=len(texts))
    for number, text in enumerate(texts, 1):
        document = parse_document(f'{{"a": {text}}}'.encode())
        assert isinstance(document, dict)
        observe_record(found.root, document, ("f", number))
    return found


def columns(*days: list[str], numbers: str | None = "decimal", evolve_mode: str = "widen") -> list[str]:
    schema: StructType | None = None
    for day in days:
        schema = evolve(schema, observed(*day), parse_policy(evolve_mode, numbers=numbers)).schema
    assert schema is not None
    return [f"{field.name} {field.type.sql}" for field in schema]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([["12.50"]], ["a decimal(4,2)"]),
        ([["12.50", "7"]], ["a decimal(4,2)"]),
        ([["12.5", "7.00"]], ["a decimal(4,2)"]),
        ([["7"], ["12.50"]], ["a decimal(12,2)"]),
        ([["12.50"], ["7.125"]], ["a decimal(5,3)"]),
        ([["[12.50, 1]"]], ["a array<decimal(4,2)>"]),
        ([["7"]], ["a int"]),
        ([["1.5e3"]], ["a decimal(4,0)"]),
        ([["1e400"]], ["a string"]),
        ([['"12.50"']], ["a string"]),
        ([["12.50"], ['"x"']], ["a decimal(4,2)", "a_string string"]),
    ],
)
def test_columns(days: list[list[str]], expected: list[str]) -> None:
    assert columns(*days) == expected


def test_the_default_does_not_change() -> None:
    assert columns(["12.50"], numbers=None) == columns(["12.50"], numbers="exact") == ["a double"]


def test_a_column_of_doubles_stays_one() -> None:
    before = evolve(None, observed("2.5"), parse_policy()).schema
    assert evolve(before, observed("12.50"), parse_policy(numbers="decimal")).is_empty


def test_the_written_digits_survive_the_way_to_the_driver_and_merge() -> None:
    seen = observed("12.50").merged(observed("1.5"))
    assert observation_from_json(seen.to_json()) == seen
    assert [kind.written_scale for kind in seen.root["a"].kinds.values()] == [2]


def test_numbers_has_two_values() -> None:
    with pytest.raises(InvalidOption, match="numbers cannot be 'round'"):
        parse_policy(numbers="round")
