"""How values are taken, as the table has shown and the policy says."""

from __future__ import annotations

from widen.model.text import parse_type
from widen.model.type import STRING, Field, StructType
from widen.observe.reading import PLAIN, Reading, Take
from widen.planning.policy import Form, Mode, Policy
from widen.planning.treatment import reading_of


def table(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


def test_columns_of_scalars_and_records_show_nothing() -> None:
    assert reading_of(table("a: int, r: struct<x: date, m: map<int,string>>, _rescued: string"), Policy()) is PLAIN


def test_a_column_of_maps_shows_that_objects_are_maps() -> None:
    found = reading_of(table("m: map<string,array<map<string,int>>>, r: array<struct<n: map<string,int>>>"), Policy())
    assert found.below == {"m": Reading(maps=2), "r": Reading(below={"n": Reading(maps=1)})}


def test_a_column_that_was_made_for_texts_shows_that() -> None:
    made = StructType((Field("p_2", STRING, metadata={"widen.form": "json", "widen.source": ["p"]}),))
    assert reading_of(made, Policy()).below == {"p": Reading(Take.AS_JSON)}


def test_pins_say_it_for_the_first_time() -> None:
    pins = {
        ("m",): parse_type("map<string,string>"),
        ("d",): parse_type("array<date>"),
        ("t", "x"): parse_type("timestamp"),
        ("r",): parse_type("struct<y: date>"),
        ("j",): Form.TEXT,
        ("f",): Mode.FREEZE,
        ("i",): parse_type("int"),
    }
    dated = Reading(is_dated=True)
    assert reading_of(StructType(), Policy(pins=pins)).below == {
        "m": Reading(maps=1),
        "d": dated,
        "t": Reading(below={"x": dated}),
        "r": Reading(below={"y": dated}),
        "j": Reading(Take.AS_TEXT),
    }


def test_dates_are_looked_for_below_what_was_named() -> None:
    found = reading_of(table("log: struct<m: map<string,string>>"), Policy(dated=frozenset([("log",)])))
    log = found.at("log")
    assert log.is_dated
    assert log.at("m") == Reading(maps=1, is_dated=True)
    assert log.at("anything").is_dated
    assert not found.at("other").is_dated


def test_what_is_hidden_is_hidden_whatever_else_was_said() -> None:
    policy = Policy(pins={("a",): Form.JSON}, masked=frozenset([("a",)]), left_out=frozenset([("r", "b")]))
    found = reading_of(table("a: map<string,int>"), policy)
    assert (found.at("a").take, found.at("r").at("b").take) == (Take.MASKED, Take.LEFT_OUT)
