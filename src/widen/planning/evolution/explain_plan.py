"""Plans as plain text.

Source: docs/evolution-rules.md#dry-run
"""

from __future__ import annotations

from collections.abc import Iterator

from widen.model.column_path import format_path
from widen.observe.observation import RecordPosition, position_text
from widen.planning.evolution.plan import PendingField, Plan, PlanEvent, QuarantinedField, RescuedField, RoundedField
from widen.planning.table.operation import Operation

NOTHING = "Nothing to change."

MAX_LINES = 40
"""The maximum number of lines of each list."""


def explain_plan(plan: Plan) -> tuple[str, ...]:
    """Return the lines that explain a plan.

    The operations come first, then the reasons, then rescued, quarantined and pending values.
    """
    return tuple(_lines(plan)) or (NOTHING,)


def explain_operations(operations: tuple[Operation, ...]) -> str:
    """Return the operations as text, one per line."""
    return "\n".join(_fold_lines([str(operation) for operation in operations]))


def _lines(plan: Plan) -> Iterator[str]:
    for title, items in (
        ("Changes:", plan.operations),
        ("Refused by the policy:", plan.refused),
        ("Because:", tuple(map(_explain_event, plan.events))),
        ("Stored in the rescue column:", tuple(map(_explain_rescued, plan.rescued))),
        ("Quarantined:", tuple(map(_explain_quarantined, plan.quarantined))),
        ("Rounded to double:", tuple(map(_explain_rounded, plan.rounded))),
        ("Waiting for a first value:", tuple(map(_explain_pending, plan.pending))),
        ("Options without effect:", tuple(map(str, plan.unmatched))),
        ("Skipped, because they cannot be read or are over a limit:", tuple(map(str, plan.bad_files))),
        ("Objects that look like maps:", tuple(f"{format_path(each.source)}: {each}" for each in plan.maps)),
    ):
        if items:
            yield title
            yield from (f"  {item}" for item in _fold_lines([str(item) for item in items]))


def _fold_lines(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"… and {more} more"]


def _explain_event(event: PlanEvent) -> str:
    rules, values = ", ".join(event.rules), f"{_lower_bound_text(event)}{event.count} {_kind_text(event.kinds)}"
    first = _first_seen_text(event.first, event.sample)
    return f"{rules} {event.grade.value}: {format_path(event.column)}, for {values}{first}"


def _lower_bound_text(counted: PlanEvent | RescuedField) -> str:
    return "at least " if counted.at_least else ""


def _kind_text(kinds: tuple[str, ...]) -> str:
    return " and ".join(kinds) or "records"


def _explain_rescued(rescued: RescuedField) -> str:
    values = f"{_lower_bound_text(rescued)}{rescued.count} {_kind_text(rescued.kinds)}"
    return (
        f"{format_path(rescued.source)}: {values} ({rescued.reason}){_first_seen_text(rescued.first, rescued.sample)}"
    )


def _explain_quarantined(quarantined: QuarantinedField) -> str:
    values = f"{quarantined.count} {_kind_text(quarantined.kinds)}, but the column is {quarantined.column}"
    return f"{format_path(quarantined.source)}: {values}{_first_seen_text(quarantined.first, quarantined.sample)}"


def _explain_rounded(rounded: RoundedField) -> str:
    return f"{format_path(rounded.source)}: {rounded.count} {'number' if rounded.count == 1 else 'numbers'}"


def _explain_pending(pending: PendingField) -> str:
    counts = ((pending.nulls, "null"), (pending.empty, "[]"), (pending.empty_records, "{}"))
    return f"{format_path(pending.source)}: {', '.join(f'{count} {what}' for count, what in counts if count)}"


def _first_seen_text(first: RecordPosition | None, sample: str) -> str:
    value = f" {sample!r}" if sample else ""
    return f"; first{value} at {position_text(first)}" if first else ""
