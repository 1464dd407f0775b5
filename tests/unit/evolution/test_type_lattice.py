from __future__ import annotations

import pytest

from widen.evolution.type_lattice import WIDER, ValueSpan, can_route, common_leaf, covers_kind, decimal_for
from widen.json.kinds import NO_FACTS, Kind, ValueFacts, number_kind
from widen.json.observation import KindObservation
from widen.model.schema_json import parse_type


def observe_tokens(*tokens: str, facts: ValueFacts = NO_FACTS) -> KindObservation:
    result = KindObservation()
    for token in tokens:
        result.add(number_kind(token)[1], ("f", 1), token)
    if not tokens:
        result.add(facts, ("f", 1), "")
    return result


SEED_LATTICE = {
    "boolean": {"long", "double", "string"},
    "long": {"double", "string"},
    "double": {"string"},
    "date": {"long", "double", "timestamp", "string"},
    "timestamp": {"long", "double", "string"},
    "string": set(),
}


@pytest.mark.parametrize(("word", "wider"), SEED_LATTICE.items(), ids=SEED_LATTICE)
def test_the_order_of_the_seed(word: str, wider: set[str]) -> None:
    assert set(WIDER[word]) - {"int", "decimal", "timestamp_ntz"} == wider


@pytest.mark.parametrize(
    ("column", "kind", "values", "covers"),
    [
        ("bigint", "long", observe_tokens("7"), True),
        ("int", "long", observe_tokens("2147483647"), True),
        ("int", "long", observe_tokens("2147483648"), False),
        ("smallint", "long", observe_tokens("9999"), True),
        ("smallint", "long", observe_tokens("10000"), False),
        ("tinyint", "long", observe_tokens("99"), True),
        ("tinyint", "long", observe_tokens("100"), False),
        ("float", "long", observe_tokens("7"), False),
        ("float", "double", observe_tokens("2.5"), False),
        ("double", "long", observe_tokens("9007199254740993"), False),
        ("double", "decimal", observe_tokens("100000000000000000000"), True),
        ("decimal(5,2)", "long", observe_tokens("999"), True),
        ("decimal(5,2)", "long", observe_tokens("1000"), False),
        ("decimal(5,2)", "double", observe_tokens("1.25"), True),
        ("decimal(5,2)", "double", observe_tokens("1.125"), False),
        ("decimal(5,2)", "double", observe_tokens("-0.0"), False),
        ("bigint", "double", observe_tokens("3.0"), False),
        ("timestamp", "long", observe_tokens("7"), False),
        ("bigint", "timestamp", observe_tokens(), True),
        ("bigint", "timestamp", observe_tokens(facts=ValueFacts(epoch_ms_exact=False)), False),
        ("timestamp_ntz", "date", observe_tokens(), True),
        ("timestamp_ntz", "timestamp", observe_tokens(), False),
        ("date", "timestamp", observe_tokens(), False),
        ("boolean", "long", observe_tokens("1"), False),
        ("binary", "string", observe_tokens(), False),
        ("string", "timestamp", observe_tokens(), True),
    ],
)
def test_a_column_covers_a_kind_only_where_every_value_is_exact(
    column: str, kind: str, values: KindObservation, covers: bool
) -> None:
    assert covers_kind(parse_type(column), 0, Kind(kind), values) is covers


def test_a_smaller_dim_fits_a_larger_one_only() -> None:
    assert covers_kind(parse_type("string"), 2, Kind("long", 1), observe_tokens("7"))
    assert not covers_kind(parse_type("string"), 1, Kind("long", 2), observe_tokens("7"))


@pytest.mark.parametrize(("column", "kind"), [("timestamp", "long"), ("float", "double"), ("float", "long")])
def test_some_columns_take_what_they_do_not_cover(column: str, kind: str) -> None:
    assert can_route(parse_type(column), kind)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        (["boolean", "date"], "string"),
        (["boolean", "bigint"], "bigint"),
        (["date", "timestamp"], "timestamp"),
        (["date", "bigint", "timestamp"], "bigint"),
        (["int", "timestamp"], "bigint"),
        (["int", "bigint", "double"], "double"),
        (["bigint", "decimal(5,2)"], "decimal(22,2)"),
        (["bigint", "decimal(38,2)"], "decimal(38,2)"),
        (["bigint", "decimal(38,20)"], "string"),
        (["double", "decimal(5,2)"], "string"),
        (["float", "boolean"], "double"),
        (["tinyint", "boolean"], "int"),
        (["binary", "int"], "int"),
        (["timestamp", "boolean"], "string"),
    ],
)
def test_the_common_type_of_columns(types: list[str], common: str) -> None:
    assert common_leaf(ValueSpan(parse_type(text)) for text in types) == parse_type(common)


def test_doubles_and_decimals_meet_where_their_values_allow() -> None:
    decimal = parse_type("decimal(5,2)")
    assert common_leaf([ValueSpan(parse_type("double"), observe_tokens("2.5")), ValueSpan(decimal)]) == decimal
    assert common_leaf([ValueSpan(parse_type("double"), observe_tokens("1e300")), ValueSpan(decimal)]) == parse_type(
        "string"
    )


def test_the_narrowest_decimal() -> None:
    assert decimal_for([ValueSpan(parse_type("int")), ValueSpan(parse_type("decimal(10,4)"))]) == parse_type(
        "decimal(14,4)"
    )
    assert decimal_for([ValueSpan(parse_type("decimal(38,0)")), ValueSpan(parse_type("decimal(2,1)"))]) is None
    assert decimal_for([ValueSpan(parse_type("double"))]) is None
