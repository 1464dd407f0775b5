"""What calls on a table return is named, and is shown on one screen."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import widen
from widen import IngestResult
from widen.evolution.plan import Plan
from widen.model.types import StructType
from widen.schema.operations import DropColumn
from widen.table.results import History, HistoryEntry, TableChange

MANY = Plan(tuple(DropColumn((f"column_{n}",)) for n in range(100)), StructType(()))


def test_the_history_names_what_a_commit_did(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int").set_properties({"a": "b"})
    newest, first = table.history()
    assert (newest.version, newest.operation, first.version, first.operation) == (
        1,
        "SET TBLPROPERTIES",
        0,
        "CREATE TABLE",
    )
    assert newest.parameters == {"properties": '{"a":"b"}'}
    version, timestamp_ms, info = newest
    assert (version, timestamp_ms, info) == (1, newest.timestamp_ms, newest.info)


def test_a_restore_says_what_it_did(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int").set_properties({"a": "b"})
    change = table.restore(0)
    assert (change.operation, change.version, change.table is table) == ("RESTORE", 2, True)
    assert change.metrics["numRestoredFiles"] == 0
    assert "numRestoredFiles" in change._repr_html_()


def test_a_long_history_fits_one_screen() -> None:
    entry = HistoryEntry(7, 86_400_000, {"operation": "MERGE"})
    assert entry.timestamp == datetime(1970, 1, 2, tzinfo=timezone.utc)
    assert repr(entry) == "HistoryEntry(7, 1970-01-02 00:00:00Z, 'MERGE')"
    text = repr(History([entry] * 100))
    assert text.splitlines()[:2] == ["History of 100 versions", "  7  1970-01-02 00:00:00Z  MERGE"]
    assert (len(text.splitlines()), text.endswith("…")) == (22, True)
    assert History([entry])._repr_html_().count("<tr>") == 2


def test_a_long_plan_fits_one_screen() -> None:
    lines = repr(MANY).splitlines()
    assert lines[0] == f"Plan(100 operations, hash={MANY.hash[:12]})"
    assert (len(lines), max(map(len, lines)) <= 100) == (22, True)
    assert MANY._repr_html_().count("<tr>") == 21


def test_a_result_of_an_ingestion_fits_one_screen() -> None:
    result = IngestResult(3, MANY, records=5, files=1, left_out=tuple(map(str, range(1000))))
    lines = repr(result).splitlines()
    assert lines[0] == "IngestResult(version=3, records=5, corrupt=0, quarantined=0, files=1)"
    assert len(lines) == 23
    assert "<td>records</td><td>5</td>" in result._repr_html_()


def test_a_table_is_shown_with_its_columns(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int not null, `<b>` string")
    assert repr(table) == f"Table({str(tmp_path)!r}, version=0)"
    assert "<td>&lt;b&gt;</td><td>string</td><td>True</td>" in table._repr_html_()


def test_a_change_is_a_value() -> None:
    assert TableChange("t", "DELETE", 4, {"numDeletedRows": 1}).metrics["numDeletedRows"] == 1
