"""The report on the terminal: the summary first, then columns, schema changes and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from widen.log.loads import parked_files
from widen.model.column_path import Path
from widen.model.display import shorten
from widen.report.report_summary import ReportSummary, Status, summarize_report
from widen.report.table_report import IntervalRecord, Report, ReportColumn, VersionTime
from widen.report.terminal import Fitting, changes_table, facts_line, heading_part, table_of, title_part, version_text
from widen.report.text_format import (
    UNKNOWN_TEXT,
    count_noun,
    count_text,
    moment_text,
    path_text,
    printable,
    share_text,
    size_text,
    type_text,
    value_text,
    values_text,
)

if TYPE_CHECKING:
    from widen.log.loads import Load, LoadedFile


BAR_WIDTH = 10
LENGTH_WITHOUT_BARS = 10
_MARKS = {Status.OK: ("✓", "green"), Status.WATCH: ("!", "yellow"), Status.ACT: ("✕", "bold red")}


def report_parts(report: Report) -> Iterator[RenderableType]:
    """Yield the report of a table: its columns, its schema changes and its intervals."""
    yield title_part(report.location)
    deleted = (f"{count_noun(report.deleted, 'deleted row')}",) if report.deleted else ()
    facts = (count_noun(report.rows, "row"), count_noun(report.files, "file"), size_text(report.size_bytes), *deleted)
    yield facts_line(version_text(report.moment), *facts)
    yield from _summary_parts(summarize_report(report))
    yield heading_part("Columns")
    yield Fitting(partial(_columns_table, report.columns))
    yield from (Text(f"  {note}", "dim") for note in report.notes)
    changed = [interval for interval in report.intervals if interval.schema_changes]
    yield heading_part("Schema changes")
    yield from _timeline(changed) if changed else (Text("  none", "dim"),)
    yield heading_part("Intervals")
    yield _intervals_table(report.intervals)


def _summary_parts(summary: ReportSummary) -> Iterator[RenderableType]:
    yield Text("")
    for check in summary.checks:
        mark, style = _MARKS[check.status]
        yield Text.assemble(("  ", ""), (mark, style), f" {check.text}")
    for each in summary.acknowledged:
        day = moment_text(each.time_ms)[:10]
        yield Text(f"acknowledged by {printable(each.by)} on {day}: {printable(each.subject)}", "dim")
    if summary.decisions:
        yield heading_part("Needs a decision")
    for decision in summary.decisions:
        mark, style = _MARKS[decision.status]
        yield Text.assemble(
            "  ", (mark, style), " ", (printable(decision.subject), "bold"), f": {printable(decision.brief)}"
        )
        for hint in decision.commands:
            yield Text.assemble((f"      {printable(hint.when)}: ", "dim"), printable(hint.command))


def _columns_table(columns: Sequence[ReportColumn], length: int) -> Table:
    has_distinct = any(column.distinct is not None for column in columns)
    bounds = ("min", "max") if length else ()
    table = table_of("column", "type", "rows", "share", "nulls", *bounds, "written in", *["distinct"] * has_distinct)
    table.columns[2].justify = table.columns[4].justify = "right"
    table.columns[3].no_wrap = table.columns[5 + len(bounds)].no_wrap = True
    parent: Path = ()
    for column in columns:
        if column.path[:-1] != parent:
            parent = column.path[:-1]
            if parent:
                table.add_row(Text(path_text(parent)))
        table.add_row(
            _name_cell(column, len(parent)),
            _type_cell(column, length),
            Text(values_text(column)),
            _bar(column.share, BAR_WIDTH if length > LENGTH_WITHOUT_BARS else 0),
            Text(count_text(column.nulls), "dim"),
            *(Text(shorten(value_text(value), length)) for value in (column.low, column.high) if length),
            Text(_span(column.first, column.last), "dim"),
            *[Text(count_text(column.distinct), "dim")] * has_distinct,
        )
    return table


def _name_cell(column: ReportColumn, depth: int) -> Text:
    name = Text("  " * bool(depth) + path_text(column.path[depth:]), "bold" if column.evolved_from else "")
    return name.append(f" ← {printable(column.evolved_from)}", "not bold magenta") if column.evolved_from else name


def _type_cell(column: ReportColumn, length: int) -> Text:
    history = "".join(f"{old} → " for old in column.types_before)
    return Text(history, "dim").append(type_text(column.type, max(length, 20)), "cyan")


def _bar(share: float | None, width: int) -> Text:
    if share is None:
        return Text(UNKNOWN_TEXT, "dim")
    full = int(share * width) or int(share > 0 and width > 0)
    bar = Text("█" * full, "green").append("░" * (width - full), "dim")
    return bar.append(f" {share_text(share):>6}" if width else share_text(share))


def _span(first: VersionTime | None, last: VersionTime | None) -> str:
    if first is None or last is None:
        return UNKNOWN_TEXT
    begin, end = (
        f"v{moment.version}" if moment.version <= _LAST_SHORT_VERSION else moment_text(moment.time_ms)[:10]
        for moment in (first, last)
    )
    return begin if begin == end else f"{begin} … {end}"


_LAST_SHORT_VERSION = 999_999_999
"""The ids of Iceberg's snapshots are longer, and two of them would leave no room for the other columns."""


def _timeline(intervals: Sequence[IntervalRecord]) -> Iterator[RenderableType]:
    for interval in intervals:
        head = Text.assemble(
            (f"  v{interval.moment.version}", "bold"),
            (f"  {moment_text(interval.moment.time_ms)}  ", "dim"),
            printable(interval.operation),
        )
        if interval.is_first:
            plain_columns = len(interval.schema_changes) - len(interval.listed_changes)
            head.append(f": created the table with {count_noun(plain_columns, 'column')}")
        yield head
        if interval.listed_changes:
            yield Padding(changes_table(interval.listed_changes), (0, 0, 0, 2))


def _intervals_table(intervals: Sequence[IntervalRecord]) -> Table:
    has_corrupt = any(interval.corrupt for interval in intervals)
    counts = ("records", *["corrupt"] * has_corrupt, "files", "size", "changes")
    table = table_of("version", "time (UTC)", "operation", *counts)
    for column in (table.columns[0], *table.columns[3:]):
        column.justify, column.no_wrap = "right", True
    table.columns[1].min_width = len("2026-01-31")
    for interval in intervals:
        table.add_row(
            Text(str(interval.moment.version), "bold"),
            Text(moment_text(interval.moment.time_ms), "dim"),
            Text(printable(interval.operation)),
            Text(count_text(interval.records)),
            *[Text(count_text(interval.corrupt), "red" if interval.corrupt else "dim")] * has_corrupt,
            Text(count_text(interval.files)),
            Text(size_text(interval.size_bytes)),
            Text(count_text(len(interval.schema_changes))),
        )
    return table


# The loads of a table for the terminal.


PATH_LENGTHS = (1 << 16, 80, 60, 50, 40, 30, 20)
"""Maximum lengths of paths in a table, tried in order until the table fits."""


def loads_parts(location: str, loads: Sequence[Load], *, lists_files: bool) -> Iterator[RenderableType]:
    """Yield the loads of a table, one row per load, or one per file."""
    yield title_part(location)
    files = [file for load in loads for file in load.files]
    size = size_text(sum(file.size_bytes for file in files))
    skipped = sum(not file.parked for load in loads for file in load.bad_files)
    parked = len(parked_files(loads))
    facts = [count_noun(len(loads), "load"), count_noun(len(files), "file"), size]
    counts = ((skipped, "skipped"), (parked, "parked"))
    yield facts_line(*facts, *(f"{count_noun(count, 'file')} {words}" for count, words in counts if count))
    if lists_files:
        yield Fitting(lambda length: (_file_table if length else _file_list)(loads), (1, 0))
    else:
        yield Fitting(partial(_load_table, loads), PATH_LENGTHS)


def _load_table(loads: Sequence[Load], length: int) -> Table:
    counts = {
        "files": [len(load.files) for load in loads],
        "records": [load.records for load in loads],
        "corrupt": [load.corrupt for load in loads],
        "quarantined": [load.quarantined_records for load in loads],
        "skipped": [len(load.bad_files) for load in loads],
    }
    shown = {name: numbers for name, numbers in counts.items() if name in ("files", "records") or any(numbers)}
    table = table_of("version", "time (UTC)", *shown, "first file")
    table.columns[1].min_width = len("2026-01-31")
    for column in (table.columns[0], *table.columns[2:-1]):
        column.justify = "right"
    for load, *numbers in zip(loads, *shown.values(), strict=True):
        table.add_row(
            Text(str(load.version), "bold"),
            Text(moment_text(load.loaded_ms), "dim"),
            *(Text(count_text(number)) for number in numbers),
            Text(next((_end_of(printable(file.path), length) for file in (*load.files, *load.bad_files)), "")),
        )
    return table


def _end_of(path: str, length: int) -> str:
    """Return at most that many characters from the end of a path, which tells files apart."""
    return path if len(path) <= length else f"…{path[1 - length :]}"


def _file_table(loads: Sequence[Load]) -> RenderableType:
    table = table_of("version", "file", "size", "modified (UTC)")
    table.columns[0].justify = table.columns[2].justify = "right"
    for load, file, path in _listed_files(loads):
        size, modified = Text(size_text(file.size_bytes)), Text(moment_text(file.modified_ms), "dim")
        table.add_row(Text(str(load.version), "bold"), path, size, modified)
    return table


def _file_list(loads: Sequence[Load]) -> RenderableType:
    """Return the files with their paths on lines of their own."""
    parts: list[RenderableType] = []
    for load, file, path in _listed_files(loads):
        facts = f"  {size_text(file.size_bytes)}, modified {moment_text(file.modified_ms)} UTC"
        parts += [Text.assemble((f"version {load.version}", "bold"), (facts, "dim")), path]
    return Group(*parts)


def _listed_files(loads: Sequence[Load]) -> Iterator[tuple[Load, LoadedFile, Text]]:
    for load in loads:
        for file in (*load.files, *load.bad_files):
            path = Text(printable(file.path))
            if file in load.bad_files:
                reason = f"parked: {printable(file.parked)}" if file.parked else "skipped: it could not be read"
                path.append(f"  {reason}", "bold red")
            yield load, file, path
