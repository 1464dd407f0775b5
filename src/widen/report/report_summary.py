"""What a reader of a report wants to know first: is the table healthy, what drifted lately, what needs a decision.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from widen.evolution.schema_changes import GRADES, ColumnChange
from widen.json.document import corrupt_words
from widen.log.commit_files import time_text
from widen.model.acknowledgement import Acknowledgement
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.transaction_id import REPLAY_PREFIX
from widen.model.types import quote_name
from widen.model.value_classes import dataclass
from widen.report.stopped_field import StoppedField, VersionTime
from widen.report.table_report import QUIET_LOADS, IntervalRecord, Report, ReportColumn, SourceField
from widen.report.text_format import count_noun, share_text
from widen.schema.source_metadata import CORRUPT, CORRUPT_AT, RESCUED

QUARANTINE = "Quarantine"
"""The subject of the decision about records in the quarantine."""

RECENT_LOADS = 7
"""The number of intervals with records that count as recent."""

MAX_CORRUPT_SHARE = 0.01
"""From this share of corrupt records, the newest interval needs a decision."""

SHOWN_CHANGES = 10
"""The most changes in a summary."""


class Status(str, Enum):
    """How urgent a finding is."""

    OK = "ok"
    WATCH = "watch"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding about the health of a table, in words."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class CommandHint:
    """A command to copy, and when to use it."""

    when: str
    command: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that only a person can decide.

    Args:
        subject: What it is about: the path of a field, or a few words.
        reason: What was found, and what it means.
    """

    subject: str
    brief: str
    reason: str
    status: Status
    commands: tuple[CommandHint, ...]

    def to_value(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        commands = [{"when": hint.when, "command": hint.command} for hint in self.commands]
        return {"subject": self.subject, "reason": self.reason, "status": self.status.value, "commands": commands}


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """The summary of a report.

    Args:
        last_changes: The last changes of columns other than new fields, newest first.
        recent_changes: How many such changes the recent loads made.
        decisions: What needs a decision, most urgent first.
        acknowledged: The decisions that were made.
    """

    status: Status
    checks: tuple[Check, ...]
    last_changes: tuple[tuple[VersionTime, ColumnChange], ...]
    recent_changes: int
    recent_loads: int
    decisions: tuple[Decision, ...]
    acknowledged: tuple[Acknowledgement, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {
            "status": self.status.value,
            "checks": [{"name": each.name, "status": each.status.value, "text": each.text} for each in self.checks],
            "recentLoads": self.recent_loads,
            "recentChanges": self.recent_changes,
            "lastChanges": [{**moment.to_value(), **change.to_value()} for moment, change in self.last_changes],
            "decisions": [decision.to_value() for decision in self.decisions],
            "acknowledged": [each.to_value() for each in self.acknowledged],
        }


def summarize_report(report: Report) -> ReportSummary:
    """Return the summary of a report."""
    loads = [each for each in report.intervals if each.is_load]
    recent = loads[-RECENT_LOADS:]
    decisions = sorted(_decisions(report, loads), key=lambda each: _URGENCY.index(each.status))
    parts = _health_checks(report, recent) if recent else ()
    checks = (_load_check(recent), *parts, *_rounding_checks(recent), *_bounds_checks(report))
    status = min((check.status for check in checks), key=_URGENCY.index)
    changes = tuple(_type_changes(report.intervals))
    first = recent[0].moment.version if recent else 0
    number = sum(moment.version >= first for moment, _ in changes)
    return ReportSummary(
        status, checks, changes[:SHOWN_CHANGES], number, len(recent), tuple(decisions), report.acknowledged
    )


_URGENCY = (Status.ACT, Status.WATCH, Status.OK)


def find_open_subjects(report: Report) -> list[str]:
    """Return what can be acknowledged: the subjects of decisions, and the fields that conflict in the last loads."""
    loads = [each for each in report.intervals if each.is_load]
    subjects = [each.subject for each in _decisions(report, loads)]
    drifted = (
        change for each in _without_acknowledged(report, loads[-RECENT_LOADS:]) for change in each.listed_changes
    )
    fields = _fields_of_columns(report)
    subjects += [_subject_of(change.column, fields) for change in drifted if change.grade in GRADES[2:]]
    return list(dict.fromkeys(subjects))


def _health_checks(report: Report, recent: Sequence[IntervalRecord]) -> Iterator[Check]:
    """Yield the checks of the last loads, without what was acknowledged."""
    for check, subject in ((_lines_check, CORRUPT), (_quarantine_check, QUARANTINE)):
        asked = _not_acknowledged(report, recent, subject)
        yield check(asked) if asked else replace(check(recent), status=Status.OK)
    yield _drift_check(_without_acknowledged(report, recent))


def _without_acknowledged(report: Report, loads: Sequence[IntervalRecord]) -> list[IntervalRecord]:
    """Return the loads without the changes of columns that were acknowledged."""
    fields = _fields_of_columns(report)
    return [
        replace(
            each,
            changes=tuple(
                change
                for change in each.changes
                if not report.is_acknowledged(_subject_of(change.column, fields), each.moment.time_ms)
            ),
        )
        for each in loads
    ]


def _fields_of_columns(report: Report) -> dict[Path, str]:
    """Return the source fields of the columns that share one with others."""
    siblings = {column.path: column.evolved_from for column in report.columns if column.evolved_from}
    families = {column.path: format_path(each.source) for each in report.families for column in each.columns}
    return siblings | families


def _subject_of(column: Path, fields: Mapping[Path, str]) -> str:
    """Return the field of a column that shares it with others; else the column itself."""
    return next((field for path, field in fields.items() if path[: len(column)] == column), format_path(column))


def _not_acknowledged(report: Report, loads: Sequence[IntervalRecord], subject: str) -> list[IntervalRecord]:
    return [each for each in loads if not report.is_acknowledged(subject, each.moment.time_ms)]


def _load_check(recent: Sequence[IntervalRecord]) -> Check:
    if not recent:
        return Check("Last load", Status.WATCH, "no interval wrote a record")
    newest = recent[-1]
    day = time_text(newest.moment.time_ms)[:10]
    return Check("Last load", Status.OK, f"last load on {day}: {count_noun(newest.records or 0, 'record')}")


def _lines_check(recent: Sequence[IntervalRecord]) -> Check:
    corrupt, records = (sum(getattr(each, name) or 0 for each in recent) for name in ("corrupt", "records"))
    if not corrupt:
        return Check("Readable records", Status.OK, f"every record of the last {_loads(recent)} could be read")
    every = records + corrupt
    share = share_text(corrupt / every)
    reasons = [each.corrupt_reason for each in recent]
    (noun, _), (_, rest) = corrupt_words(every, *reasons), corrupt_words(corrupt, *reasons)
    reason = next((each.corrupt_reason for each in reversed(recent) if each.corrupt_reason), "")
    why = f"; the last load with one says: {reason}" if reason else ""
    text = f"{corrupt:,} of {every:,} {noun} ({share}) of the last {_loads(recent)} {rest}{why}"
    return Check("Readable records", _corrupt_status(recent), text)


def _rounding_checks(recent: Sequence[IntervalRecord]) -> tuple[Check, ...]:
    """Return the check of rounded numbers; none where no number was rounded."""
    rounded = sum(each.rounded for each in recent)
    text = f"{count_noun(rounded, 'number')} of the last {_loads(recent)} rounded to double, as asked"
    return (Check("Rounded numbers", Status.OK, text),) if rounded else ()


def _bounds_checks(report: Report) -> tuple[Check, ...]:
    """Return the check of the bounds in the log; none where they are exact."""
    files, is_checked = report.inexact.files, report.inexact.is_checked
    which = f"of {count_noun(files, 'file')}" if is_checked else f"of up to {count_noun(files, 'file')}"
    text = (
        f"bounds in the log {which} are not the exact values: other readers may lose rows of a filter; "
        f"`widen rewrite {report.command_name} --statistics` repairs them"
    )
    return (Check("Bounds", Status.WATCH, text),) if files else ()


def _corrupt_status(recent: Sequence[IntervalRecord]) -> Status:
    newest = recent[-1]
    is_bad = (newest.corrupt or 0) >= MAX_CORRUPT_SHARE * max(newest.rows or 0, 1)
    return Status.ACT if is_bad else Status.WATCH


def _quarantine_check(recent: Sequence[IntervalRecord]) -> Check:
    quarantined_records = _count_quarantined_records(recent)
    if not quarantined_records:
        return Check("Kept out", Status.OK, f"no record of the last {_loads(recent)} is in quarantine")
    verb = "is" if quarantined_records == 1 else "are"
    text = f"{count_noun(quarantined_records, 'record')} of the last {_loads(recent)} {verb} in quarantine"
    return Check("Kept out", Status.ACT, text)


def _count_quarantined_records(loads: Sequence[IntervalRecord]) -> int:
    """Return how many records the quarantine got and has not given back since."""
    # What a replay quarantines was in the quarantine before, so only its records count.
    changes = (-(each.records or 0) if _is_replay(each) else each.quarantined or 0 for each in loads)
    return max(0, sum(changes))


def _is_replay(interval: IntervalRecord) -> bool:
    return str(interval.parameters.get("queryId", "")).startswith(REPLAY_PREFIX)


def _drift_check(recent: Sequence[IntervalRecord]) -> Check:
    changes = [change for each in recent for change in each.listed_changes]
    drifted = [change for change in changes if change.grade in GRADES[2:]]
    if drifted:
        text = f"{count_noun(len(drifted), 'conflicting change')} in the last {_loads(recent)}"
        return Check("Drift", Status.WATCH, text)
    text = count_noun(len(changes), "harmless change") if changes else "no change"
    return Check("Drift", Status.OK, f"{text} of columns in the last {_loads(recent)}")


def _loads(recent: Sequence[IntervalRecord]) -> str:
    return "load" if len(recent) == 1 else f"{len(recent)} loads"


def _type_changes(intervals: Sequence[IntervalRecord]) -> Iterator[tuple[VersionTime, ColumnChange]]:
    """Yield the changes other than new fields, newest first."""
    for interval in reversed(intervals):
        for change in interval.listed_changes:
            if change.grade != GRADES[0]:
                yield interval.moment, change


# ---- decisions -------------------------------------------------------------------------------------


def _decisions(report: Report, loads: Sequence[IntervalRecord]) -> Iterator[Decision]:
    table = report.command_name
    yield from _quarantine_decisions(report, _not_acknowledged(report, loads, QUARANTINE))
    newest_ms = loads[-1].moment.time_ms if loads else report.moment.time_ms
    for column in report.columns:
        last_ms = newest_ms if column.last is None else column.last.time_ms
        has_texts = column.path[0] in _STORED_WHOLE and (column.values or column.written)
        if has_texts and not report.is_acknowledged(column.path[0], last_ms):
            yield _stored_whole_decision(column, loads, table, {each.path[0] for each in report.columns})
    for stopped in report.stopped:
        if not report.is_acknowledged(format_path(stopped.source), stopped.last.time_ms):
            yield _stopped_decision(stopped, table)
    versions, silent = [load.moment.version for load in loads], {stopped.source for stopped in report.stopped}
    for family in report.families:
        if family.source in silent:
            continue  # nobody has repaired a field that does not come at all
        if not report.is_acknowledged(format_path(family.source), _last_change_ms(report, family)):
            yield _several_columns_decision(family, versions, table)


def _stopped_decision(stopped: StoppedField, table: str) -> Decision:
    """Return the decision about a field that has stopped arriving."""
    field = format_path(stopped.source)
    reason = (
        f"{field} had its last value in version {stopped.last.version}, and none in the {_loads_of(stopped)} since."
    )
    hints = []
    if stopped.successor:
        new = format_path(stopped.successor)
        reason += f" {new} came at that time, with the same type and values in the same range: likely its new name."
        if len(stopped.source) == len(stopped.successor) == 1:
            both = shlex.quote(f"coalesce({quote_name(new)}, {quote_name(field)}) AS {quote_name(new)}")
            hints.append(CommandHint("To read both as one column", f"widen read {table} --select {both}"))
    else:
        reason += " Ask the source whether that is meant."
    return Decision(field, "stopped arriving", reason, Status.WATCH, tuple(hints))


def _loads_of(stopped: StoppedField) -> str:
    return count_noun(stopped.loads, "load")


def _last_change_ms(report: Report, family: SourceField) -> int:
    """Return when a column of a field was last added or changed, if the history has it; else 0."""
    paths = [column.path for column in family.columns]
    return max(
        (
            each.moment.time_ms
            for each in report.intervals
            for change in each.schema_changes
            if any(path[: len(change.column)] == change.column for path in paths)
        ),
        default=0,
    )


_STORED_WHOLE = frozenset({CORRUPT, RESCUED})
"""The columns for whole texts."""


def _quarantine_decisions(report: Report, loads: Sequence[IntervalRecord]) -> Iterator[Decision]:
    quarantined_records = _count_quarantined_records(loads)
    if quarantined_records:
        quarantine = replace(report, location=f"{report.location.rstrip('/')}_quarantine")
        name = shlex.quote(quarantine.location)
        hints = (
            CommandHint("To see them", f"widen read {quarantine.command_name}"),
            CommandHint("Once the table can hold them", f"widen replay {name} --into {report.command_name}"),
        )
        reason = f"{count_noun(quarantined_records, 'record')} did not fit the fixed columns of the table."
        status = Status.ACT if _count_quarantined_records(loads[-RECENT_LOADS:]) else Status.WATCH
        yield Decision(QUARANTINE, f"{count_noun(quarantined_records, 'record')} quarantined", reason, status, hints)


def _stored_whole_decision(
    column: ReportColumn, loads: Sequence[IntervalRecord], table: str, names: Collection[str]
) -> Decision:
    name = column.path[0]
    count = column.values or column.written or 0
    contents = f"{count_noun(count, 'value')} that no column can hold"
    if name == CORRUPT:
        contents = f"{count:,} {' that '.join(corrupt_words(count, *(each.corrupt_reason for each in loads)))}"
    columns = f"{name},{CORRUPT_AT}" if name == CORRUPT and CORRUPT_AT in names else name
    hint = CommandHint("To see them", f"widen read {table} --where '{name} IS NOT NULL' --select {columns}")
    status = _corrupt_status(loads) if loads and name == CORRUPT else Status.WATCH
    return Decision(name, contents, f"{name} has {contents}.", status, (hint,))


def _several_columns_decision(family: SourceField, versions: Sequence[int], table: str) -> Decision:
    """Return the decision about a source field with several columns."""
    field, siblings = format_path(family.source), [column for column in family.columns if column.evolved_from]
    quiet = [column for column in siblings if _is_quiet(family, column, versions)]
    types = _join_types(family.columns)
    hints = [
        CommandHint(
            f"If the source is repaired: {format_path(column.path)} goes back",
            f"widen fold {table} {shlex.quote(format_path(column.path))} --dry-run",
        )
        for column in (quiet or siblings)
        if _STEPS.isdisjoint(column.path)
    ]
    pin = shlex.quote(f"{field}={_pin_for_one_column({column.type for column in family.columns})}")
    hints.append(CommandHint("In a rebuild, for one column", f"--pin {pin}"))
    if quiet:
        names = ", ".join(format_path(column.path) for column in quiet)
        reason = f"Values are {types}. {names} got none in the last {QUIET_LOADS} loads: the source looks repaired."
        return Decision(field, f"{types}: looks repaired", reason, Status.WATCH, tuple(hints))
    newest = _newest_types(family)
    arrival = ", and go on arriving as such" if newest in ("", types) else f". The newest ones are only {newest}"
    reason = f"Values are {types}{arrival}. Keep the columns, or have the source repaired."
    hints.insert(0, CommandHint("To read it as one column", f"widen read {table} --unified"))
    return Decision(field, types, reason, Status.WATCH, tuple(hints))


def _newest_types(family: SourceField) -> str:
    """Return the types of the values in the newest interval that has some; an empty string without counts."""
    newest = family.history[-1].values if family.history else ()
    return _join_types(column for column, values in zip(family.columns, newest, strict=False) if values)


def _join_types(columns: Iterable[ReportColumn]) -> str:
    return " and ".join(dict.fromkeys(column.type for column in columns))


def _pin_for_one_column(types: set[str]) -> str:
    """Return the pin that makes one column take values of these types.

    Source: docs/evolution-rules.md#u16
    """
    if any(each.startswith(("struct", "array", "map")) for each in types):
        return "json"
    return "timestamp" if "timestamp" in types and _INTEGERS.issuperset(types - {"timestamp"}) else "text"


_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
"""The SQL types whose values may be times, counted from 1970."""

_STEPS = frozenset({ELEMENT, KEY, VALUE})
"""Steps into arrays and maps, where columns cannot be folded."""


def _is_quiet(family: SourceField, column: ReportColumn, versions: Sequence[int]) -> bool:
    """Return whether a column got values once, but none in the last loads."""
    index = next(number for number, each in enumerate(family.columns) if each.path == column.path)
    written = [count.version for count in family.history if count.values[index]]
    return bool(written) and len(versions) > QUIET_LOADS and written[-1] < versions[-QUIET_LOADS]
