"""Fields that drifted, what made their columns, and which numbers are exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.drift_log import data, event, field, info, schema, write_drift
from support.log_table import write_commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.report.build_report import build_report
from widen.report.table_report import Report


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """The table of orders, and one more interval: ``tags`` has its source, and two records were quarantined."""
    table = write_drift(tmp_path / "orders")
    wide = field("total_string", "string", **{"widen.source": ["total"], "widen.evolvedFrom": "total"})
    columns = (field("total", "double", **{"widen.source": ["total"]}), wide, field("tags", "string"))
    events = [event(["total_string"], "string", "conflict", "U8", "12.50 EUR", 7) | {"source": ["total"]}]
    commit = info("WRITE", 0, events=json.dumps(events))
    commit["commitInfo"]["operationMetrics"] = {"numQuarantinedRecords": "2"}
    write_commit(
        table, 3, commit, schema(*columns), data("c.parquet", 10, 5, nullCount={"total": 3, "total_string": 3})
    )
    return build_report(open_snapshot(LogStore(str(table))))


def test_a_field_with_several_columns_is_a_family(report: Report) -> None:
    (family,) = report.families
    assert family.source == ("total",)
    assert [(c.path, c.type, c.written) for c in family.columns] == [
        (("total",), "double", 36),
        (("total_string",), "string", 7),
    ]
    assert [(item.version, item.values) for item in family.history] == [(0, (10, 0)), (1, (19, 0)), (3, (7, 0))]
    plain, evolved = family.columns
    assert plain.origin is None
    assert evolved.origin is not None
    reason = evolved.origin.reason
    assert (evolved.origin.moment.version, reason.rules, reason.count, reason.sample) == (3, ("U8",), 7, "12.50 EUR")
    assert (reason.file, reason.position) == ("file:/in/day%202/orders.json", 6)


def test_an_interval_tells_what_was_quarantined_and_its_events(report: Report) -> None:
    assert [(i.quarantined, i.events) for i in report.intervals] == [(None, 0), (None, 2), (None, 0), (2, 1)]


def test_the_notes_say_which_numbers_are_exact(report: Report) -> None:
    assert report.notes[0].startswith("The numbers are from the log; min and max truncate strings to 32 characters.")
    assert not any("no longer in the log" in note for note in report.notes)
    assert any("later intervals may have more" in note for note in report.notes)
