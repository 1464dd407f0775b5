"""Format values, sizes, times and changes for the terminal and the HTML page.

Text from data or from a log is escaped here, so that no control character reaches a terminal.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from widen.errors import WidenError
from widen.errors.family import printable as printable
from widen.evolution.policy import Samples, mask, sample_formatter
from widen.evolution.schema_changes import (
    ADDED,
    CHANGED,
    EVENTS,
    MOVED,
    REMOVED,
    RENAMED,
    RETYPED,
    ROUTED,
    WIDENED,
    ChangeReason,
    ColumnChange,
    summarize_operation,
)
from widen.json.document import corrupt_words
from widen.log.commit_files import time_text
from widen.model.column_path import Path, format_path
from widen.model.display import shorten
from widen.model.display import size_text as size_text
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.protocol.file_statistics import MAX_TEXT
from widen.protocol.partition_values import Scalar
from widen.report.table_report import IntervalRecord, Report, ReportColumn, json_scalar

UNKNOWN_TEXT = "–"
"""Shown for an unknown value."""

LONGEST_VALUE = 28


def type_text(text: str, length: int) -> str:
    """Return a type as printable text; of a longer one, structs tell only how many fields they have.

    Example:
        >>> type_text("array<struct<id: bigint, name: string>>", 20), type_text("bigint", 20)
        ('array<struct of 2 fields>', 'bigint')
    """
    if len(text) <= length:
        return printable(text)
    try:
        return brief_type(parse_type(text), lambda struct: f"struct of {count_noun(len(struct), 'field')}")
    except WidenError:  # not a type: a change may tell another detail
        return shorten(printable(text), length)


def brief_type(data_type: DataType, name_struct: Callable[[StructType], str] = lambda _: "struct") -> str:
    """Return a type in Spark SQL without the fields of structs."""
    match data_type:
        case StructType():
            return name_struct(data_type)
        case ArrayType(element):
            return f"array<{brief_type(element, name_struct)}>"
        case MapType(key, value):
            return f"map<{brief_type(key, name_struct)}, {brief_type(value, name_struct)}>"
    return data_type.sql


def path_text(path: Path) -> str:
    """Return a column path as printable text."""
    return printable(format_path(path))


def value_text(value: Scalar | None) -> str:
    """Return a bound as text; a string that the log truncates ends with an ellipsis."""
    match value:
        case None:
            return UNKNOWN_TEXT
        case str():
            shown = printable(unicodedata.normalize("NFC", value.rstrip("\uffff\U0010ffff")))
            return shorten(shown + "…" if len(value) >= MAX_TEXT else shown, LONGEST_VALUE) or "''"
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z").removesuffix(".000000")
        case date():
            return value.isoformat()
        case float() if value == 0:
            return "0.0"  # writers of Parquet take -0.0 for the lower bound of every zero
    return str(value)


def least_text(count: int, *, at_least: bool) -> str:
    """Return a number of values; ``at_least`` tells that there may be more.

    Example:
        >>> least_text(1234, at_least=False), least_text(2000, at_least=True)
        ('1,234', 'at least 2,000')
    """
    return f"at least {count:,}" if at_least else f"{count:,}"


def count_text(count: int | None) -> str:
    """Return a number with thousands separators.

    Example:
        >>> count_text(1234567), count_text(None)
        ('1,234,567', '–')
    """
    return UNKNOWN_TEXT if count is None else f"{count:,}"


def values_text(column: ReportColumn) -> str:
    """Return how many rows of a column have a value; inside arrays and maps without a scan, how many values it has."""
    if column.values is None and column.written is None:
        return UNKNOWN_TEXT
    about = "≈ " if column.is_approximate else ""
    return about + (count_noun(column.values, "value") if column.written is None else count_text(column.written))


def count_noun(count: int | None, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> count_noun(1, "file"), count_noun(2, "file")
        ('1 file', '2 files')
    """
    return f"{count_text(count)} {noun}" if count == 1 else f"{count_text(count)} {noun}s"


def share_text(share: float | None) -> str:
    """Return a share in percent; only 0 and 1 are shown as 0 % and 100 %.

    Example:
        >>> share_text(1.0), share_text(0.9999), share_text(0.0001), share_text(0.256)
        ('100 %', '> 99 %', '< 1 %', '26 %')
    """
    if share is None:
        return UNKNOWN_TEXT
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def moment_text(time_ms: int) -> str:
    """Return a time to the second, in UTC.

    Example:
        >>> moment_text(1_700_000_000_123)
        '2023-11-14 22:13:20'
    """
    return time_text(time_ms)[:19].replace("T", " ")


def change_text(change: ColumnChange) -> str:
    """Return a column change as a short text."""
    column = path_text(change.column)
    match change.what:
        case "added":
            return f"added {column} {change.new}"
        case "widened":
            return f"widened {column} from {change.old} to {change.new}"
        case "retyped" | "changed":
            return f"changed {column} from {printable(change.old)} to {printable(change.new)}"
        case "renamed":
            return f"renamed {printable(change.old)} to {column}"
        case "removed":
            return f"removed {column}"
        case "moved":
            return f"moved {column} {printable(change.new)}"
    return f"new kinds of values in {column}"


def sample_text(reason: ChangeReason) -> str:
    """Return the beginning of the first value as printable text."""
    return shorten(printable(reason.sample), LONGEST_VALUE)


def shown_position(reason: ChangeReason) -> str:
    """Return the file, with its folder, and the line as printable text; empty if not known."""
    if not reason.file:
        return ""
    return f"{printable('/'.join(unquote(reason.file).split('/')[-2:]))}:{reason.position}"


class ChangeCells(NamedTuple):
    """The cells of a column change in a table of changes; the sample and its position are empty if there is none."""

    column: str
    grade: str
    rule: str
    values: str
    sample: str
    at: str


def change_cells(change: ColumnChange) -> ChangeCells:
    """Return what a table of changes shows of a change, beside the types."""
    column = path_text(change.column)
    if not change.reasons:
        return ChangeCells(column, change.grade, "manual", "", "", "")
    main = change.reasons[0]
    rule, kinds = printable(", ".join(main.rules)), printable(" and ".join(main.kinds))
    values = f"{least_text(main.count, at_least=main.at_least)} {kinds}".strip()
    return ChangeCells(column, change.grade, rule, values, sample_text(main), shown_position(main))


def interval_text(interval: IntervalRecord) -> list[str]:
    """Return the written data and the changes of a commit, one line each.

    Only the number of columns is given for a commit that created the table.
    """
    lines = []
    if interval.changed_rows:
        lines.append(", ".join(f"{word} {count_noun(rows, 'row')}" for word, rows in interval.changed_rows.items()))
    if interval.files and not (interval.changed_rows and interval.records is None):
        lines.append(_written(interval))
    if interval.rounded:
        lines.append(f"{count_noun(interval.rounded, 'number')} rounded to double")
    summary = summarize_operation(interval.parameters, interval.operation)
    lines += [printable(summary)] if summary else []
    return [*lines, *changes_text(interval.changes, is_first=interval.is_first)]


def _written(interval: IntervalRecord) -> str:
    counts = interval.records, interval.files, interval.size_bytes, interval.corrupt or 0
    return written_text(*counts, interval.corrupt_reason)


def written_text(
    records: int | None, files: int, size_bytes: int, corrupt: int, reason: str = "", not_objects: int = 0
) -> str:
    """Return a short text about the data that a commit wrote.

    Args:
        records: None if it is not known.
        reason: Why the first of the corrupt texts is not a record; empty if that is not known.
        not_objects: How many of the corrupt texts are JSON.
    """
    what = count_noun(files, "file")
    if records is not None:
        what = f"{count_noun(records, 'record')} in {what}"
    text = f"wrote {what}, {size_text(size_bytes)}"
    first = ", the first" if reason and corrupt > 1 else ""
    noun, _ = corrupt_words(corrupt, reason)
    kept = f"{text}; {corrupt:,} {noun} kept whole{first}: {printable(reason) or 'not a record'}"
    return (kept + (f" ({not_objects:,} JSON, but not an object)" if not_objects else "")) if corrupt else text


def changes_text(changes: Sequence[ColumnChange], *, is_first: bool) -> list[str]:
    """Return the changes as text, one line each; for a new table only its number of columns."""
    if not is_first:
        return [change_text(change) for change in changes if change.what != ROUTED]
    counts = Counter(change.what for change in changes)
    return [f"created the table with {count_noun(counts[ADDED], 'column')}"]


SIGNS = {ADDED: "+", WIDENED: "↗", RETYPED: "~", CHANGED: "~", RENAMED: "→", MOVED: "↕", REMOVED: "−", ROUTED: "·"}
"""The sign of each kind of change."""


# Mask or drop the data values in a report or a history, so that people who may not see the data can get it.
#
# Source: docs/evolution-rules.md#d24


__all__ = ["Samples", "mask", "mask_report", "masked_parameters", "sample_formatter", "shown_intervals"]


def mask_report(report: Report, samples: Samples | str) -> Report:
    """Return the report with its samples and column bounds masked.

    Args:
        report: The report with raw values.
    """
    samples = Samples(samples)
    columns = tuple(_column(column, samples) for column in report.columns)
    families = tuple(
        replace(family, columns=tuple(_column(column, samples) for column in family.columns))
        for family in report.families
    )
    intervals = shown_intervals(report.intervals, samples)
    return replace(report, columns=columns, families=families, intervals=intervals)


def shown_intervals(intervals: Iterable[IntervalRecord], samples: Samples | str) -> tuple[IntervalRecord, ...]:
    """Return the intervals with their samples masked."""
    return tuple(_interval(each, Samples(samples)) for each in intervals)


def _column(column: ReportColumn, samples: Samples) -> ReportColumn:
    origin = column.origin and replace(column.origin, reason=_reason(column.origin.reason, samples))
    low, high = (_bound(bound, samples) for bound in (column.low, column.high))
    texts = tuple(text for text in map(sample_formatter(samples), column.samples) if text)
    return replace(column, low=low, high=high, samples=tuple(dict.fromkeys(texts)), origin=origin)


def _bound(bound: Scalar | None, samples: Samples) -> Scalar | None:
    if bound is None or samples is Samples.RAW:
        return bound
    return sample_formatter(samples)(str(json_scalar(bound))) or None


def _interval(interval: IntervalRecord, samples: Samples) -> IntervalRecord:
    changes = tuple(_change(change, samples) for change in interval.changes)
    return replace(interval, changes=changes, parameters=masked_parameters(interval.parameters, samples))


def masked_parameters(parameters: Mapping[str, Any], samples: Samples | str) -> Mapping[str, Any]:
    """Return the parameters of a commit with masked events; other writers may have stored raw values in them."""
    form, text = Samples(samples), parameters.get(EVENTS)
    if not isinstance(text, str) or form is Samples.RAW:
        return parameters
    try:
        events = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return parameters
    masked = [_event(event, form) for event in events] if isinstance(events, list) else events
    return {**parameters, EVENTS: msgspec.json.encode(masked).decode()}


def _event(event: Any, samples: Samples) -> Any:
    sample = event.get("sample") if isinstance(event, dict) else None
    return {**event, "sample": sample_formatter(samples)(sample)} if isinstance(sample, str) else event


def _change(change: ColumnChange, samples: Samples) -> ColumnChange:
    return replace(change, reasons=tuple(_reason(reason, samples) for reason in change.reasons))


def _reason(reason: ChangeReason, samples: Samples) -> ChangeReason:
    return replace(reason, sample=sample_formatter(samples)(reason.sample))
