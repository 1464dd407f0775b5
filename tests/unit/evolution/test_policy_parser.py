from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.evolution.policy import EpochUnit, Mode, TextForm, parse_mode, parse_pin, parse_source, parse_unit
from widen.model.schema_json import parse_type


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ("split", Mode.SPLIT),
        ("Freeze", Mode.FREEZE),
        ("text", TextForm.TEXT),
        (" JSON ", TextForm.JSON),
        ("decimal(18,4)", parse_type("decimal(18,4)")),
        ("BIGINT", parse_type("bigint")),
        ("map<string, array<int>>", parse_type("map<string,array<int>>")),
        ("struct<a: int not null>", parse_type("struct<a: int>")),
        ("timestamp_ntz", parse_type("timestamp_ntz")),
    ],
)
def test_a_pin_is_a_mode_a_form_or_a_type(text: str, pin: object) -> None:
    assert parse_pin("pins.a", text) == pin


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("decimall", "unknown type decimall"),
        ("decimal(40,2)", "precision must be 1 to 38"),
        ("binary", "A JSON value cannot have the type binary"),
        ("map<int,string>", r"A JSON value cannot have the type map<int,string>"),
        ("array<struct<a: variant>>", "A JSON value cannot have the type variant"),
        ("struct<>", "A JSON value cannot have the type struct<>"),
        (7, "Must be one of widen"),
    ],
)
def test_what_is_none_is_refused_with_its_place(text: object, told: str) -> None:
    with pytest.raises(InvalidOption, match=told) as refused:
        parse_pin("pins.a", text)
    assert refused.value.fields["option"] == "pins.a"


def test_paths_modes_and_units() -> None:
    assert parse_source("exclude", "a.`x.y`") == ("a", "x.y")
    assert parse_mode("evolve", "fail") is Mode.FAIL
    assert parse_unit("epoch_unit.a", "us") is EpochUnit.MICROSECONDS


@pytest.mark.parametrize("text", ["a..b", "", None])
def test_what_is_no_path_is_refused(text: object) -> None:
    with pytest.raises(InvalidOption, match="Must be a path of keys"):
        parse_source("mask", text)


def test_unknown_words_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match="Must be one of widen, split, freeze, fail"):
        parse_mode("evolve", "grow")
    with pytest.raises(InvalidOption, match="Must be one of s, ms, us, ns"):
        parse_unit("epoch_unit.a", "seconds")
