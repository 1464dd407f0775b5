"""What the commands print: summaries, histories, plans, rows, breaches of contracts, the report and the loads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from widen.evolution.plan import (
    HOW_TO_TURN_ON,
    IN_ANOTHER_CASE,
    LOST_SOURCES,
    OLDER_READERS,
    OVER_LIMITS,
    READERS,
    RENAMED_FIELDS,
    TURNED_ON,
    WOULD_WIDEN,
    Plan,
    QuarantinedField,
    RescuedField,
    fold_reasons,
)
from widen.evolution.schema_changes import GRADES, ColumnChange, plan_changes
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, fields, format_path
from widen.model.display import shorten
from widen.model.schema_json import type_to_value
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.table_features import supported_features
from widen.protocol.type_widening import strip_type_changes, type_changes
from widen.report.report_summary import ReportSummary, Status, summarize_report
from widen.report.stopped_field import VersionTime
from widen.report.table_report import IntervalRecord, Report, ReportColumn
from widen.report.text_format import (
    SIGNS,
    UNKNOWN_TEXT,
    brief_type,
    change_cells,
    count_noun,
    count_text,
    interval_text,
    least_text,
    moment_text,
    path_text,
    printable,
    sample_text,
    share_text,
    shown_position,
    size_text,
    type_text,
    value_text,
    values_text,
)
from widen.schema.source_metadata import COMMENT, EVOLVED_FROM, shared_source_keys

if TYPE_CHECKING:
    from widen.batches.text_batch import ContractReport
    from widen.files.footers import OldType
    from widen.log.load_segments import Load, LoadedFile
    from widen.report.reader_predictions import Prediction


GRADE_STYLES = {"additive": "green", "widening": "cyan", "conflict": "yellow", "structural": "magenta"}
MAX_LISTED = 40
"""The maximum number of items of a list in a plan."""
NULL_TEXT = "·"
SHORTEST_TYPE = 28
"""Up to this length, types are shown in full on the narrowest terminal."""

LENGTHS = (28, 20, 14, 10, 0)
"""Maximum lengths of values in a table, tried in order until the table fits; 0 drops the value columns."""


_Item = TypeVar("_Item")


class Fitting:
    """A part that shortens its values until it fits the terminal."""

    def __init__(self, make: Callable[[int], RenderableType], lengths: Sequence[int] = LENGTHS) -> None:
        self._make = make
        self._lengths = lengths

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(width=_UNLIMITED)
        for length in self._lengths:
            part = self._make(length)
            if Measurement.get(console, unlimited, part).maximum <= options.max_width:
                break
        yield part


_UNLIMITED = 1 << 16


# ---- summary ---------------------------------------------------------------------------------------


def summary_parts(summary: TableSummary) -> Iterator[RenderableType]:
    """Yield the summary of a table, part by part."""
    yield title_part(summary.location)
    facts = (count_noun(summary.files, "file"), size_text(summary.size_bytes))
    yield facts_line(version_text(summary.moment), *facts, *_partition_fact(summary.partition_by))
    protocol = f"protocol: reader {summary.reader_version}, writer {summary.writer_version}"
    yield facts_line(protocol, *map(printable, summary.features))
    yield _summary_table(summary.lines)
    if summary.old_types or summary.obstacle:
        yield heading_part("Files in old types (`widen rewrite` converts them)")
        yield _old_types_table(summary.old_types) if summary.old_types else Text(f"  not known: {summary.obstacle}")
    if summary.properties:
        yield heading_part("Properties")
        yield pairs_table(summary.properties.items())


FIELDS = "filled from"
"""The heading of the fields that fill a column, if these are several."""


def _summary_table(lines: Sequence[SummaryLine]) -> Table:
    table = table_of("column", "type", "null")
    has_evolved, has_steps = any(line.evolved_from for line in lines), any(line.steps for line in lines)
    has_comments = any(_own_comment(line) for line in lines)
    has_sources = any(line.sources for line in lines)
    for is_shown, name in (
        (has_evolved, "evolved from"),
        (has_sources, FIELDS),
        (has_steps, "type history"),
        (has_comments, "comment"),
    ):
        if is_shown:
            table.add_column(name)
    for line in lines:
        cells = [_indent(line), Text(line.brief_type, "cyan"), Text("yes" if line.nullable else "no", "dim")]
        cells += [Text(printable(line.evolved_from), "magenta")] if has_evolved else []
        cells += [Text(printable(", ".join(line.sources)))] if has_sources else []
        cells += [Text("; ".join(map(_step_text, line.steps)))] if has_steps else []
        cells += [Text(printable(_own_comment(line)), "dim")] if has_comments else []
        table.add_row(*cells)
    return table


def _old_types_table(old_types: Sequence[OldType]) -> Table:
    table = table_of("column", "old type", "files", "size")
    for old in old_types:
        table.add_row(path_text(old.path), Text(old.type, "cyan"), count_text(old.files), size_text(old.size_bytes))
    return table


def _indent(line: SummaryLine) -> Text:
    return Text("  " * line.depth + path_text(line.relative_path))


def _own_comment(line: SummaryLine) -> str:
    return "" if line.evolved_from and line.comment.startswith("evolved_from:") else line.comment


def _step_text(step: TypeStep) -> str:
    prefix = f"{path_text(step.path)}: " if step.path else ""
    return f"{prefix}{step.old} → {step.new}"


def _partition_fact(partition_by: Sequence[str]) -> tuple[str, ...]:
    return (f"partitioned by {', '.join(map(printable, partition_by))}",) if partition_by else ()


# ---- history ---------------------------------------------------------------------------------------


def history_parts(location: str, intervals: Sequence[IntervalRecord]) -> Iterator[RenderableType]:
    """Yield the history of a table, one row per commit."""
    yield title_part(location)
    table = table_of("version", "time (UTC)", "operation", "changes")
    table.columns[0].justify = "right"
    for interval in intervals:
        description = Text("\n").join(map(Text, interval_text(interval) or [UNKNOWN_TEXT]))
        moment = interval.moment
        operation = Text(printable(interval.operation))
        table.add_row(
            Text(str(moment.version), "bold"), Text(moment_text(moment.time_ms), "dim"), operation, description
        )
    yield table


def commit_parts(location: str, interval: IntervalRecord) -> Iterator[RenderableType]:
    """Yield the version and the changes of a new commit."""
    yield version_line(interval.moment.version, location)
    yield from (Text(f"  {line}") for line in interval_text(interval))


def version_line(version: int, location: str) -> Text:
    """Return the line with the new version."""
    return Text.assemble(("✓ ", "bold green"), (f"version {version}", "bold"), f" of {printable(location)}")


# ---- plan ------------------------------------------------------------------------------------------


def plan_parts(plan: Plan) -> Iterator[RenderableType]:
    """Yield the changes of a plan with their reasons, then options without effect and fields that it does not add."""
    heading = "Changes: a new table" if plan.creates_table else "Changes"
    for title, operations in ((heading, plan.operations), ("Refused by the policy", plan.refused)):
        if operations:
            yield heading_part(title)
            yield from _fold_items(plan_changes(operations, plan.events), changes_table)
    for title, warnings in (
        (OVER_LIMITS, plan.over_limits),
        ("Options without effect", plan.unmatched),
        ("Skipped, because they cannot be read or are over a limit", plan.bad_files),
    ):
        if warnings:
            yield heading_part(title)
            yield from (Text(f"  {printable(str(each))}", "bold red") for each in warnings)
    if plan.lost_sources:
        yield heading_part(LOST_SOURCES)
        yield Text(f"  {printable(plan.lost_sources)}")
    if plan.enables_widening:
        yield heading_part(TURNED_ON)
        yield Text(f"  {OLDER_READERS}")
    if plan.widenable:
        yield heading_part(WOULD_WIDEN)
        lines = [*map(str, plan.widenable[:MAX_LISTED]), *HOW_TO_TURN_ON]
        yield from (Text(f"  {printable(line)}") for line in lines)
    details: tuple[tuple[str, Sequence[tuple[str, str]]], ...] = (
        (IN_ANOTHER_CASE, [(path_text(each.name), path_text(each.source)) for each in plan.in_another_case]),
        (RENAMED_FIELDS, [(path_text(each.name), path_text(each.source)) for each in plan.renamed]),
        ("Objects that look like maps", [(path_text(each.source), str(each)) for each in plan.maps]),
        ("Stored in the rescue column", [(path_text(r.source), _rescued_text(r)) for r in plan.rescued]),
        ("Quarantined", [(path_text(q.source), _quarantined_text(q)) for q in plan.quarantined]),
        ("Rounded to double", [(path_text(r.source), count_noun(r.count, "number")) for r in plan.rounded]),
        (
            "Waiting for a first value",
            [(path_text(p.source), _waiting_text(p.nulls, p.empty, p.empty_records)) for p in plan.pending],
        ),
    )
    for title, pairs in details:
        if pairs:
            yield heading_part(title)
            yield from _fold_items(pairs, pairs_table)
    if plan.readers:
        yield heading_part(READERS)
        yield _readers_table((each.title, each.version, each.after, each.change, each.reasons) for each in plan.readers)


ReaderRow: TypeAlias = tuple[str, str, str, str, tuple[str, ...]]
"""What a reader does: its title and version, the outcome, how that is shown, and the reasons."""

_OUTCOMES = {"reads": "green", "refuses": "yellow", "wrong": "bold red"}
"""The styles of what readers do."""


def predictions_table(predictions: Iterable[Prediction]) -> RenderableType:
    """Return the table of what readers do with a table as it is."""
    return _readers_table(
        (each.reader.title, each.reader.version, each.outcome.value, each.shown, each.because) for each in predictions
    )


def _readers_table(rows: Iterable[ReaderRow]) -> RenderableType:
    shown = table_of("reader", "version", "", "because of")
    for title, version, outcome, text, reasons in rows:
        shown.add_row(
            title, version, Text(text, _OUTCOMES[outcome]), Text("\n".join(fold_reasons(reasons, MAX_LISTED)))
        )
    return shown


def _fold_items(items: Sequence[_Item], show: Callable[[Sequence[_Item]], RenderableType]) -> Iterator[RenderableType]:
    """Yield the first items, and how many more there are."""
    yield show(items[:MAX_LISTED])
    if len(items) > MAX_LISTED:
        yield Text(f"  … and {count_text(len(items) - MAX_LISTED)} more; --json lists all", "dim")


def _rescued_text(rescued: RescuedField) -> str:
    return f"{least_text(rescued.count, at_least=rescued.at_least)} {' and '.join(rescued.kinds)}: {rescued.reason}"


def _quarantined_text(field: QuarantinedField) -> str:
    return f"{count_text(field.count)} {' and '.join(field.kinds)}: the column is {field.column}"


def _waiting_text(*counts: int) -> str:
    pairs = zip(counts, ("null", "[]", "{}"), strict=True)
    return ", ".join(f"{count_text(count)} × {what}" for count, what in pairs if count)


def changes_table(changes: Sequence[ColumnChange]) -> Fitting:
    """Return column changes as a table with their grade, rule and first value."""
    return Fitting(partial(_changes_table, changes))


def _changes_table(changes: Sequence[ColumnChange], length: int) -> Group:
    value_columns = ("first seen", "at") if length else ()
    table = table_of("", "column", "change", "grade", "rule", "values", *value_columns)
    for change in changes:
        cells, style = change_cells(change), GRADE_STYLES.get(change.grade, "")
        table.add_row(
            Text(SIGNS[change.what], style),
            Text(cells.column),
            _change_cell(change, length),
            Text(cells.grade, style),
            Text(cells.rule, "dim"),
            Text(cells.values),
            *((Text(shorten(cells.sample, length)), Text(cells.at, "dim")) if length else ()),
        )
    return Group(table, *(() if length else map(_first_value_line, filter(_is_notable, changes))))


def _is_notable(change: ColumnChange) -> bool:
    """Return whether a change is for values that readers may stumble over, or for lines that are not records."""
    main = change.reasons[0] if change.reasons else None
    return main is not None and bool(main.file) and (change.grade in GRADES[2:] or not main.kinds)


def _first_value_line(change: ColumnChange) -> Text:
    """Return where the first value came from, for a table too narrow to say so."""
    main = change.reasons[0]
    value = f" {shorten(sample_text(main), LENGTHS[0])}" if main.sample else ""
    return Text.assemble("  ", path_text(change.column), f": first seen{value} at ", (shown_position(main), "dim"))


def _change_cell(change: ColumnChange, length: int) -> Text:
    limit = max(length + 8, SHORTEST_TYPE)
    new = Text(type_text(change.new, limit), "cyan")
    if not change.old:
        back = f" (again; {change.dropped_in} dropped it)" if change.dropped_in else ""
        return new.append(printable(back), "yellow")
    old = Text(type_text(change.old, limit), "dim")
    return old if not change.new else Text(" → ").join((old, new))


# ---- rows ------------------------------------------------------------------------------------------


def rows_parts(columns: Sequence[str], rows: Sequence[str], *, folds: bool = False) -> Iterator[RenderableType]:
    """Yield rows as a table, or below each other if the table is too wide; a null is a dot.

    Args:
        rows: Each row as a JSON object; numbers are shown as written there.
        folds: Whether a table that is too wide wraps its values instead.
    """
    decoded = [_decoder.decode(row) for row in rows]
    cells = [[_cell(bytes(row.get(name, _NULL)).decode()) for name in columns] for row in decoded]
    yield _Rows(columns, cells, folds=folds)


class _Rows:
    """Rows as a table, or below each other."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Text]], *, folds: bool) -> None:
        self._columns, self._rows, self._folds = columns, rows, folds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Measuring thousands of columns takes seconds, and each takes a character and the spaces between two columns.
        may_fit = self._folds or 3 * len(self._columns) - 2 <= options.max_width
        if may_fit:
            table = _rows_table(self._columns, self._rows)
            unlimited = options.update(width=_UNLIMITED)
            may_fit = self._folds or Measurement.get(console, unlimited, table).maximum <= options.max_width
        yield table if may_fit else _rows_list(self._columns, self._rows)


def _rows_table(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = table_of(*map(printable, columns))
    for row in rows:
        table.add_row(*row)
    return table


def _rows_list(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> Group:
    """Return rows with their columns below each other, without nulls."""
    parts: list[RenderableType] = []
    for number, row in enumerate(rows, 1):
        pairs = [(printable(name), cell) for name, cell in zip(columns, row, strict=True) if cell.plain != NULL_TEXT]
        parts += [Text(f"row {number}", "dim"), _PairLines(pairs)]
    return Group(*parts)


class _PairLines:
    """Names and values below each other. A table of thousands of lines takes seconds to measure."""

    def __init__(self, pairs: Sequence[tuple[str, Text]]) -> None:
        self._pairs = pairs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max((cell_len(name) for name, _ in self._pairs), default=0)
        room = options.max_width - width - 4
        if any("\n" in cell.plain or cell_len(cell.plain) > room for _, cell in self._pairs):
            yield pairs_table(self._pairs)
            return
        dim = console.get_style("dim")
        for name, cell in self._pairs:
            yield Segment(f"  {name}{' ' * (width - cell_len(name) + 2)}", dim)
            yield Segment(cell.plain, console.get_style(cell.style))
            yield Segment.line()


_decoder, _NULL = msgspec.json.Decoder(dict[str, msgspec.Raw]), msgspec.Raw(b"null")


def _cell(text: str) -> Text:
    if text == "null":
        return Text(NULL_TEXT, "dim")
    if text.startswith('"'):
        return Text(printable(msgspec.json.decode(text, type=str)))
    return Text(printable(text), "" if text[0] in "[{tf" else "cyan")


# ---- contracts -------------------------------------------------------------------------------------

_MAX_BREACHES = 20


def contract_parts(report: ContractReport) -> Iterator[RenderableType]:
    """Yield each kind of breach with its number, then the first breaches with their places."""
    records = count_noun(report.records, "record")
    for rule in report.unchecked:
        yield Text(f"Not checked: {printable(rule)}", "dim")
    if not report.breaches:
        yield Text(f"The contract holds for {records}.")
        return
    yield heading_part(f"The contract is broken {count_noun(report.breaches, 'time')} in {records}")
    counts = table_of("field", "reason", "times")
    for path, reason, count in sorted(report.counts, key=lambda each: -each[2])[:_MAX_BREACHES]:
        counts.add_row(Text(printable(path or "other fields")), Text(printable(reason)), Text(count_text(count)))
    yield counts
    for file, number, path, reason in report.listed[:_MAX_BREACHES]:
        yield Text(f"  {printable(file)}:{number}: {printable(path)} {printable(reason)}")
    if report.breaches > _MAX_BREACHES:
        yield Text(f"  … and {count_text(report.breaches - _MAX_BREACHES)} more; --json lists the first 100", "dim")


# Shared building blocks of the terminal output.


def table_of(*names: str) -> Table:
    """Return an empty table with the named columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", padding=(0, 1), show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def title_part(location: str) -> RenderableType:
    """Return the name of a table with its location below."""
    name = location.rstrip("/").rpartition("/")[2] or location
    title = Text(printable(name), "bold")
    # The name of an Iceberg table is all that there is to say.
    return title if name == location else Group(title, Text(printable(location), "dim"))


def heading_part(text: str) -> Text:
    """Return the heading of a part."""
    return Text(f"\n{text}", "bold")


def version_text(moment: VersionTime) -> str:
    """Return a version with its time."""
    return f"version {moment.version}, {moment_text(moment.time_ms)} UTC"


def facts_line(*facts: str) -> Text:
    """Return facts as one line."""
    return Text(" · ".join(facts))


def pairs_table(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Return keys and values as a table."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in pairs:
        table.add_row(Text(f"  {printable(key)}", "dim"), Text(printable(value)) if isinstance(value, str) else value)
    return table


# The summary of a table: its columns, protocol, properties and size.


@dataclass(frozen=True, slots=True)
class TypeStep:
    """One recorded type change.

    Args:
        path: The path from the field to the leaf, of `element`, `key` and `value`; empty for the field itself.
        old: The type before it, in Spark SQL.
    """

    path: Path
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One column or nested field.

    Args:
        relative_path: Its path inside its parent field.
        type: Its type in Spark SQL.
        brief_type: Its type without nested fields.
        evolved_from: The source field, if it is a sibling of the column with the plain name; else empty.
        comment: Its comment; empty without one.
        steps: Its type history, oldest first.
        sources: The fields of records that fill it, if these are several.
    """

    path: Path
    relative_path: Path
    depth: int
    type: str
    brief_type: str
    nullable: bool
    evolved_from: str = ""
    comment: str = ""
    steps: tuple[TypeStep, ...] = ()
    sources: tuple[str, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        steps = [{"path": format_path(step.path), "from": step.old, "to": step.new} for step in self.steps]
        return {
            "column": format_path(self.path),
            "type": self.type,
            "nullable": self.nullable,
            "evolvedFrom": self.evolved_from or None,
            "comment": self.comment or None,
            "typeHistory": steps,
            **({"sources": list(self.sources)} if self.sources else {}),
        }


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The summary of one version of a table.

    Args:
        schema: The logical schema.
        lines: Its columns and nested fields, parents first.
        old_types: The files with old types, by column; None if they were not determined.
        obstacle: Why the old types could not be determined; else empty.
    """

    location: str
    moment: VersionTime
    files: int
    size_bytes: int
    reader_version: int
    writer_version: int
    features: tuple[str, ...]
    properties: Mapping[str, str]
    partition_by: tuple[str, ...]
    schema: StructType
    lines: tuple[SummaryLine, ...]
    old_types: tuple[OldType, ...] | None = None
    obstacle: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        protocol = {"minReaderVersion": self.reader_version, "minWriterVersion": self.writer_version}
        return {
            "location": self.location,
            **self.moment.to_value(),
            "files": self.files,
            "bytes": self.size_bytes,
            "protocol": {**protocol, "features": list(self.features)},
            "properties": dict(self.properties),
            "partitionBy": list(self.partition_by),
            "columns": [line.to_value() for line in self.lines],
            "oldTypes": None
            if self.old_types is None
            else [
                {"column": format_path(old.path), "type": old.type, "files": old.files, "bytes": old.size_bytes}
                for old in self.old_types
            ],
            "schema": type_to_value(self.schema),
        }


def summarize_table(snapshot: Snapshot, old_types: Sequence[OldType] | None = None, obstacle: str = "") -> TableSummary:
    """Return the summary of one version of a table.

    Args:
        old_types: The files with old types, by column; None if they were not determined.
        obstacle: Why the old types could not be determined; else empty.
    """
    files, size_bytes = snapshot.count_files()
    return TableSummary(
        snapshot.location,
        VersionTime(snapshot.version, snapshot.timestamp_ms),
        files,
        size_bytes,
        snapshot.protocol.min_reader_version,
        snapshot.protocol.min_writer_version,
        tuple(sorted(supported_features(snapshot.protocol))),
        dict(snapshot.properties),
        tuple(snapshot.partition_columns),
        strip_type_changes(snapshot.schema),
        tuple(_lines(snapshot.schema)),
        None if old_types is None else tuple(old_types),
        obstacle,
    )


def _lines(schema: StructType) -> Iterator[SummaryLine]:
    parents: list[Path] = []
    for path, field in fields(schema):
        parents = [parent for parent in parents if path[: len(parent)] == parent]
        steps = tuple(TypeStep(change.path, change.old.sql, change.new.sql) for change in type_changes(field))
        evolved, comment = (str(field.metadata.get(key) or "") for key in (EVOLVED_FROM, COMMENT))
        relative_path = path[len(parents[-1]) :] if parents else path
        types = (field.type.sql, brief_type(field.type))
        sources = shared_source_keys(field)
        yield SummaryLine(path, relative_path, len(parents), *types, field.nullable, evolved, comment, steps, sources)
        parents.append(path)


# The report: the summary first, then columns, schema changes and intervals.


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
    if report.readers:
        yield heading_part("Other readers")
        yield predictions_table(report.readers)
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
    from widen.log.loads import parked_files  # loads PyArrow, which most commands print without

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
    """Return at most that many characters from the end of a path, because the end identifies a file."""
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
