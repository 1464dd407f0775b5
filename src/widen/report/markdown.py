"""Plans as Markdown, for a comment under a pull request.

Source: docs/guide/gate.md#markdown; GitHub Flavored Markdown, tables
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from widen.evolution.plan import OVER_LIMITS, READERS, Plan, PlanOutcome
from widen.evolution.schema_changes import ColumnChange, plan_changes
from widen.model.column_path import format_path
from widen.report.text_format import SIGNS, change_cells, count_noun, printable, type_text

MAX_ROWS = 50
"""How many changes of a table are listed: a comment has a maximum length."""

LONGEST_TYPE = 80

OUTCOME_MARKS = {
    PlanOutcome.NOTHING.value: "·",
    PlanOutcome.CHANGES.value: "±",
    PlanOutcome.REFUSED.value: "✗",
    "failed": "✗",
    "open": "?",
}


def plan_markdown(plan: Plan, into: str) -> Iterator[str]:
    """Yield the lines of a plan.

    Args:
        into: The table.
    """
    yield f"### {OUTCOME_MARKS[plan.outcome.value]} {markdown_code(into)}"
    yield ""
    if plan.keyed_by:
        yield from (f"Rows change by key: {markdown_text(plan.keyed_by)}", "")
    if plan.is_empty:
        yield from ("The schema does not change.", "")
    for title, operations in (("Changes", plan.operations), ("Refused by the policy", plan.refused)):
        if operations:
            yield from (f"**{title}**", "", *_changes_table(plan_changes(operations, plan.events)))
    for title, lines in (
        (OVER_LIMITS, plan.over_limits),
        ("Stored in the rescue column", [f"{format_path(each.source)}: {each.reason}" for each in plan.rescued]),
        ("Quarantined", [f"{format_path(each.source)}: the column is {each.column}" for each in plan.quarantined]),
        ("Options without effect", [str(each) for each in plan.unmatched]),
        ("Skipped files", [str(each) for each in plan.bad_files]),
        (READERS, [str(each) for each in plan.readers]),
    ):
        if lines:
            yield from (f"**{title}**", "", *_listed(lines), "")
    yield from (f"hash {markdown_code(plan.hash)}", "")


def _changes_table(changes: Sequence[ColumnChange]) -> Iterator[str]:
    rows = []
    for change in changes[:MAX_ROWS]:
        cells = change_cells(change)
        types = [type_text(each, LONGEST_TYPE) for each in (change.old, change.new) if each]
        change_text = " → ".join(types)
        rows.append((SIGNS[change.what], cells.column, change_text, cells.grade, cells.rule, cells.values, cells.at))
    yield from markdown_table(("", "column", "change", "grade", "rule", "values", "first seen at"), rows)
    if len(changes) > MAX_ROWS:
        yield from (f"… and {count_noun(len(changes) - MAX_ROWS, 'change')} more.", "")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in rows)
    yield ""


def _listed(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"- {markdown_text(line)}" for line in lines[:MAX_ROWS])
    if len(lines) > MAX_ROWS:
        yield f"- … and {len(lines) - MAX_ROWS} more"


def markdown_text(text: str) -> str:
    """Return a text whose characters mean nothing in Markdown or HTML, on one line."""
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in printable(text))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;")
    return escaped.replace("@", "@&#8203;")  # nobody is notified by the name of a column


_SPECIAL = frozenset("\\`*_[]|~#")


def markdown_code(text: str) -> str:
    """Return a text as code."""
    text = printable(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
