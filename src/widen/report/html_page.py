"""The report as one self-contained HTML page, whose policy allows its own style and script and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined

from widen.planning.table.column_change import GRADES, ColumnChange
from widen.report import text_format
from widen.report.evolution_rules import EvolutionRule, evolution_rules
from widen.report.page_charts import STRIP_WIDTH, ShareBar, find_strips, load_chart, share_chart, total_shares
from widen.report.report_model import IntervalRecord
from widen.report.report_summary import CommandHint, Decision, summarize_report
from widen.report.table_report import Report, ReportColumn, SourceField

SHOWN_RECENT = 4
OPEN_CHANGES = 3
"""The number of intervals whose changes are shown without a click."""

MAX_OPEN_COLUMNS = 40
"""The number of columns from which on records start collapsed."""

SHOWN_CARDS, SHOWN_CHANGES = 9, 20
"""The number of decisions, and of intervals with changes, that are shown at first."""

MAX_OPEN_INTERVALS = 40
MAX_GROUP_ROWS = 60
"""The number of rows of one group that are shown at first."""


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """A row of the table of columns; the text that a search finds and the words of the filters are ready to print."""

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
    """Return the text in which a search finds the changes of an interval."""
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
