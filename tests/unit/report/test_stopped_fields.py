"""Fields that have stopped arriving, and the fields that look like their new names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.report.build_report import build_report
from widen.report.report_summary import Status, summarize_report
from widen.report.table_report import Report


def report_of(place: Path, *loads: list[dict[str, Any]]) -> Report:
    """Return the report of a table with these loads."""
    for number, records in enumerate(loads):
        file = place / f"{number}.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        widen.ingest(file, place / "t", engine="local")
    return build_report(widen.Table(str(place / "t")).snapshot)


OLD = [{"id": 1, "phone": "0151", "n": 5}, {"id": 2, "phone": "0170", "n": 7}]
NEW = [{"id": 3, "phone_number": "0160", "m": 9_000, "n": 5}]


def test_a_renamed_field_is_named_with_its_new_name(tmp_path: Path) -> None:
    report = report_of(tmp_path, OLD, OLD, NEW, NEW, NEW)
    assert [(each.source, each.last.version, each.loads, each.successor) for each in report.stopped] == [
        (("phone",), 1, 3, ("phone_number",))
    ]
    [decision] = [each for each in summarize_report(report).decisions if each.subject == "phone"]
    assert (decision.brief, decision.status) == ("stopped arriving", Status.WATCH)
    assert decision.reason == (
        "phone had its last value in version 1, and none in the 3 loads since. "
        "phone_number came at that time, with the same type and values in the same range: likely its new name."
    )
    [hint] = decision.commands
    assert "coalesce(phone_number, phone) AS phone_number" in hint.command
    assert report.to_value()["stopped"][0]["successor"] == "phone_number"


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param([OLD, OLD, NEW, NEW], id="too few loads"),
        pytest.param([OLD, NEW, OLD, NEW, NEW, NEW], id="a field that only some loads have"),
        pytest.param([OLD, OLD, NEW, NEW, [*NEW, *OLD]], id="a field that is back"),
    ],
)
def test_a_field_that_may_come_again_is_not_named(tmp_path: Path, loads: list[list[dict[str, Any]]]) -> None:
    assert report_of(tmp_path, *loads).stopped == ()


def test_a_field_with_other_values_is_no_new_name(tmp_path: Path) -> None:
    old, new = [{"id": 1, "a": 5}], [{"id": 2, "b": 900}]
    assert [each.successor for each in report_of(tmp_path, old, old, new, new, new).stopped] == [()]


def test_a_field_of_several_columns_that_stops_does_not_look_repaired(tmp_path: Path) -> None:
    mixed, other = [{"id": 1, "v": 1}, {"id": 2, "v": "x"}], [{"id": 3}]
    decisions = summarize_report(report_of(tmp_path, mixed, mixed, other, other, other, other)).decisions
    assert [(each.subject, each.brief) for each in decisions] == [("v", "stopped arriving")]
