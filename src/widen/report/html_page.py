"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from widen.report import text_format
from widen.report.report_model import GRADES, IntervalRecord
from widen.report.table_report import Report, ReportColumn

MAX_CHART_WIDTH, SLOT_WIDTH, CHART_HEIGHT, STRIP_WIDTH = 1100, 92, 120, 96
GAP = 0.25
"""The share of its slot that a bar leaves free."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One interval in the chart.

    Args:
        left: Its left edge in SVG units.
        width: Its width in SVG units.
        height: Its height above the baseline in SVG units.
        marks: The distinct grades of its changes, most severe first.
        label: Its tooltip and accessible name.
    """

    left: float
    width: float
    height: float
    marks: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The range of intervals that wrote a column, drawn over all intervals.

    Args:
        left: Its left edge in SVG units.
        width: Its width in SVG units.
        label: The range in words.
    """

    left: float
    width: float
    label: str


def render_page(report: Report) -> str:
    """Return the report as an HTML document."""
    template = _environment().get_template("page.html.j2")
    width = min(MAX_CHART_WIDTH, SLOT_WIDTH * max(len(report.intervals), 1))
    shown = [interval for interval in report.intervals if interval.schema_changes]
    bars = list(_bars(report.intervals, width))
    optional = {
        "has_distinct": any(column.distinct is not None for column in report.columns),
        "has_samples": any(column.samples for column in report.columns),
        "has_quarantined": any(interval.quarantined for interval in report.intervals),
    }
    facts = {"strips": _strips(report), "most": _most(report.intervals), **optional}
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
    slot = width / max(len(intervals), 1)
    for index, interval in enumerate(intervals):
        records = interval.records or 0
        marks = tuple(grade for grade in reversed(GRADES) if any(c.grade == grade for c in interval.listed_changes))
        moment = f"version {interval.moment.version}, {text_format.moment_text(interval.moment.time_ms)} UTC"
        written = text_format.count_noun(interval.records, "record")
        label = f"{moment}: {written}, {text_format.count_noun(len(interval.listed_changes), 'change')}"
        height = max(CHART_HEIGHT * records / most, 1.5) if records else 0
        yield Bar(index * slot + slot * GAP / 2, slot * (1 - GAP), height, marks, label)


def _strips(report: Report) -> dict[ReportColumn, Strip]:
    indexes = {interval.moment.version: index for index, interval in enumerate(report.intervals)}
    step = STRIP_WIDTH / max(len(indexes), 1)
    strips = {}
    for column in report.columns:
        if column.first is None or column.last is None:
            continue
        first, last = indexes[column.first.version], indexes[column.last.version]
        label = f"written from version {column.first.version} to version {column.last.version}"
        strips[column] = Strip(first * step, (last - first + 1) * step, label)
    return strips
