"""Sequences of several fields: the row or the versions of a key do not depend on how the events are cut into loads."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import widen
from support.fault import FULL
from widen.errors import InvalidOption
from widen.evolution.key_rules import KeyRules, parse_key_rules
from widen.iceberg.catalog import to_table_name

Event = dict[str, Any]

TIMES, NUMBERS = ("", "a", "a\0", "ab", "b"), (-7, -1.5, 0, 3, 2**40)
"""The values of both fields of a sequence; the texts are in the order of their bytes."""


def generate(dice: random.Random) -> list[Event]:
    """Return events of a few keys, of which none has the sequence of another, and some that lack a field."""
    moments = list(itertools.product(TIMES, NUMBERS))
    events: list[Event] = []
    for key in range(4):
        for time, number in dice.sample(moments, dice.randrange(1, 9)):
            op = "d" if dice.random() < 0.25 else "u"
            events.append({"k": key, "ts": time, "s": {"lsn": number}, "op": op, "n": len(events)})
    events += [{"k": 1, "ts": "b", "s": {"lsn": None}, "op": "u", "n": -1}, {"k": 1, "s": {"lsn": 9}, "n": -2}]
    return events


def expected_versions(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return the number, the start and the end of each version."""
    found = []
    for key in range(4):
        own = {(e["ts"], e["s"]["lsn"]): e for e in events if e["k"] == key and e["n"] >= 0}
        for at, until in itertools.pairwise([*sorted(own), None]):
            if own[at]["op"] == "u":
                found.append((own[at]["n"], at, until))
    return sorted(found)


def cut(dice: random.Random, events: list[Event]) -> list[list[Event]]:
    """Return the events in any order, as one to four loads."""
    shuffled = dice.sample(events, len(events))
    places = sorted(dice.sample(range(1, len(events)), dice.randrange(4)))
    return [shuffled[start:end] for start, end in itertools.pairwise([0, *places, len(events)])]


def moment(record: Any) -> tuple[Any, ...] | None:
    """Return the values of a sequence; in Iceberg, fractions and integers of one field have a column each."""
    if record is None:
        return None
    (number,) = (each for each in record["s"].values() if each is not None)
    return record["ts"], number


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", range(4 if FULL in os.environ else 2))
def test_every_cut_leads_to_the_same_rows(tmp_path: Path, table_format: str, history: bool, seed: int) -> None:
    dice = random.Random(seed)
    events = generate(dice)
    versions = expected_versions(events)
    into = str(tmp_path / "t")
    words: dict[str, Any] = {"key": ["k"], "sequence_by": ["ts", "s.lsn"], "delete_when": "op = 'd'"}
    if table_format == "iceberg":
        into, words["catalog"] = "a.t", str(tmp_path / "lake.db")
    for number, load in enumerate(cut(dice, events)):
        file = tmp_path / f"{number}.json"
        file.write_text("".join(f"{json.dumps(each)}\n" for each in load))
        done = widen.ingest(file, into, history=history, verify=True, engine="local", **words)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification.places
    if table_format == "iceberg":
        found = to_table_name(into, words["catalog"]).find()
        rows = [] if found is None else found.scan().to_arrow().to_pylist()
    else:
        rows = widen.Table(into).to_arrow().to_pylist()
    if history:
        seen = [(row["n"], moment(row["_valid_from"]), moment(row["_valid_to"])) for row in rows]
        assert sorted(seen) == versions
        assert all(row["_is_current"] is (row["_valid_to"] is None) for row in rows)
    else:
        assert sorted(row["n"] for row in rows) == [number for number, _, until in versions if until is None]


def test_the_table_records_the_fields_in_their_order() -> None:
    rules = parse_key_rules(["id"], ["ts", "source.lsn"])
    assert KeyRules.from_property(rules.to_property()) == rules
    assert '"sequenceBy":["ts","source.lsn"]' in rules.to_property()
    assert '"sequenceBy":"ts"' in parse_key_rules(["id"], ["ts"]).to_property()
    assert not rules.is_same_key(parse_key_rules(["id"], ["source.lsn", "ts"]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "at least one field"),
        (["ts", "TS"], "each field once"),
        (["s", "s.lsn"], "no field inside of another one"),
        (["ts", "id"], "must not be one of the keys"),
        (["ts", 7], "path of keys"),
    ],
)
def test_sequences_that_cannot_be_are_refused(given: list[Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=f"(?i){words}"):
        parse_key_rules(["id"], given)


def test_a_list_in_one_text_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"id": 1, "ts": 1, "lsn": 2}\n')
    with pytest.raises(InvalidOption, match="--sequence-by ts --sequence-by lsn"):
        widen.ingest(file, tmp_path / "t", key=["id"], sequence_by="ts,lsn", engine="local")
