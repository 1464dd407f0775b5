"""How values are taken, as the table has shown and the policy says."""

from __future__ import annotations

from widen.evolution.policy import Mode, Policy, TextForm, build_field_rules, build_typed_field_rules, with_time_fields
from widen.json.field_rules import PLAIN, FieldRule, FieldRules
from widen.model.schema_json import parse_type
from widen.model.types import STRING, Field, StructType


def table(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


def test_columns_of_scalars_and_records_show_nothing() -> None:
    assert (
        build_field_rules(table("a: int, r: struct<x: date, m: map<int,string>>, _rescued: string"), Policy()) is PLAIN
    )


def test_a_column_of_maps_shows_that_objects_are_maps() -> None:
    found = build_field_rules(
        table("m: map<string,array<map<string,int>>>, r: array<struct<n: map<string,int>>>"), Policy()
    )
    assert found.below == {"m": FieldRules(maps=2), "r": FieldRules(below={"n": FieldRules(maps=1)})}


def test_a_column_that_was_made_for_texts_shows_that() -> None:
    made = StructType((Field("p_2", STRING, metadata={"widen.form": "json", "widen.source": ["p"]}),))
    assert build_field_rules(made, Policy()).below == {"p": FieldRules(FieldRule.AS_JSON)}


def test_pins_say_it_for_the_first_time() -> None:
    pins = {
        ("m",): parse_type("map<string,string>"),
        ("d",): parse_type("array<date>"),
        ("t", "x"): parse_type("timestamp"),
        ("r",): parse_type("struct<y: date>"),
        ("j",): TextForm.TEXT,
        ("f",): Mode.FREEZE,
        ("i",): parse_type("int"),
    }
    dated = FieldRules(is_dated=True)
    assert build_field_rules(StructType(), Policy(pins=pins)).below == {
        "m": FieldRules(maps=1),
        "d": dated,
        "t": FieldRules(below={"x": dated}),
        "r": FieldRules(below={"y": dated}),
        "j": FieldRules(FieldRule.AS_TEXT),
    }


def test_dates_are_looked_for_below_what_was_named() -> None:
    found = build_field_rules(table("log: struct<m: map<string,string>>"), Policy(date_fields=frozenset([("log",)])))
    log = found.at("log")
    assert log.is_dated
    assert log.at("m") == FieldRules(maps=1, is_dated=True)
    assert log.at("anything").is_dated
    assert not found.at("other").is_dated


def test_declared_columns_say_which_strings_are_dates() -> None:
    schema = table("d: date, l: array<timestamp_ntz>, r: struct<t: timestamp, s: string>, s: string")
    policy = with_time_fields(Policy(), schema)
    assert (policy.date_fields, policy.local_time_fields) == ({("d",), ("r", "t")}, {("l",)})
    rules = build_field_rules(schema, policy)
    assert rules.at("l") == FieldRules(has_local_times=True)
    assert rules.at("r").at("t") == rules.at("d") == FieldRules(is_dated=True)
    assert rules.at("r").at("s") == rules.at("s") == FieldRules()


def test_typed_sources_read_dates_only_for_columns_that_take_dates() -> None:
    schema = table("d: date, n: long")
    pins = {(name,): parse_type("timestamp_ntz") for name in ("n", "new")}
    rules = build_typed_field_rules(schema, Policy(date_fields=frozenset([()]), pins=pins))
    assert rules.at("d").is_dated
    assert rules.at("new") == FieldRules(has_local_times=True)
    assert not rules.at("n").reads_times
    assert not rules.at("other").reads_times


def test_what_is_hidden_is_hidden_whatever_else_was_said() -> None:
    policy = Policy(pins={("a",): TextForm.JSON}, masked=frozenset([("a",)]), excluded=frozenset([("r", "b")]))
    found = build_field_rules(table("a: map<string,int>"), policy)
    assert (found.at("a").take, found.at("r").at("b").take) == (FieldRule.MASKED, FieldRule.LEFT_OUT)
