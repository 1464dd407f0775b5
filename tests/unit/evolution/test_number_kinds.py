"""Numbers as decimals with the digits as written, or rounded to doubles."""

from __future__ import annotations

import pytest

from support.stable_interval import ingest_texts
from widen.errors import InvalidOption
from widen.evolution.evolve import evolve
from widen.evolution.plan import RoundedField, explain_plan
from widen.ingestion.options import parse_policy
from widen.json.document import parse_document
from widen.json.observation import Observation, observation_from_json, observe_record
from widen.model.types import StructType


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
        schema = evolve(schema, observed(*day), parse_policy(evolve=evolve_mode, numbers=numbers)).schema
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


BIG, LONG_FRACTION = "9007199254740993", "0.12345678901234567891"


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([["2.5", LONG_FRACTION, BIG]], ["a double"]),
        ([["2.5"], [LONG_FRACTION], [BIG], ["18446744073709551617"]], ["a double"]),
        ([[LONG_FRACTION]], ["a double"]),
        ([["7"], [LONG_FRACTION]], ["a double"]),
        ([["[2.5]", f"[{BIG}]"]], ["a array<double>"]),
        ([["2.5", '"x"'], [LONG_FRACTION]], ["a string", "a_double double"]),
        # No fraction meets these: they are often identifiers.
        ([[BIG]], ["a bigint"]),
        ([["18446744073709551617"]], ["a decimal(20,0)"]),
        # A long column cannot become a double in place: a decimal holds both, or the fractions get a column.
        ([[BIG], ["0.123456789012345678"]], ["a decimal(38,18)"]),
        ([[BIG], [LONG_FRACTION]], ["a bigint", "a_double double"]),
        # No double is near: infinity and zero would be wrong.
        ([["2.5", "1e400"]], ["a string", "a_double double"]),
        ([["2.5", "1e-400"]], ["a string", "a_double double"]),
    ],
)
def test_columns_of_doubles(days: list[list[str]], expected: list[str]) -> None:
    assert columns(*days, numbers="double") == expected


def test_in_split_whole_numbers_keep_their_column() -> None:
    assert columns(["2.5", LONG_FRACTION, BIG], numbers="double", evolve_mode="split") == ["a double"]
    split = columns(["7"], [LONG_FRACTION, BIG], numbers="double", evolve_mode="split")
    assert split == ["a bigint", "a_double double"]
    exact = columns(["7"], [LONG_FRACTION, BIG], numbers="exact", evolve_mode="split")
    assert exact == ["a bigint", "a_decimal decimal(20,20)", "a_string string"]


def test_the_plan_counts_what_is_rounded() -> None:
    plan = evolve(None, observed("2.5", LONG_FRACTION, BIG, "7"), parse_policy(numbers="double"))
    assert (plan.rounded, plan.rounded_values) == ((RoundedField(("a",), 2),), 2)
    assert "Rounded to double:" in explain_plan(plan)
    assert "  a: 2 numbers" in explain_plan(plan)
    again = evolve(plan.schema, observed("2.5", "7"), parse_policy(numbers="double"))
    assert again.rounded == ()


def test_a_pinned_decimal_and_the_values_of_maps_are_not_rounded() -> None:
    pinned = evolve(None, observed(LONG_FRACTION), parse_policy(numbers="double", pins={"a": "decimal(10,2)"}))
    assert pinned.rounded == ()
    policy = parse_policy(numbers="double", pins={"a": "map"})
    maps = ingest_texts(None, [f'{{"a": {{"k": {LONG_FRACTION}, "l": 2.5}}}}'.encode()], policy).plan
    assert [field.type.sql for field in maps.schema] == ["map<string,decimal(21,20)>"]
    assert maps.rounded == ()
