"""The charts of the HTML report, as coordinates: loads and changes over time, shares of a field, spans of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from widen.planning.table.column_change import GRADES
from widen.report import text_format
from widen.report.report_model import IntervalRecord
from widen.report.table_report import Report, ReportColumn, SourceField

MAX_BINS = 68
"""The most bars of a chart; more intervals are drawn together."""

MAX_SHARE_BINS = 48
MIN_LOST_SHARE = 0.001
"""The share of corrupt and quarantined records from which on a bar shows them."""

STRIP_WIDTH = 84
_GAP = 0.16
"""The share of its slot that a bar leaves free."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a bar: its edges in percent of the height of the chart, and its class."""

    top: float
    height: float
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """Consecutive intervals as one bar, with what they wrote above the line and what they changed below it.

    Args:
        up: The records, and the corrupt ones among them.
        down: The changes by grade, most severe first.
    """

    left: float
    width: float
    up: tuple[Block, ...]
    down: tuple[Block, ...]
    label: str


@dataclass(frozen=True, slots=True)
class LoadChart:
    """The chart of loads and changes.

    Args:
        per_bar: The most intervals that a bar shows.
    """

    bars: tuple[Bar, ...]
    most: int
    ticks: tuple[str, ...]
    per_bar: int


def load_chart(intervals: Sequence[IntervalRecord]) -> LoadChart:
    """Return the chart of all intervals."""
    groups = list(_groups(intervals, MAX_BINS))
    most = max((_records(group) for group in groups), default=0)
    most_changes = max((len(_changes(group)) for group in groups), default=0)
    slot = 100 / max(len(groups), 1)
    bars = tuple(
        Bar(
            index * slot + slot * _GAP / 2,
            slot * (1 - _GAP),
            tuple(_records_blocks(group, most)),
            tuple(_change_blocks(group, most_changes)),
            _label(group),
        )
        for index, group in enumerate(groups)
    )
    step = max(1, len(groups) // 6)
    ticks = tuple(text_format.moment_text(group[0].moment.time_ms)[:10] for group in groups[::step])
    return LoadChart(bars, most, ticks, max(map(len, groups), default=1))


def _groups(items: Sequence[IntervalRecord], limit: int) -> Iterator[Sequence[IntervalRecord]]:
    size = -(-len(items) // limit) or 1
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _records(group: Sequence[IntervalRecord]) -> int:
    return sum(interval.records or 0 for interval in group)


def _changes(group: Sequence[IntervalRecord]) -> list[str]:
    return [change.grade for interval in group for change in interval.listed_changes]


def _records_blocks(group: Sequence[IntervalRecord], most: int) -> Iterator[Block]:
    records = _records(group)
    lost = sum((interval.corrupt or 0) + (interval.quarantined or 0) for interval in group)
    height = max(100 * records / most, 1.5) if records else 0.0
    yield Block(100 - height, height, "records")
    if lost >= MIN_LOST_SHARE * max(records, 1):
        lost_height = min(100.0, max(100 * lost / max(most, lost), 4))
        yield Block(100 - lost_height, lost_height, "lost")


def _change_blocks(group: Sequence[IntervalRecord], most: int) -> Iterator[Block]:
    grades, top = _changes(group), 0.0
    for grade in reversed(GRADES):
        height = 100 * grades.count(grade) / max(most, 4)
        if height:
            yield Block(top, height, grade)
        top += height


def _label(group: Sequence[IntervalRecord]) -> str:
    first, last = group[0].moment, group[-1].moment
    versions = f"version {first.version}" if first == last else f"versions {first.version} to {last.version}"
    lost = [
        text_format.count_noun(count, noun)
        for noun in ("corrupt line", "quarantined record")
        if (count := sum(getattr(each, noun.split()[0]) or 0 for each in group))
    ]
    counts = (text_format.count_noun(_records(group), "record"), text_format.count_noun(len(_changes(group)), "change"))
    return f"{versions}, {text_format.moment_text(first.time_ms)} UTC: {', '.join((*counts, *lost))}"


# ---- shares of a field -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareBar:
    """The shares of the columns of a field in some intervals; the class of each block is the number of its column."""

    left: float
    width: float
    blocks: tuple[Block, ...]
    label: str


def share_chart(field: SourceField) -> tuple[ShareBar, ...]:
    """Return the shares of the values of each column over time, oldest first; empty if fewer than two are known."""
    history = field.history
    if len(history) < 2:
        return ()
    size = -(-len(history) // MAX_SHARE_BINS)
    groups = [history[start : start + size] for start in range(0, len(history), size)]
    slot = 100 / len(groups)
    bars = []
    for index, group in enumerate(groups):
        sums = [sum(numbers) for numbers in zip(*(each.values for each in group), strict=True)]
        versions = f"v{group[0].version}" + (f" to v{group[-1].version}" if len(group) > 1 else "")
        shares = [number / max(sum(sums), 1) for number in sums]
        names = (
            f"{text_format.path_text(column.path)} {text_format.share_text(share)}"
            for column, share in zip(field.columns, shares, strict=True)
        )
        bars.append(ShareBar(index * slot, slot * 0.92, tuple(_stack(shares)), f"{versions}: {', '.join(names)}"))
    return tuple(bars)


def total_shares(field: SourceField) -> Iterator[float | None]:
    """Yield the share of each column in the values of all known intervals; None without any."""
    sums = [sum(numbers) for numbers in zip(*(each.values for each in field.history), strict=True)]
    for number in sums or [0] * len(field.columns):
        yield number / sum(sums) if sum(sums) else None


def _stack(shares: Sequence[float]) -> Iterator[Block]:
    bottom = 100.0
    for index, share in enumerate(shares):
        bottom -= 100 * share
        if share:
            yield Block(max(bottom, 0), 100 * share, f"kind-{index % 5}")


# ---- spans of columns ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Strip:
    """The range of intervals that wrote a column, drawn over all intervals: edges in SVG units, and words."""

    left: float
    width: float
    label: str


def find_strips(report: Report) -> dict[ReportColumn, Strip]:
    """Return the strips of the columns whose first and last intervals are known."""
    indexes = {interval.moment.version: index for index, interval in enumerate(report.intervals)}
    step = STRIP_WIDTH / max(len(indexes), 1)
    strips = {}
    for column in report.columns:
        if column.first is None or column.last is None:
            continue
        first, last = indexes[column.first.version], indexes[column.last.version]
        label = f"written from version {column.first.version} to version {column.last.version}"
        strips[column] = Strip(first * step, max((last - first + 1) * step, 2), label)
    return strips
