"""The policy from arguments and a file: what each can say, what wins, and where a mistake stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from widen.errors import InvalidConfig, InvalidOption
from widen.evolution.policy import EpochUnit, Mode, Policy, TextForm
from widen.ingestion.options import parse_policy
from widen.json.time_spellings import TimeSpelling
from widen.model.schema_json import parse_type

FILE = """\
evolve = "split"
max_columns = 50
detect_dates = ["day", "log.at"]
date_spellings = "any"
time_zone = "Europe/Berlin"
exclude = ["user.password"]
mask = ["phone"]

[pins]
"a.b" = "decimal(18,4)"
headers = "map<string,string>"
raw = "freeze"

[pins.nested]
payload = "json"

[epoch_unit]
started = "ms"
"""


def written(place: Path, text: str) -> str:
    (place / "evolve.toml").write_text(text, encoding="utf-8")
    return str(place / "evolve.toml")


def test_nothing_said_is_the_default() -> None:
    assert parse_policy() == Policy()


def test_a_file_says_all_that_arguments_can(tmp_path: Path) -> None:
    assert parse_policy(config=written(tmp_path, FILE)) == Policy(
        mode=Mode.SPLIT,
        max_columns=50,
        date_fields=frozenset([("day",), ("log", "at")]),
        spelling=TimeSpelling(is_any=True, zone="Europe/Berlin"),
        excluded=frozenset([("user", "password")]),
        masked=frozenset([("phone",)]),
        pins={
            ("a", "b"): parse_type("decimal(18,4)"),
            ("headers",): parse_type("map<string,string>"),
            ("raw",): Mode.FREEZE,
            ("nested", "payload"): TextForm.JSON,
        },
        epoch_units={("started",): EpochUnit.MILLISECONDS},
    )


def test_arguments_say_the_same() -> None:
    policy = parse_policy(
        evolve="split",
        pins={"a.b": "text"},
        exclude=["x"],
        mask=["`y.z`"],
        detect_dates=True,
        date_spellings="any",
        time_zone="UTC",
        epoch_unit={"t": "s"},
        max_columns=9,
    )
    assert policy == Policy(
        mode=Mode.SPLIT,
        pins={("a", "b"): TextForm.TEXT},
        excluded=frozenset([("x",)]),
        masked=frozenset([("y.z",)]),
        date_fields=frozenset([()]),
        spelling=TimeSpelling(is_any=True, zone="UTC"),
        epoch_units={("t",): EpochUnit.SECONDS},
        max_columns=9,
    )


def test_what_is_said_wins_over_the_file_and_lists_add_up(tmp_path: Path) -> None:
    place = written(tmp_path, FILE)
    policy = parse_policy(evolve="fail", config=place, pins={"raw": "string"}, detect_dates=False, exclude=["z"])
    assert policy.mode is Mode.FAIL
    assert policy.pins[("raw",)] == parse_type("string")
    assert policy.pins[("a", "b")] == parse_type("decimal(18,4)")
    assert policy.date_fields == frozenset()
    assert policy.excluded == {("user", "password"), ("z",)}


MISTAKES: list[tuple[str, str]] = [
    ('evolve = "grow"', "evolve.toml, line 1: evolve cannot be 'grow'"),
    ('\n[pins]\n# a comment\n"a.b" = "decimall(18,4)"', "evolve.toml, line 4: pins.a.b cannot be 'decimall"),
    ('[pins.a]\nb = "binary"', "evolve.toml, line 2: pins.a.b cannot be 'binary'"),
    ('pins = { a.b = "x y" }', "evolve.toml: pins.a.b cannot be 'x y'"),
    ("pins = 7", "evolve.toml, line 1: pins cannot be 7"),
    ('[epoch_unit]\nstarted = "minutes"', "evolve.toml, line 2: epoch_unit.started cannot be 'minutes'"),
    ('date_spellings = "all"', "evolve.toml, line 1: date_spellings cannot be 'all'"),
    ('time_zone = "CET+1"', "evolve.toml, line 1: time_zone cannot be 'CET+1'"),
    ("time_zone = 1", "evolve.toml, line 1: time_zone cannot be 1"),
    ('time_zone = "../etc/localtime"', "evolve.toml, line 1: time_zone cannot be '../etc/localtime'"),
    ("evolve = []", "evolve.toml, line 1: evolve cannot be []"),
    ("numbers = {}", "evolve.toml, line 1: numbers cannot be {}"),
    ("epoch_unit = { a = [] }", "evolve.toml: epoch_unit.a cannot be []"),
    ("samples = []", "evolve.toml, line 1: samples cannot be []"),
    ("max_columns = 0", "evolve.toml, line 1: max_columns cannot be 0"),
    ("max_columns = true", "evolve.toml, line 1: max_columns cannot be True"),
    ('mask = "phone"', "evolve.toml, line 1: mask cannot be 'phone'"),
    ('exclude = ["a..b"]', "evolve.toml, line 1: exclude cannot be 'a..b'"),
    ('exclude = ["a"]\nmask = ["a"]', "mask cannot be 'a'"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_policy(config=written(tmp_path, text))
    assert told in refused.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\nevolve_mode = 'split'", "evolve.toml, line 2: evolve_mode: unknown setting"),
        ("evolve = \nmask = []", "line 1"),
        ("[pins", "at end of document"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_policy(config=written(tmp_path, text))
    assert told in refused.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        parse_policy(config=tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("said", "place"),
    [({"pins": {"a": "no type"}}, "pins.a"), ({"mask": "phone"}, "mask"), ({"epoch_unit": {"t": "h"}}, "epoch_unit.t")],
)
def test_a_mistake_in_an_argument_names_it(said: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_policy(**said)
    assert refused.value.fields["option"] == place
