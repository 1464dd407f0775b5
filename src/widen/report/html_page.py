"""The report as one page of HTML that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from widen.report import text_format
from widen.report.report_model import GRADES, IntervalRecord, Report, ReportColumn

MAX_CHART_WIDTH, PLACE_WIDTH, CHART_HEIGHT, STRIP_WIDTH = 1100, 92, 120, 96
GAP = 0.25
"""How much of its place a bar leaves free."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval in the chart.

    Args:
        left: In units of the drawing.
        width: Likewise.
        height: Likewise, from the ground.
        marks: The grades of its changes, gravest first, each once.
        label: What it says to those who point at it or cannot see it.
    """

    left: float
    width: float
    height: float
    marks: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Strip:
    """From which interval to which one a column was written, along all of them.

    Args:
        left: In units of the drawing.
        width: Likewise.
        label: The same in words.
    """

    left: float
    width: float
    label: str


def render_page(report: Report) -> str:
    """Return the report as a document of HTML."""
    template = _environment().get_template("page.html.j2")
    width = min(MAX_CHART_WIDTH, PLACE_WIDTH * max(len(report.intervals), 1))
    shown = [interval for interval in report.intervals if interval.schema_changes]
    bars = list(_bars(report.intervals, width))
    is_there = {
        "has_distinct": any(column.distinct is not None for column in report.columns),
        "has_samples": any(column.samples for column in report.columns),
        "has_quarantined": any(interval.quarantined for interval in report.intervals),
    }
    facts = {"strips": _strips(report), "most": _most(report.intervals), **is_there}
    return template.render(report=report, bars=bars, width=width, shown=shown, **facts)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("widen.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(text_format=text_format, grades=GRADES)
    environment.globals.update(height=CHART_HEIGHT, strip_width=STRIP_WIDTH)
    return environment


def _most(intervals: tuple[IntervalRecord, ...]) -> int:
    return max((interval.records or 0 for interval in intervals), default=0)


def _bars(intervals: tuple[IntervalRecord, ...], width: int) -> Iterator[Bar]:
    most = _most(intervals) or 1
    place = width / max(len(intervals), 1)
    for at, interval in enumerate(intervals):
        records = interval.records or 0
        marks = tuple(grade for grade in reversed(GRADES) if any(c.grade == grade for c in interval.told))
        moment = f"version {interval.moment.version}, {text_format.moment_text(interval.moment.time_ms)} UTC"
        written = text_format.count_noun(interval.records, "record")
        label = f"{moment}: {written}, {text_format.count_noun(len(interval.told), 'change')}"
        height = max(CHART_HEIGHT * records / most, 1.5) if records else 0
        yield Bar(at * place + place * GAP / 2, place * (1 - GAP), height, marks, label)


def _strips(report: Report) -> dict[ReportColumn, Strip]:
    places = {interval.moment.version: at for at, interval in enumerate(report.intervals)}
    step = STRIP_WIDTH / max(len(places), 1)
    found = {}
    for column in report.columns:
        if column.first is None or column.last is None:
            continue
        first, last = places[column.first.version], places[column.last.version]
        spoken = f"version {column.first.version} to version {column.last.version}"
        found[column] = Strip(first * step, (last - first + 1) * step, f"written from {spoken}")
    return found
