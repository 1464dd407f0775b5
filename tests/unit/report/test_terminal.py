"""Reports on a terminal of any width."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from support.drift_log import HOSTILE, write_drift
from widen.log.loads import Load, LoadedFile
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.report.build_report import build_report, read_history
from widen.report.terminal import history_parts, loads_parts, report_parts, rows_parts, summarize_table, summary_parts


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return open_snapshot(LogStore(str(write_drift(tmp_path / "orders", HOSTILE))))


def render(parts: Iterable[RenderableType], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_report(snapshot: Snapshot) -> None:
    text = render(report_parts(build_report(snapshot)))
    assert "30 rows · 2 files · 4.0 kB" in text
    assert "element ← tags" in text
    assert "int → double" in text
    assert "day 2/orders.json:6" in text
    assert "created the table with 2 columns" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120, 300])
def test_no_line_is_wider_than_the_terminal(snapshot: Snapshot, width: int) -> None:
    text = render(report_parts(build_report(snapshot)), width)
    assert max(map(len, text.splitlines())) <= width


def test_a_narrow_terminal_shows_shares_without_bars(snapshot: Snapshot) -> None:
    assert "█" in render(report_parts(build_report(snapshot)), 140)
    assert "█" not in render(report_parts(build_report(snapshot)), 80)


def test_the_history_in_words(snapshot: Snapshot) -> None:
    text = render(history_parts("orders", read_history(snapshot)))
    assert "widened total from int to double" in text
    assert "added tags_array_string array<string>" in text
    assert "created the table with 2 columns" in text


def test_the_outline(snapshot: Snapshot) -> None:
    text = render(summary_parts(summarize_table(snapshot)))
    assert "reader 3, writer 7" in text
    assert "typeWidening" in text
    assert "labels" in text


def test_rows_keep_their_numbers_and_hide_no_escape() -> None:
    rows = ['{"id":9007199254740993,"price":1.10,"note":null,"text":"a\\u001b[2J"}']
    text = render(rows_parts(["id", "price", "note", "text"], rows))
    assert text.splitlines()[-1].split() == ["9007199254740993", "1.10", "·", "a\\x1b[2J"]


def test_rows_that_are_too_wide_stand_below_each_other() -> None:
    text = render(rows_parts(["a", "b"], ['{"a":"%s","b":null}' % ("x" * 90)]), 60)
    assert text.startswith("row 1\n  a")
    assert text.count("x") == 90


def test_loads_fit_a_narrow_terminal_without_counts_that_are_all_zero() -> None:
    file = LoadedFile("file:/landing/2026-11-23/orders-000001.jsonl", 2048, 0)
    loads = [Load(version=version, loaded_ms=1_700_000_000_000, files=(file,), records=16) for version in range(2)]
    text = render(loads_parts("orders", loads, lists_files=False), 80)
    assert "version   time (UTC)            files   records   first file" in text
    assert text.count("2023-11-14 22:13:20") == 2
    assert text.count(" …026-11-23/orders-000001.jsonl") == 2
    assert text.count("\n") == 6
    for width in (60, 120):
        listed = render(loads_parts("orders", loads, lists_files=True), width)
        assert (listed.count(file.path), listed.count("\n")) == (2, 6)
    odd = Load(
        version=2, loaded_ms=1_700_000_000_000, files=(file,), records=123_456_789, corrupt=3, quarantined_records=4
    )
    narrow = render(loads_parts("orders", [*loads, odd], lists_files=False), 50)
    assert narrow.count("2023-11-14") == 3
