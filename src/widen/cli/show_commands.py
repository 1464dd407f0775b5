"""The commands that only read: ``show``, ``history``, ``report``, ``read``, ``explain`` and the like."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.output import ensure_output_writable, note, progress, show_json, writing
from widen.cli.output import show as show_parts
from widen.cli.reader_commands import to_names
from widen.cli.row_output import Format, RowForm, show_query, show_rows, to_row_form
from widen.errors import InvalidOption, SparkUnavailable, TableError
from widen.errors.tables import first_line
from widen.model.display import Step

if TYPE_CHECKING:
    import pyarrow as pa

    from widen.files.footers import OldType
    from widen.iceberg.snapshots import ReadPoint, SnapshotReference
    from widen.log.snapshot import Snapshot
    from widen.model.types import StructType
    from widen.report.table_report import Report
    from widen.spark.spark_types import DataFrame, SparkSession
    from widen.table import IcebergTable, Table
    from widen.table.open_table import OpenTable
    from widen.table.results import Loads, SchemaDiff

FILES_WITHOUT_SPARK = 4096
"""Up to this number of files, their types are read without Spark."""


def show_table(
    table: shared_options.Table,
    version: shared_options.Version = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show the columns, files, protocol and properties of a table. Also lists files with old types."""
    from widen.protocol.type_widening import has_type_changes
    from widen.report import terminal
    from widen.report.terminal import summarize_table

    snapshot = _open_table(table, storage_option, version)
    old_types = find_old_types(snapshot) if has_type_changes(snapshot.schema) else ([], "")
    outline = summarize_table(snapshot, *old_types)
    if json:
        show_json(outline.to_value())
    else:
        show_parts(terminal.summary_parts(outline))


def history(
    table: shared_options.Table,
    limit: shared_options.Limit = None,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show the versions of a table, newest first. Also shows what each one changed."""
    from widen.report import terminal
    from widen.report.build_report import read_history
    from widen.report.text_format import shown_intervals

    snapshot = _open_table(table, storage_option)
    intervals = shown_intervals(read_history(snapshot, limit), samples.value)
    if json:
        show_json([{**interval.to_value(), "parameters": dict(interval.parameters)} for interval in intervals])
    else:
        show_parts(terminal.history_parts(snapshot.location, intervals))


def contract(
    table: shared_options.Table,
    version: shared_options.Version = None,
    format: shared_options.ContractFormat = shared_options.ContractForm.JSON_SCHEMA,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write the fields and types of a table as a contract. Check batches against it with widen plan --contract."""
    from widen.evolution.unify import build_contract

    snapshot = _open_table(table, storage_option, version)
    contract = build_contract(snapshot.schema, snapshot.location.rstrip("/").rpartition("/")[2])
    show_contract(contract, snapshot.location, snapshot.version, format)


def show_contract(
    contract: Mapping[str, Any], location: str, version: int | None, form: shared_options.ContractForm
) -> None:
    """Write a contract in one of its forms."""
    from widen.json.contract import to_odcs

    if form is shared_options.ContractForm.ODCS:
        sys.stdout.write(to_odcs(contract, location, version))
    else:
        show_json(contract)


def diff(
    table: shared_options.Table,
    old: Annotated[int, typer.Option("--from", min=0, metavar="VERSION", help="The earlier version.")],
    new: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="VERSION", help="The version to compare it with; by default the newest."),
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show how the schema changed between versions. Each change comes with its reasons."""
    from widen.log.snapshot import open_snapshot
    from widen.table.results import diff_versions

    now = _open_table(table, storage_option, new)
    show_diff(diff_versions(open_snapshot(now.store, old), now), "version", json=json)


def show_diff(difference: SchemaDiff, version: str, *, json: bool) -> None:
    """Show the difference between two versions of a table of either format."""
    from widen.report import terminal

    if json:
        show_json(difference.to_value())
    elif difference.changes:
        show_parts([terminal.changes_table(difference.changes)])
    else:
        note(f"The schema of {version} {difference.new} is that of {version} {difference.old}.")


def loads(
    table: shared_options.Table,
    files: Annotated[bool, typer.Option("--files", help="List every file, not only the loads.")] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show which source files a table has loaded, oldest first."""
    from widen.log.loads import read_loads
    from widen.table.results import Loads

    snapshot = _open_table(table, storage_option)
    loaded = Loads(read_loads(snapshot))
    show_loads(snapshot.location, loaded, lists_files=files, json=json)


def show_loads(location: str, loads: Loads, *, lists_files: bool, json: bool) -> None:
    """Show the loads of a table of either format."""
    from widen.report.terminal import loads_parts

    if json:
        show_json(loads.to_value())
    elif loads:
        show_parts(loads_parts(location, loads, lists_files=lists_files))
    else:
        note("No load of files is recorded.")


def report(
    table: shared_options.Table,
    json: shared_options.Json = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as an HTML page.")
    ] = None,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    scan: Annotated[
        bool, typer.Option("--scan", help="Also read every row, for values in arrays, distinct counts and samples.")
    ] = False,
    footers: Annotated[
        bool | None,
        typer.Option(
            "--footers/--no-footers",
            help="Read the footers of files whose columns the log does not count; by default of at most 64.",
        ),
    ] = None,
    acknowledge: shared_options.Acknowledge = None,
    readers: shared_options.OtherReaders = None,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show the data in each column, and how the schema changed."""
    from widen.report.build_report import FooterUse, build_report
    from widen.table import Table

    ensure_output_writable(html)
    snapshot, storage = _open_table(table, storage_option), shared_options.storage(storage_option)
    if acknowledge:
        before = build_report(snapshot, FooterUse("automatic"))
        opened = Table(table, storage)
        acknowledge_decisions(before, opened, acknowledge)
        snapshot = opened.snapshot
    use = {None: "automatic", True: "all", False: "none"}[footers]
    built = build_report(snapshot, FooterUse(use))
    if scan:
        from widen.frames.scan import read_snapshot

        read = partial(read_snapshot, store=snapshot.store, snapshot=snapshot)
        built = scan_rows(built, snapshot.schema, read)
    predicted = [] if readers is None else Table(table, storage).readers(*to_names(readers))
    show_report(replace(built, readers=tuple(predicted)), samples, html, json=json)


def acknowledge_decisions(report: Report, table: OpenTable, subjects: Sequence[str]) -> None:
    """Record that decisions of a report are made.

    Raises:
        InvalidOption: the report does not ask for one of them.
    """
    from widen.report.report_summary import find_open_subjects

    asked = find_open_subjects(report)
    for subject in subjects:
        if subject not in asked:
            expected = f"The report asks about {', '.join(asked)}." if asked else "The report asks for no decision."
            raise InvalidOption(option="--acknowledge", value=subject, expected=expected)
    table.acknowledge(*subjects)
    note(f"acknowledged: {', '.join(subjects)}")


def scan_rows(report: Report, schema: StructType, read: Callable[[SparkSession], DataFrame]) -> Report:
    """Return a report with numbers from all rows of its table."""
    from widen.report.build_report import scan_report

    with progress("starting Spark") as update:
        spark = update.watch(output.spark_session("it counts values in all rows"))
        update(Step("reading the rows", report.size_bytes, report.rows or 0))
        return scan_report(read(spark), schema, report)


def show_report(report: Report, samples: shared_options.Shown, html: Path | None, *, json: bool) -> None:
    """Show the report of a table of either format, or write it as a page."""
    from widen.report.html_page import render_page
    from widen.report.report_summary import summarize_report
    from widen.report.terminal import report_parts
    from widen.report.text_format import mask_report

    report = mask_report(report, samples.value)
    if html is not None:
        text = render_page(report)
        with writing(html):
            html.write_text(text, encoding="utf-8")
        note(f"wrote {html}")
    if json:
        show_json({**report.to_value(), "summary": summarize_report(report).to_value()})
    elif html is None:
        show_parts(report_parts(report))


def read(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    version: shared_options.Version = None,
    timestamp: Annotated[
        str | None, typer.Option(help="The newest version at that time, e.g. 2024-01-31 12:00:00Z.")
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help='A condition in SQL, e.g. "total > 100".')] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="Columns or expressions in SQL, with commas between them; can be repeated."),
    ] = None,
    unified: Annotated[bool, typer.Option("--unified", help="One column for each source field.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of rows; by default 20, with --json or --format all.")
    ] = None,
    format: Format = RowForm.TABLE,
) -> None:
    """Show rows in the current types of the columns. With --json, one object per line."""
    from widen.table import Table

    form = to_row_form(format, json=call.json)
    with progress("reading"):
        opened = Table(table, call.storage)
    point: dict[str, Any] = {"version": version, "timestamp": timestamp}
    names = split_selected(select)
    if show_query(partial(query_table, opened, where, names, unified=unified, **point), limit, form):
        return
    with progress("reading"):
        frame = select_rows(opened, where, names, unified=unified, **point)
    show_rows(frame, limit, form)


def query_table(
    table: Table,
    where: str | None,
    select: Sequence[str],
    limit: int | None,
    *,
    unified: bool,
    version: int | None,
    timestamp: str | None,
) -> tuple[StructType, pa.Table]:
    """Return rows of a version, read without Spark."""
    from widen.files.expressions import query_locally
    from widen.log.commit_files import to_ms
    from widen.log.snapshot import open_snapshot

    snapshot = table.snapshot
    if version is not None or timestamp is not None:
        at_ms = None if timestamp is None else to_ms(timestamp)
        snapshot = open_snapshot(table.store, version, at_ms)
    return query_locally(snapshot, where, select, limit, unified=unified)


def query_iceberg_table(
    table: IcebergTable,
    wanted: SnapshotReference,
    where: str | None,
    select: Sequence[str],
    limit: int | None,
    *,
    unified: bool,
    row_lineage: bool,
) -> tuple[StructType, pa.Table]:
    """Return rows of a snapshot, read without Spark.

    Raises:
        Unsupported: only Spark can do that exactly.
    """
    from widen.files.expressions import query_files
    from widen.frames.iceberg_scan import IcebergSource, open_queried_files
    from widen.iceberg.properties import read_sources
    from widen.iceberg.schema_conversion import to_readable
    from widen.iceberg.snapshots import find_read_point
    from widen.spark.engine import Unsupported

    if row_lineage:
        raise Unsupported("it reads row ids")
    point = find_read_point(table.table.metadata, wanted)
    schema = to_readable(point.schema, read_sources(table.properties, table.name))
    source = IcebergSource(
        partial(output.spark_session, "the table has deletes that only Spark applies"), table.table.io, point
    )
    return query_files(schema, partial(open_queried_files, source, schema), where, select, limit, unified=unified)


def note_left_out(point: ReadPoint, texts: Iterable[str | None] = ()) -> None:
    """Name the columns of an Iceberg table that are not shown, because Spark has no type for them."""
    from widen.iceberg.schema_conversion import ensure_texts_readable, find_unreadable

    ensure_texts_readable(point.schema, texts)
    left_out = find_unreadable(point.schema)
    if left_out.types:
        note(f"without {left_out}: Spark has no type for the values")


def _open_table(table: str, storage_option: list[str] | None, version: int | None = None) -> Snapshot:
    from widen.log.log_store import LogStore
    from widen.log.snapshot import open_snapshot

    return open_snapshot(LogStore(table, shared_options.storage(storage_option)), version)


def find_old_types(snapshot: Snapshot) -> tuple[list[OldType] | None, str]:
    """Return the old types in the files of a table, or the reason why they cannot be read."""
    from widen.files.footers import find_old_files, summarize_old_types
    from widen.spark.engine import open_session

    try:
        old_files = find_old_files(open_session, snapshot, snapshot.files(), FILES_WITHOUT_SPARK)
        return summarize_old_types(old_files), ""
    except (TableError, SparkUnavailable) as error:
        return None, error.message


def split_selected(select: Sequence[str] | None) -> list[str]:
    """Return each column and expression of ``--select``; commas in quotes and parentheses divide nothing.

    Raises:
        InvalidOption: a quote is not closed, or there is nothing beside a comma.
    """
    if not any("," in each for each in select or ()):
        return list(select or ())
    from widen.errors import InvalidStatement
    from widen.sql_commands.grammar import split_list

    columns = []
    for each in select or ():
        try:
            columns += split_list(each)
        except InvalidStatement as error:
            expected = "Must be columns or expressions with commas between them; close every quote."
            raise InvalidOption(option="--select", value=each, expected=expected) from error
    return columns


def select_rows(
    table: Table | IcebergTable, where: str | None, select: Sequence[str], *, unified: bool, **point: Any
) -> DataFrame:
    """Return rows of a table of either format.

    Args:
        point: The version or the timestamp to read, and other arguments that the table's ``read`` takes.

    Raises:
        InvalidOption: Spark cannot evaluate the condition or an expression, or two columns have one name.
    """
    from widen.spark.spark_types import spark_errors

    spark, failures = output.spark_session("it evaluates expressions of SQL"), spark_errors()
    try:
        frame = table.read(where, unified=unified, spark=spark, **point)
        chosen = frame.selectExpr(*select) if select else frame
    except failures as error:
        given = ", ".join(filter(None, (*select, where)))
        expected = f"Spark says: {first_line(error)}."
        raise InvalidOption(option="--where or --select", value=given, expected=expected) from error
    twice = next((name for name in chosen.columns if chosen.columns.count(name) > 1), None)
    if twice is not None:
        raise InvalidOption(option="--select", value=twice, expected="Duplicate column name; add an alias with AS.")
    return chosen


def explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODE]...", help="Rules such as U8, D2 or V5; without one, the list of all rules."),
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Explain rules of schema evolution by their codes."""
    from widen.report.html_page import evolution_rules, find_rule

    rules = [find_rule(each) for each in code or evolution_rules()]
    if json:
        show_json([msgspec.to_builtins(rule) for rule in rules])
        return
    for rule in rules:
        show_parts([Text.assemble((f"{rule.code}  ", "bold cyan"), (rule.title, "bold"))])
        if code:
            show_parts([Padding(Text(rule.text), (0, 0, 1, 2))])
