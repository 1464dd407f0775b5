"""The summary of a report: what is urgent, what can be done about it, and that quiet columns can go back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.wide_log import write_wide
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.report.build_report import build_report
from widen.report.html_page import load_chart, render_page
from widen.report.report_summary import Status, summarize_report
from widen.report.stopped_field import VersionTime
from widen.report.table_report import IntervalCount, IntervalRecord, Report
from widen.report.text_format import interval_text


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Report:
    place = tmp_path_factory.mktemp("wide") / "shop orders"
    return build_report(open_snapshot(LogStore(str(write_wide(place, columns=60)))))


def with_intervals(report: Report, *intervals: IntervalRecord) -> Report:
    return replace(report, intervals=intervals, columns=(), families=())


def load(version: int, rows: int, **more: int) -> IntervalRecord:
    return IntervalRecord(VersionTime(version, 0), "WRITE", rows, **{"corrupt": 0, "files": 1, "size_bytes": 1, **more})


def test_a_table_without_trouble_is_healthy(wide: Report) -> None:
    summary = summarize_report(with_intervals(wide, load(0, 10), load(1, 10)))
    assert (summary.status, summary.decisions, summary.recent_changes) == (Status.OK, (), 0)
    assert [check.text for check in summary.checks] == [
        "last load on 1970-01-01: 10 records",
        "every record of the last 2 loads could be read",
        "no record of the last 2 loads is in quarantine",
        "no change of columns in the last 2 loads",
    ]


def test_a_table_without_loads_has_nothing_else_to_say(wide: Report) -> None:
    summary = summarize_report(with_intervals(wide))
    assert [(check.text, check.status) for check in summary.checks] == [("no interval wrote a record", Status.WATCH)]


def test_rows_that_are_rewritten_are_no_load(wide: Report) -> None:
    fold = replace(load(1, 983, corrupt=17), operation="FOLD COLUMN")
    report = with_intervals(wide, load(0, 500, corrupt=17), fold, load(2, 500))
    chart = load_chart(report.intervals)
    assert (chart.most, report.corrupt) == (500, 17)
    assert [bar.label.partition("UTC: ")[2] for bar in chart.bars] == [
        "483 records, 0 changes, 17 corrupt lines",
        "0 records, 0 changes",
        "500 records, 0 changes",
    ]
    assert summarize_report(report).recent_loads == 2
    assert "<dt>loads</dt><dd>2</dd>" in render_page(report)


def test_rounded_numbers_are_shown_where_there_are_any(wide: Report) -> None:
    intervals = load(0, 10, rounded=3), load(1, 10)
    assert interval_text(intervals[0])[1] == "3 numbers rounded to double"
    check = summarize_report(with_intervals(wide, *intervals)).checks[-1]
    assert (check.text, check.status) == ("3 numbers of the last 2 loads rounded to double, as asked", Status.OK)


@pytest.mark.parametrize(("replayed", "left"), [(0, 3), (2, 1), (3, 0)])
def test_replayed_records_are_no_longer_quarantined(wide: Report, replayed: int, left: int) -> None:
    parameters = {"queryId": "widen-replay-7d0c", "epochId": "0"}
    replay = replace(load(1, replayed, quarantined=left), parameters=parameters)
    summary = summarize_report(with_intervals(wide, load(0, 30, quarantined=3), replay, load(2, 5)))
    check = summary.checks[2]
    assert (check.status is Status.ACT, f" {left} record" in f" {check.text}") == (left > 0, left > 0)
    assert [decision.brief.split()[0] for decision in summary.decisions] == [str(left)] * (left > 0)


def test_a_line_that_is_not_a_record_counts_as_none(wide: Report) -> None:
    interval = load(0, 30, corrupt=1)
    assert (interval.records, interval_text(interval)[0]) == (
        29,
        "wrote 29 records in 1 file, 1 B; 1 line kept whole: not a record",
    )
    assert summarize_report(with_intervals(wide, interval)).checks[0].text == "last load on 1970-01-01: 29 records"


def test_one_line_or_record_is_not_a_plural(wide: Report) -> None:
    summary = summarize_report(with_intervals(wide, load(0, 30, corrupt=1, quarantined=1)))
    assert [check.text for check in summary.checks[1:3]] == [
        "1 of 30 lines (3 %) of the last load is not a record",
        "1 record of the last load is in quarantine",
    ]
    assert summary.decisions[0].reason == "1 record did not fit the fixed columns of the table."


@pytest.mark.parametrize(
    ("intervals", "status"),
    [
        ([load(0, 1000), load(1, 1000, corrupt=10)], Status.ACT),
        ([load(0, 1000, corrupt=10), load(1, 1000, corrupt=9)], Status.WATCH),
        ([load(0, 1000, corrupt=1000), load(1, 1000)], Status.WATCH),
        ([load(0, 5, quarantined=1)], Status.ACT),
        ([load(0, 5, quarantined=1), *(load(n, 5) for n in range(1, 8))], Status.OK),
        ([], Status.WATCH),
    ],
)
def test_how_urgent_lost_records_are(wide: Report, intervals: list[IntervalRecord], status: Status) -> None:
    assert summarize_report(with_intervals(wide, *intervals)).status is status


def test_every_decision_has_a_command_to_copy(wide: Report) -> None:
    decisions = {decision.subject: decision for decision in summarize_report(wide).decisions}
    assert list(decisions) == ["Quarantine", "_corrupt_record", "total", "tags", "discount", "channel", "weight"]
    quoted = f"'{wide.location}'"
    assert [hint.command for hint in decisions["discount"].commands] == [
        f"widen fold {quoted} discount_string --dry-run",
        "--pin discount=text",
    ]
    assert [hint.command for hint in decisions["tags"].commands][-1] == "--pin tags=json"
    assert decisions["Quarantine"].commands[1].command.endswith(f"orders_quarantine' --into {quoted}")
    assert decisions["total"].brief == "int and string"
    assert decisions["discount"].brief == "double and string: looks repaired"


def with_newest(report: Report, name: str, types: tuple[str, ...], *counts: int) -> Report:
    """Return a report of one field with columns of these types, and the values of its newest interval."""
    family = next(family for family in report.families if family.source == (name,))
    columns = tuple(replace(column, type=each) for column, each in zip(family.columns, types, strict=True))
    return replace(report, families=(replace(family, columns=columns, history=(IntervalCount(33, counts),)),))


@pytest.mark.parametrize(
    ("types", "counts", "reason", "pin"),
    [
        (("int", "string"), (7, 2), "int and string, and go on arriving as such.", "text"),
        (("int", "string"), (0, 2), "int and string. The newest ones are only string.", "text"),
        (("timestamp", "bigint"), (7, 0), "timestamp and bigint. The newest ones are only timestamp.", "timestamp"),
        (("timestamp", "double"), (7, 2), "timestamp and double, and go on arriving as such.", "text"),
    ],
)
def test_what_arrives_and_which_pin_holds_it(
    wide: Report, types: tuple[str, ...], counts: tuple[int, ...], reason: str, pin: str
) -> None:
    summary = summarize_report(with_newest(wide, "total", types, *counts))
    decision = next(each for each in summary.decisions if each.subject == "total")
    assert decision.reason == f"Values are {reason} Keep the columns, or have the source repaired."
    assert decision.commands[-1].command == f"--pin total={pin}"


def test_the_summary_is_json(wide: Report) -> None:
    value = summarize_report(wide).to_value()
    assert (value["status"], value["recentLoads"], value["recentChanges"]) == ("watch", 7, 1)
    assert value["lastChanges"][0]["column"] == "weight_string"
    assert value["decisions"][0]["commands"][0]["when"] == "To see them"
