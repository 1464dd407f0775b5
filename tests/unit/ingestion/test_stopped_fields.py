"""The event of a field that stops arriving: from the load with which reports begin to name it, with its new name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import widen
from support.command_line import run_json
from support.json_schema import SCHEMAS, breaches
from widen.ingestion.event_sinks import URGENT
from widen.report import build_report

FORMATS = pytest.mark.parametrize("form", ["delta", "iceberg"])


class Loads:
    """A table, and the events of fields that stopped, by load."""

    def __init__(self, folder: Path, form: str, **words: Any) -> None:
        self.folder, self.words, self.form = folder, words, form
        self.into = str(folder / "t") if form == "delta" else "db.t"
        self.catalog = {} if form == "delta" else {"catalog": str(folder / "c.db")}
        self.stopped: list[list[Any]] = []

    def load(self, *records: Any) -> None:
        (self.folder / "a.json").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        events = list[Any]()
        words = {"engine": "local", "on_event": events.append, **self.catalog, **self.words}
        widen.ingest(self.folder / "a.json", self.into, **words)
        assert events[-1].kind == "load"
        self.stopped.append([each.to_value() for each in events if each.kind == "stopped"])
        assert not [breach for each in self.stopped[-1] for breach in breaches(SCHEMAS["events"], each)]

    def names(self) -> list[list[str]]:
        return [[each["source"] for each in load] for load in self.stopped]

    def report(self) -> list[Any]:
        catalog = [f"--catalog={each}" for each in self.catalog.values()]
        return list(run_json("report", self.into, *catalog)["stopped"])


@FORMATS
@pytest.mark.parametrize("words", [{}, {"key": ["id"]}])
def test_one_load_says_that_a_field_stopped(tmp_path: Path, form: str, words: Any) -> None:
    loads = Loads(tmp_path, form, **words)
    told = []
    for number in range(4):
        loads.load({"id": number, "old": 10 + number, "r": {"x": 1}, "sparse": number if number == 1 else None})
    for number in range(4, 10):
        loads.load({"id": number, "new": 10 + number % 4, "r": {"x": 1}})
        told.append([each["source"] for each in loads.report()])
    assert loads.names() == [*[[]] * 6, ["old"], *[[]] * 3]
    (event,) = loads.stopped[6]
    (shown,) = loads.report()
    assert told == [[], [], *[["old"]] * 4]
    assert (event["last"], event["loads"], event["successor"]) == (shown["last"], 3, "new")
    assert shown["successor"] == "new"


@FORMATS
def test_a_field_of_a_record_that_comes_back_stops_again(tmp_path: Path, form: str) -> None:
    loads = Loads(tmp_path, form)
    for number in range(12):
        is_there = number < 2 or 5 <= number <= 7
        loads.load({"id": number, "r": {"x": 1, **({"y": 2} if is_there else {})}})
    assert loads.names() == [["r.y"] if number in (4, 10) else [] for number in range(12)]


@FORMATS
def test_fields_that_some_records_have_and_loads_without_records_say_nothing(tmp_path: Path, form: str) -> None:
    loads = Loads(tmp_path, form)
    for number in range(12):
        loads.load({"id": number, **({"sometimes": 1} if number % 3 == 0 else {})})
    assert loads.names() == [[]] * 12


def test_an_error_of_the_search_fails_no_load(tmp_path: Path) -> None:
    loads = Loads(tmp_path, "delta")
    loads.load({"id": 1, "v": 1})
    with mock.patch.object(build_report, "read_commits", side_effect=OSError("gone")):
        loads.load({"id": 2})
    assert loads.names() == [[], []]


def test_webhooks_get_it_whatever_the_grade() -> None:
    assert "stopped" in URGENT
