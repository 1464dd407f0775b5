"""Generated events of keys whose versions only some fields open, what they must lead to, and their loads."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import widen
from widen.iceberg.catalog import to_table_name

Event = dict[str, Any]
Version = tuple[int, int, int | None]
"""The number of an event, and the start and the end of its validity."""

STATUS: tuple[Any, ...] = (None, "new", "paid")
NESTED: tuple[Any, ...] = (None, {"x": 1}, {"x": None}, {"x": 1, "tags": ["a"]}, {"x": 1, "tags": ["a", None]})
DRIFTING: tuple[Any, ...] = (None, 1, 1.0, 2.5, "1", "new", [1], [1.0], [1, "a"], {"x": 1.0}, {"x": 1}, {"x": "1"}, {})

NUMBERS = [
    {"k": 90 + at, "at": 0, "op": "u", "n": -1 - at, "status": each} for at, each in enumerate([0.5, [0.5], {"x": 0.5}])
]
"""Events to load before values that drift: where a field begins with texts or integers, texts hold other numbers."""


def generate(dice: random.Random, values: tuple[Any, ...]) -> list[Event]:
    """Return events of a few keys, some with the sequence of another and some repeated."""
    events: list[Event] = []
    for key in range(5):
        for _ in range(dice.randrange(1, 12)):
            op = "d" if dice.random() < 0.15 else "u"
            status = dice.choice(values)
            events.append({"k": key, "at": dice.randrange(14), "op": op, "status": status, "n": len(events)})
    events += dice.sample(events, 3)
    return [{name: each for name, each in event.items() if each is not None} for event in events]


def canonical(value: Any) -> Any:
    """Return a value as its kind and its JSON without nulls in objects: equal numbers are one, true is not 1."""
    if isinstance(value, dict):
        return json.dumps({name: canonical(each) for name, each in sorted(value.items()) if each is not None})
    if isinstance(value, list):
        return json.dumps(list(map(canonical, value)))
    return json.dumps(float(value) if isinstance(value, (int, float)) else value)


def is_same(one: Event, other: Event, tracked: tuple[str, ...]) -> bool:
    return all(canonical(one.get(name)) == canonical(other.get(name)) for name in tracked)


def expected_rows(events: list[Event], tracked: tuple[str, ...]) -> tuple[list[Version], list[tuple[int, int]]]:
    """Return the versions, and the number and the time of each event that another one has updated."""
    versions: list[Version] = []
    updated: list[tuple[int, int]] = []
    for key in {event["k"] for event in events}:
        moments: dict[int, Event | None] = {}
        for at in sorted({event["at"] for event in events if event["k"] == key}):
            same = [event for event in events if (event["k"], event["at"]) == (key, at)]
            gone = any(event["op"] == "d" for event in same)
            moments[at] = None if gone else max(same, key=lambda event: json.dumps(event, sort_keys=True))
        last: Event | None = None
        for at, event in moments.items():
            if event is not None and last is not None and is_same(last, event, tracked):
                number, since, _ = versions.pop()
                updated.append((number, last["at"]))
                versions.append((event["n"], since, None))
            else:
                if last is not None:
                    versions.append((*versions.pop()[:2], at))
                if event is not None:
                    versions.append((event["n"], at, None))
            last = event
    return sorted(versions), sorted(updated)


def cut(dice: random.Random, events: list[Event], most: int = 6) -> list[list[Event]]:
    """Return the events in any order, in one load or several."""
    shuffled = dice.sample(events, len(events))
    places = sorted(dice.sample(range(1, len(events)), min(dice.randrange(most), len(events) - 1)))
    return [shuffled[start:end] for start, end in itertools.pairwise([0, *places, len(events)])]


class Loads:
    """Loads events into a table, proves each load, and reads the versions."""

    def __init__(self, folder: Path, table_format: str, **words: Any) -> None:
        self.folder, self.numbers = folder, itertools.count()
        self.into, self.catalog = str(folder / "t"), None
        if table_format == "iceberg":
            self.into, self.catalog = "a.t", str(folder / "lake.db")
        self.words = {"key": ["k"], "sequence_by": "at", "delete_when": "op = 'd'", "history": True, **words}

    def load(self, events: list[Event], **words: Any) -> Any:
        file = self.folder / f"{next(self.numbers)}.json"
        file.write_text("".join(f"{json.dumps(each)}\n" for each in events))
        given = {"verify": True, "engine": "local", **self.words, **words}
        done = widen.ingest(file, self.into, **({"catalog": self.catalog} if self.catalog else {}), **given)
        if done.verification is not None:
            assert done.verification.is_clean, done.verification.places
        return done

    def rows(self) -> list[dict[str, Any]]:
        if self.catalog:
            found = to_table_name(self.into, self.catalog).find()
            assert found is not None
            return list(found.scan().to_arrow().to_pylist())
        return list(widen.Table(self.into).to_arrow().to_pylist())

    def versions(self) -> tuple[list[Version], list[tuple[int, int]]]:
        rows = self.rows()
        assert all(row["_is_current"] is (row["_valid_to"] is None) for row in rows)
        valid = [row for row in rows if row["_valid_from"] != row["_valid_to"]]
        updated = sorted((row["n"], row["at"]) for row in rows if row["_valid_from"] == row["_valid_to"])
        assert all(row["_valid_from"] == row["at"] for row in rows if row["_valid_from"] == row["_valid_to"])
        return sorted((row["n"], row["_valid_from"], row["_valid_to"]) for row in valid), updated
