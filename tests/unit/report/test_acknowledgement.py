"""Decisions that are acknowledged: recorded in the table, left out of its report, and asked again if they recur."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from support.command_line import run, run_json
from support.drift_log import data, event, info, write_drift
from support.log_table import write_commit
from widen.errors import CorruptMetadata
from widen.iceberg.catalog import to_table_name
from widen.report.build_report import build_report
from widen.report.iceberg_report import build_iceberg_report
from widen.report.report_summary import find_open_subjects, summarize_report
from widen.table import IcebergTable, Table


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(write_drift(tmp_path / "orders"))


def decisions(place: str) -> list[str]:
    return find_open_subjects(build_report(Table(place).snapshot))


def test_every_decision_can_be_acknowledged(place: str) -> None:
    asked = decisions(place)
    assert asked
    before = run_json("report", place)
    assert before["summary"]["status"] != "ok"
    words = [word for subject in asked for word in ("--acknowledge", subject)]
    after = run_json("report", place, *words)
    assert after["summary"]["decisions"] == []
    assert after["summary"]["status"] == "ok", after["summary"]["checks"]
    assert [each["subject"] for each in after["summary"]["acknowledged"]] == sorted(asked)
    assert all(each["by"] and each["time"].endswith("Z") for each in after["summary"]["acknowledged"])
    assert after["version"] == before["version"] + 1
    assert "acknowledged by " in run("report", place).stdout
    done = run("report", place, "--acknowledge", asked[0])
    assert done.exit_code == 1
    assert "The report asks for no decision" in done.stderr


def test_an_unknown_decision_is_refused(place: str) -> None:
    before = Table(place).version
    done = run("report", place, "--acknowledge", "nothing")
    assert done.exit_code == 1
    assert f"The report asks about {decisions(place)[0]}" in done.stderr
    assert Table(place).version == before


def test_a_new_occurrence_asks_again(place: str) -> None:
    subject = next(each for each in decisions(place) if not each.startswith("_"))
    table = Table(place).acknowledge(subject, by="ann")
    assert subject not in decisions(place)
    metadata = _metadata(place)
    schema = json.loads(str(metadata["schemaString"]))
    more = {"name": f"{subject}_more", "type": "string", "nullable": True}
    schema["fields"].append({**more, "metadata": {"evolved_from": subject}})
    time_ms, events = table.snapshot.timestamp_ms + 60_000, [event([more["name"]], "string", "conflict", "U8", "x", 1)]
    done = info("WRITE", time_ms, mode="Append", events=json.dumps(events))
    action = {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    write_commit(Path(place), table.version + 1, done, action, data("more.parquet", 2, 9))
    assert subject in decisions(place) or more["name"] in decisions(place)


def _metadata(place: str) -> dict[str, object]:
    logs = sorted(Path(place, "_delta_log").glob("*.json"))
    lines = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    return [line["metaData"] for line in lines if "metaData" in line][-1]  # type: ignore[no-any-return]


def test_a_damaged_record_is_named(place: str) -> None:
    Table(place).set_properties({"widen.acknowledged.tags": "{"})
    with pytest.raises(CorruptMetadata, match=r"widen\.acknowledged\.tags"):
        build_report(Table(place).snapshot)


def test_an_iceberg_table_records_it_too(tmp_path: Path) -> None:
    catalog = str(tmp_path / "c.db")
    name = to_table_name("shop.orders", catalog)
    name.create_namespace()
    name.catalog.open().create_table(name.identifier, Schema(NestedField(1, "id", LongType())))
    table = IcebergTable("shop.orders", catalog).acknowledge("tags", by="ann")
    report = build_iceberg_report(name.load(), "shop.orders")
    assert [(each.subject, each.by) for each in report.acknowledged] == [("tags", "ann")]
    assert summarize_report(report).to_value()["acknowledged"][0]["by"] == "ann"
    assert "widen.acknowledged.tags" in table.properties
    done = run("report", "shop.orders", "--catalog", catalog, "--acknowledge", "tags")
    assert done.exit_code == 1
    assert "asks for no decision" in done.stderr
