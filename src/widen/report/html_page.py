"""The report as one self-contained HTML page, whose policy allows its own style and script and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from widen.errors import InvalidOption
from widen.evolution.schema_changes import GRADES, ColumnChange
from widen.json.document import corrupt_words
from widen.model.value_classes import dataclass
from widen.report import text_format
from widen.report.report_summary import CommandHint, Decision, summarize_report
from widen.report.table_report import IntervalRecord, Report, ReportColumn, SourceField

SHOWN_RECENT = 4
OPEN_CHANGES = 3
"""The number of intervals whose changes are shown without a click."""

MAX_OPEN_COLUMNS = 40
"""With at least this many columns, records start collapsed."""

SHOWN_CARDS, SHOWN_CHANGES = 9, 20
"""The number of decisions, and of intervals with changes, that are shown at first."""

MAX_OPEN_INTERVALS = 40
MAX_GROUP_ROWS = 60
"""The number of rows of one group that are shown at first."""


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A row of the table of columns; its search text and its filter words are ready to print."""

    column: ReportColumn
    find: str
    tags: str
    is_later: bool


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """The columns of one record, or those beside it; the name is empty for these."""

    name: str
    rows: tuple[ColumnRow, ...]


@dataclass(frozen=True, slots=True)
class FieldCard:
    """What is to be decided about a field or another subject, with the shares of its columns over time and in all."""

    decision: Decision
    field: SourceField | None
    shares: tuple[ShareBar, ...]
    totals: tuple[float | None, ...]


def render_page(report: Report) -> str:
    """Return the report as an HTML document."""
    template = _environment().get_template("page.html.j2")
    summary = summarize_report(report)
    shown = [interval for interval in reversed(report.intervals) if interval.schema_changes]
    optional = {
        "has_distinct": any(column.distinct is not None for column in report.columns),
        "has_samples": any(column.samples for column in report.columns),
        "has_quarantined": any(interval.quarantined for interval in report.intervals),
    }
    return template.render(
        report=report,
        summary=summary,
        chart=load_chart(report.intervals),
        cards=list(_cards(report, summary.decisions)),
        groups=list(_groups(report)),
        strips=find_strips(report),
        shown=shown,
        rules=_used_rules(report),
        policy=_content_policy(),
        style=_file("page.css"),
        script=_file("page.js"),
        **optional,
    )


@cache
def _file(name: str) -> str:
    return files("widen.report").joinpath(name).read_text(encoding="utf-8")


def _content_policy() -> str:
    """Return the policy: only this style and this script apply, by their hashes; nothing is fetched or sent."""
    style, script = (_hash(_file(name)) for name in ("page.css", "page.js"))
    return f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("widen.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(text_format=text_format, grades=GRADES, strip_width=STRIP_WIDTH)
    environment.globals.update(shown_recent=SHOWN_RECENT, open_changes=OPEN_CHANGES)
    environment.globals.update(shown_cards=SHOWN_CARDS, shown_changes=SHOWN_CHANGES)
    environment.globals.update(open_intervals=MAX_OPEN_INTERVALS, open_columns=MAX_OPEN_COLUMNS)
    environment.globals.update(find_change=_find_change, rule_text=_rule_text, command=_command)
    return environment


def _cards(report: Report, decisions: tuple[Decision, ...]) -> Iterator[FieldCard]:
    by_subject = {text_format.path_text(family.source): family for family in report.families}
    for decision in decisions:
        family = by_subject.get(text_format.printable(decision.subject))
        shares = share_chart(family) if family else ()
        yield FieldCard(decision, family, shares, tuple(total_shares(family)) if family else ())


def _groups(report: Report) -> Iterator[ColumnGroup]:
    for name, columns in groupby(report.columns, lambda column: column.path[0] if len(column.path) > 1 else ""):
        listed = tuple(columns)
        # A record with one column, as an array of scalars, needs no heading.
        is_record = len(listed) > 1 and bool(name)
        rows = tuple(_row(column, report, index >= MAX_GROUP_ROWS) for index, column in enumerate(listed))
        yield ColumnGroup(text_format.printable(name) if is_record else "", rows)


def _row(column: ReportColumn, report: Report, is_later: bool) -> ColumnRow:
    drifted = {each.path for family in report.families for each in family.columns}
    tags = {
        "drifted": any(column.path[: len(path)] == path for path in drifted),
        "widened": bool(column.types_before),
        "empty": column.is_empty,
        "nested": len(column.path) > 1,
    }
    find = " ".join((text_format.path_text(column.path), column.type, column.evolved_from, column.comment)).lower()
    return ColumnRow(column, text_format.printable(find), " ".join(tag for tag, fits in tags.items() if fits), is_later)


def _find_change(interval: IntervalRecord) -> str:
    """Return the text that a search uses to find the changes of an interval."""
    names = (f"{change.what} {text_format.path_text(change.column)} {change.grade}" for change in interval.changes)
    return text_format.printable(f"v{interval.moment.version} {interval.operation} {' '.join(names)}".lower())


def _used_rules(report: Report) -> list[EvolutionRule]:
    changes: list[ColumnChange] = [change for interval in report.intervals for change in interval.changes]
    used = {code for change in changes for reason in change.reasons for code in reason.rules}
    return [rule for code, rule in evolution_rules().items() if code in used]


def _rule_text(rule: EvolutionRule) -> str:
    """Return the text of a rule as HTML: escaped paragraphs, with its code marked up."""
    paragraphs = (escape(_LINK.sub(r"\1", part)) for part in rule.text.split("\n\n"))
    return "".join(f"<p>{_CODE.sub(_AS_CODE, part)}</p>" for part in paragraphs)


_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_CODE = re.compile(r"`([^`]+)`")
_AS_CODE = r"<code>\1</code>"


def _command(hint: CommandHint) -> str:
    return text_format.printable(hint.command)


# The charts of the HTML report, as coordinates: loads and changes over time, shares of a field, spans of columns.


MAX_BINS = 68
"""The most bars of a chart; more intervals are drawn together."""

MAX_SHARE_BINS = 48
MIN_LOST_SHARE = 0.001
"""The minimum share of corrupt and quarantined records that is shown as a bar."""

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
    groups = list(_chunks(intervals, MAX_BINS))
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


def _chunks(items: Sequence[IntervalRecord], limit: int) -> Iterator[Sequence[IntervalRecord]]:
    size = -(-len(items) // limit) or 1
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _records(group: Sequence[IntervalRecord]) -> int:
    return sum(interval.records or 0 for interval in group if interval.is_load)


def _changes(group: Sequence[IntervalRecord]) -> list[str]:
    return [change.grade for interval in group for change in interval.listed_changes]


def _records_blocks(group: Sequence[IntervalRecord], most: int) -> Iterator[Block]:
    records = _records(group)
    lost = sum((interval.corrupt or 0) + (interval.quarantined or 0) for interval in group if interval.is_load)
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
    loads = [each for each in group if each.is_load]
    corrupt, quarantined = (sum(getattr(each, name) or 0 for each in loads) for name in ("corrupt", "quarantined"))
    noun, _ = corrupt_words(corrupt, *(each.corrupt_reason for each in loads))
    lost = [f"{corrupt:,} corrupt {noun}"] if corrupt else []
    lost += [text_format.count_noun(quarantined, "quarantined record")] if quarantined else []
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


# The rules of evolution by their codes, as ``widen explain`` prints them.
#
# `tools/rules.py` copies the texts from docs/evolution-rules.md into the package.


class EvolutionRule(msgspec.Struct, frozen=True):
    """One rule (U), decision (D) or test vector (V)."""

    code: str
    title: str
    text: str


@cache
def evolution_rules() -> Mapping[str, EvolutionRule]:
    """Return all rules by their codes: U1 to U20, D1 to D24, V1 to V21."""
    text = files("widen.report").joinpath("evolution_rules.json").read_bytes()
    return {rule.code: rule for rule in msgspec.json.decode(text, type=list[EvolutionRule])}


def find_rule(code: str) -> EvolutionRule:
    """Return the rule with a code; the case does not matter.

    Raises:
        InvalidOption: The rule does not exist.
    """
    rule = evolution_rules().get(code.strip().upper())
    if rule is None:
        raise InvalidOption(option="CODE", value=code, expected="Use U1 to U20, D1 to D24 or V1 to V21.")
    return rule
