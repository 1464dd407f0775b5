"""Tracked fields: only their changes open a version, however the events of a key are cut into loads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import widen
from support.tracked_events import DRIFTING, NESTED, NUMBERS, STATUS, Loads, cut, expected_rows, generate
from widen.errors import InvalidOption, WidenError
from widen.evolution.key_rules import parse_key_rules

VALUES = {"plain": STATUS, "nested": NESTED}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("option", ["history_columns", "history_except"])
@pytest.mark.parametrize("seed", range(3))
def test_every_cut_leads_to_the_same_versions(
    tmp_path: Path, table_format: str, values: str, option: str, seed: int
) -> None:
    dice = random.Random(f"{values} {option} {seed}")
    events = generate(dice, VALUES[values])
    for number in range(2):
        loads = Loads(tmp_path, table_format, **{option: ["status"] if option == "history_columns" else ["n"]})
        tracked = ("status",) if option == "history_columns" else ("status", "op")
        loads.into += str(number)
        for batch in cut(dice, events):
            loads.load(batch)
        assert loads.versions() == expected_rows(events, tracked)


@pytest.mark.parametrize("seed", range(6))
def test_drifting_values_are_compared_by_kind_and_value(tmp_path: Path, seed: int) -> None:
    dice = random.Random(f"drift {seed}")
    events = generate(dice, DRIFTING)
    loads = Loads(tmp_path, ["delta", "iceberg"][seed % 2], history_columns=["status"])
    for batch in [NUMBERS, *cut(dice, events)]:
        loads.load(batch)
    assert loads.versions() == expected_rows([*NUMBERS, *events], ("status",))


EVENTS = [
    {"k": 1, "at": 1, "op": "u", "status": "new", "n": 1},
    {"k": 1, "at": 3, "op": "u", "status": "new", "n": 2},
    {"k": 1, "at": 5, "op": "u", "status": "new", "n": 3},
]


def test_a_late_record_splits_a_version_with_the_values_that_were_overwritten(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["status"])
    assert str(loads.load(EVENTS).keys) == "1 inserted, 2 updated, 0 deleted, 0 late"
    assert loads.versions() == ([(3, 1, None)], [(1, 1), (2, 3)])
    assert str(loads.load([{"k": 1, "at": 2, "op": "u", "status": "new", "n": 4}]).keys).startswith("0 inserted, 1 upd")
    assert loads.versions() == ([(3, 1, None)], [(1, 1), (2, 3), (4, 2)])
    loads.load([{"k": 1, "at": 4, "op": "u", "status": "paid", "n": 5}])
    assert loads.versions() == ([(2, 1, 4), (3, 5, None), (5, 4, 5)], [(1, 1), (4, 2)])
    loads.load([{"k": 1, "at": 2, "op": "d"}])
    assert loads.versions() == ([(1, 1, 2), (2, 3, 4), (3, 5, None), (5, 4, 5)], [])


@pytest.mark.parametrize("moment", range(8))
def test_a_filter_by_time_never_shows_a_record_that_was_updated(tmp_path: Path, moment: int) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["status"])
    loads.load([*EVENTS, {"k": 1, "at": 6, "op": "u", "status": "paid", "n": 6}])
    condition = f"_valid_from <= {moment} AND (_valid_to > {moment} OR _valid_to IS NULL)"
    seen = widen.Table(loads.into).to_arrow(where=condition)["n"].to_pylist()
    assert seen == ([] if moment < 1 else [3] if moment < 6 else [6])
    assert widen.Table(loads.into).to_arrow(where="_is_current")["n"].to_pylist() == [6]


def test_the_table_records_the_tracked_fields(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["Status"])
    loads.load(EVENTS)
    assert '"historyColumns":["Status"]' in widen.Table(loads.into).properties["widen.keys"]
    late = [{"k": 1, "at": 2, "op": "u", "status": "paid", "n": 4}]
    for words in ({"history_columns": None}, {"history_columns": ["n"]}, {"history_except": ["n"]}):
        given = {**loads.words, "history_columns": None, **words}
        (option,) = words
        with pytest.raises(InvalidOption, match=rf"(?s){option} cannot be .*for changes of status"):
            loads.load(late, **given)
    loads.load(late, history_columns=["STATUS"])
    assert loads.versions() == ([(1, 1, 2), (3, 3, None), (4, 2, 3)], [(2, 3)])


def test_a_table_with_every_version_stays_one(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta")
    loads.load(EVENTS)
    with pytest.raises(InvalidOption, match="every version by at of each k"):
        loads.load(EVENTS, history_except=["n"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            {"history_columns": ["a"], "history_except": ["b"], "history": True},
            "history_columns cannot be used together",
        ),
        ({"history_columns": ["a"]}, r"(?s)history is missing.*add --history"),
        ({"history_columns": [], "history": True}, "at least one field"),
        ({"history_columns": "a", "history": True}, "list of fields"),
        ({"history_columns": ["at"], "history": True}, "key or the sequence"),
        ({"history_columns": ["a", "ID"], "history": True}, "key or the sequence"),
    ],
)
def test_options_that_cannot_be_are_refused(words: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidOption, match=error):
        parse_key_rules(["id"], "at", **words)


def test_the_key_and_the_sequence_need_not_be_left_out(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta", history_except=["n", "k", "AT", "r.at"], sequence_by=["at", "r.at"])
    loads.load([{**event, "r": {"at": event["n"], "x": 1}} for event in EVENTS])
    rows = {row["n"]: (row["_valid_from"], row["_valid_to"]) for row in loads.rows()}
    assert rows[3] == ({"at": 1, "r": {"at": 1}}, None)
    assert rows[1][0] == rows[1][1]


@pytest.mark.parametrize("option", ["exclude", "mask"])
def test_tracked_fields_have_their_values(tmp_path: Path, option: str) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["status"])
    with pytest.raises(InvalidOption, match="history_columns"):
        loads.load(EVENTS, **{option: ["status"]})
    with pytest.raises(InvalidOption, match="add status to include"):
        loads.load(EVENTS, include=["k", "at", "op", "n"])


def test_a_field_that_no_record_has_is_named(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["state"])
    (found,) = loads.load(EVENTS).plan.unmatched
    assert (found.option, found.source) == ("history_columns", ("state",))
    with pytest.raises(WidenError, match="state"):
        loads.load(EVENTS, strict=True)


def test_rescued_values_cannot_be_tracked(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta", history_columns=["status"], max_columns=8, delete_when=None)
    with pytest.raises(InvalidOption, match="_rescued"):
        loads.load([{**EVENTS[0], "more": 1, "and": 2, "others": 3}])


def test_the_rules_of_a_file_say_what_is_tracked(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[keys]\nkey = ["k"]\nsequence_by = "at"\nhistory = true\nhistory_except = ["n", "op"]\n')
    loads = Loads(tmp_path, "delta")
    loads.words = {"config": str(file)}
    loads.load(EVENTS)
    assert loads.versions() == ([(3, 1, None)], [(1, 1), (2, 3)])
    file.write_text('[keys]\nkey = ["k"]\nsequence_by = "at"\nhistory = true\nhistory_except = "n"\n')
    with pytest.raises(WidenError, match='history_except = \\["n"\\]'):
        loads.load(EVENTS)
