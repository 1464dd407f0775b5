"""The command that changes a column: ``alter``.

Source: Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.output import note, progress, show, show_json
from widen.cli.row_output import RowForm, show_query, show_rows, to_row_form
from widen.cli.show_commands import note_left_out, query_iceberg_table, query_table
from widen.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from widen.cli.output import StepDisplay
    from widen.evolution.plan import PlannedReader
    from widen.model.types import StructType
    from widen.schema.alter import ColumnChanges, NewColumn
    from widen.schema.operations import Operation
    from widen.spark.spark_types import SparkSession
    from widen.table import IcebergTable, Table
    from widen.table.open_table import TableVersion


def alter(
    table: shared_options.Table,
    column: Annotated[str, typer.Argument(help="The column, e.g. total or items.element.price.")],
    call: shared_options.OutputOptions,
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The wider type, e.g. bigint.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="The new comment.")] = None,
    nullable: Annotated[
        bool | None, typer.Option("--nullable/--not-null", help="Allow null, or forbid it; then no row may have null.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Move the column to the front.")] = False,
    after: Annotated[str | None, typer.Option(metavar="COLUMN", help="Move the column after this one.")] = None,
    default: Annotated[
        str | None, typer.Option(metavar="SQL", help="The default for new rows; with --add also for old ones.")
    ] = None,
    drop_default: Annotated[bool, typer.Option("--drop-default", help="Remove the default value.")] = False,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="The new name.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Fill it from this field of records, too, e.g. after a rename.")
    ] = None,
    drop_source: Annotated[str | None, typer.Option(metavar="FIELD", help="No longer fill it from this field.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the column; needs --type.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the column.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
) -> None:
    """Change, rename, add or drop a column. It is one commit, and rewrites no files."""
    from widen.table import Table

    values = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
    changes = requested_changes(
        **values, first=first, drop_default=drop_default, source=source, drop_source=drop_source
    )
    ensure_one_change(changes, rename=rename is not None, add=add, drop=drop)
    opened = Table(table, call.storage)
    operations = parse_operations(opened.snapshot.schema, column, changes, rename, add=add, drop=drop)
    if dry_run:
        _show_plan(opened, opened.plan_columns(operations), json=call.json)
        return
    before = opened.version
    with output.explain_start():
        changed = opened.change_columns(operations)
    report_change(before, changed, json=call.json)


def _planned_effects(
    table: Table, operations: Sequence[Operation]
) -> tuple[tuple[str, ...], tuple[PlannedReader, ...]]:
    """Return the table features that operations add and that readers must support, and the readers made wrong."""
    from widen.protocol.actions import Metadata, Protocol
    from widen.protocol.table_configuration import TableConfiguration
    from widen.protocol.table_features import added_reader_features
    from widen.report.delta_traits import readers_made_wrong
    from widen.schema.alter import plan_alter
    from widen.schema.table_state import to_table_state

    change = plan_alter(to_table_state(table.snapshot), operations)
    protocol, metadata = table.protocol, table.snapshot.metadata
    for action in change.actions if change else ():
        protocol = action if isinstance(action, Protocol) else protocol
        metadata = action if isinstance(action, Metadata) else metadata
    wrong = readers_made_wrong(table.snapshot, TableConfiguration(protocol, metadata))
    return added_reader_features(table.protocol, protocol), wrong


def _feature_facts(added: Sequence[str]) -> dict[str, object]:
    """Return what JSON says of the table features that a change adds; nothing without one."""
    from widen.protocol.table_features import TYPE_WIDENING
    from widen.schema.feature_removal import readers_without

    lost = sorted({name for feature in added for name in readers_without(feature)})
    facts: dict[str, object] = {"addedFeatures": list(added), "readersLost": lost} if added else {}
    return facts | ({"enablesTypeWidening": True} if TYPE_WIDENING in added else {})


def wrong_facts(readers: Sequence[PlannedReader]) -> dict[str, object]:
    """Return what JSON says of readers that return something wrong after a change; nothing without one."""
    import msgspec

    return {"readersWrong": [msgspec.to_builtins(each) for each in readers]} if readers else {}


def requested_changes(**options: Any) -> dict[str, Any]:
    """Return the options that ask for a change of a column."""
    return {key: value for key, value in options.items() if value is not None and (value or key not in _SWITCHES)}


_SWITCHES = ("first", "drop_default")


def ensure_one_change(changes: Mapping[str, Any], *, rename: bool, add: bool, drop: bool) -> None:
    """Check that the options ask for exactly one kind of change.

    Raises:
        typer.BadParameter: they ask for nothing, or for several things.
    """
    if not (changes or rename or drop or add):
        raise typer.BadParameter("No change given. Use e.g. --type, --comment, --after, --rename or --drop.")
    if rename + add + drop + bool(changes and not add) > 1:
        raise typer.BadParameter("--rename, --add, --drop and changes need a commit each. Run one command for each.")


def parse_operations(
    schema: StructType, column: str, changes: Mapping[str, Any], name: str | None, *, add: bool, drop: bool
) -> Sequence[Operation]:
    """Return the operations that the options of the command ask for."""
    from widen.schema.alter import parse_column_changes, parse_drops, parse_new_columns, parse_rename

    if name is not None:
        return parse_rename(schema, column, name)
    if drop:
        return parse_drops(schema, [column], if_exists=False)
    if add:
        return parse_new_columns(schema, {column: cast("NewColumn", changes)})
    return parse_column_changes(schema, {column: cast("ColumnChanges", changes)})


def _show_plan(table: Table, operations: Sequence[Operation], *, json: bool) -> None:
    from widen.report import text_format
    from widen.schema.feature_removal import feature_refusal

    added, wrong = _planned_effects(table, operations)
    if json:
        plan = [operation.to_value() for operation in operations]
        facts = {**_feature_facts(added), **wrong_facts(wrong)}
        show_json({"version": table.version, "changed": False, "operations": plan, **facts})
    elif operations:
        show(Text(f"would {text_format.printable(str(operation))}") for operation in operations)
        show(Text(f"  {line}") for line in (*map(feature_refusal, added), *map(str, wrong)))
    else:
        show_unchanged(table)


# The commands that change a table without its data: ``properties`` and ``sql``.
#
# Source: Delta Lake's ALTER TABLE.


NO_FACTS: Mapping[str, object] = {}
FEW_COLUMNS = 3
"""Up to this number of columns a result stays a table, even if its values take several lines."""


def properties(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property; can be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a property; can be repeated.")
    ] = None,
) -> None:
    """Show, set or remove the properties of a table."""
    from widen.log.log_store import LogStore
    from widen.log.snapshot import open_snapshot
    from widen.protocol.column_mapping import MODE, NONE
    from widen.report import terminal

    settings, properties_to_set = call.storage, shared_options.pairs(set, "--set")
    if properties_to_set and unset:
        raise typer.BadParameter("--set and --unset need a commit each. Run one command for each.")
    if not properties_to_set and not unset:
        shown = open_snapshot(LogStore(table, settings)).properties
        if call.json:
            show_json(shown)
        else:
            show([terminal.pairs_table(sorted(shown.items()))])
        return
    from widen.table import Table

    opened = Table(table, settings)
    before = opened.version
    missing = [key for key in unset or () if key not in opened.properties]
    if missing:
        names = ", ".join(sorted(opened.properties)) or "none"
        raise InvalidOption(option="--unset", value=missing[0], expected=f"Must be a property that is set: {names}.")
    given = properties_to_set or dict.fromkeys(unset or (), NONE)
    with progress("changing properties") as update:
        is_mapped = opened.properties.get(MODE, NONE) != NONE
        ends = {key.lower(): value for key, value in given.items()}.get(MODE.lower()) == NONE
        session = start_unmapping(opened, update) if is_mapped and ends else None
        if properties_to_set:
            after = opened.set_properties(properties_to_set, spark=session)
        else:
            after = opened.unset_properties(unset or (), spark=session)
    report_change(before, after, json=call.json)


def sql_command(
    text: Annotated[str, typer.Argument(metavar="STATEMENT", help="A statement; - reads statements from stdin.")],
    call: shared_options.OutputOptions,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of rows; by default 20, with --json all.")
    ] = None,
    catalog: shared_options.Catalog = None,
) -> None:
    """Run one SQL statement, a query or a change. A table is delta.`path`, or a name in a catalog."""
    from widen.sql_commands.grammar import split_statements

    settings = call.storage
    for statement in split_statements(sys.stdin.read()) if text == STDIN else [text]:
        _run_statement(statement, settings, limit, catalog, json=call.json)


STDIN = "-"


def _run_statement(text: str, settings: dict[str, str], limit: int | None, catalog: str | None, *, json: bool) -> None:
    from widen.report import terminal
    from widen.sql_commands.execute import find_session_need, may_need_no_session, run_statement
    from widen.sql_commands.parser import parse_sql
    from widen.sql_commands.statements import ChangedTable, Query, QueryResult
    from widen.table import Table

    statement, form = parse_sql(text), to_row_form(RowForm.TABLE, json=json)
    if isinstance(statement, Query):
        query = partial(_query_here, statement.text, settings, catalog)
        if show_query(query, limit, form):
            return
    if may_need_no_session(statement, catalog):
        with progress("changing rows") as update:
            session = output.choose_session(None, update)
            done = run_statement(statement, session, settings, catalog)
        output.note_engine(session, says_local=False)
    else:
        reason = find_session_need(statement, catalog)
        spark = output.spark_session(reason) if reason else None
        done = run_statement(statement, spark, settings, catalog)
    if isinstance(done, ChangedTable):
        if isinstance(done.table, Table):
            report_change(done.before, done.table, json=json)
        else:
            report_snapshot(done.before, done.table, json=json)
    elif not isinstance(done, QueryResult):
        show_rows(done, limit, form)
    elif json:
        show_json(done.to_values())
    else:
        lines = [dumps(row) for row in done.to_values()]
        show(terminal.rows_parts(done.names, lines, folds=len(done.names) <= FEW_COLUMNS))


def _query_here(
    text: str, settings: dict[str, str], catalog: str | None, limit: int | None
) -> tuple[StructType, pa.Table]:
    """Return the rows of a query, read without Spark.

    Raises:
        Unsupported: only Spark can do that exactly.
    """
    from widen.iceberg.snapshots import SnapshotReference, find_read_point
    from widen.spark.engine import Unsupported
    from widen.sql_commands.execute import HAS_CATALOG, QUERIES
    from widen.sql_commands.iceberg_statements import IcebergCatalog
    from widen.sql_commands.queries import find_plain_select
    from widen.table import Table

    select = find_plain_select(text)
    if select is None:
        raise Unsupported(QUERIES)
    most = min((each for each in (limit, select.limit) if each is not None), default=None)
    found = None if catalog is None else IcebergCatalog(catalog).find(select.table)
    if found is not None:
        wanted = SnapshotReference(select.version, branch=found.branch)
        note_left_out(find_read_point(found.table.metadata, wanted), (select.where, *(select.columns or ())))
        return query_iceberg_table(found, wanted, select.where, select.columns, most, unified=False, row_lineage=False)
    if select.table.location is None:
        raise Unsupported(HAS_CATALOG)
    table = Table(select.table.location, settings)
    return query_table(table, select.where, select.columns, most, unified=False, version=select.version, timestamp=None)


def report_snapshot(before: int, table: IcebergTable, *, json: bool) -> None:
    """Show the snapshot of an Iceberg table after a statement; changes of metadata make none."""
    changed = table.version is not None and table.version != before
    if json:
        show_json({"version": table.version, "changed": changed, "changes": []})
    elif changed:
        show([Text(f"{table.name}: snapshot {table.version}")])
    else:
        show([Text(f"{table.name}: done, without a new snapshot")])


def start_unmapping(table: TableVersion, update: StepDisplay) -> SparkSession | None:
    """Say that the files are rewritten without column mapping, and return the session for it; None without files."""
    from widen.report import text_format

    sizes = table.snapshot.files()["size_bytes"].to_pylist()
    if not sizes:
        return None
    size = text_format.count_noun(len(sizes), "file")
    note(f"rewriting {size} ({text_format.size_text(sum(sizes))}) with the names of the columns")
    return output.choose_session(None, update)


def report_change(
    before: int, table: TableVersion, *, json: bool, done: str = "", facts: Mapping[str, object] = NO_FACTS
) -> None:
    """Show the version of the table, and what it changed."""
    from widen.report import terminal
    from widen.report.build_report import read_history
    from widen.schema.feature_removal import feature_refusal

    changed = table.version > before
    intervals = read_history(table.snapshot, 1) if changed else []
    if json:
        changes = [change.to_value() for interval in intervals for change in interval.changes]
        show_json(
            {
                "version": table.version,
                "changed": changed,
                "changes": changes,
                **facts,
                **_feature_facts(table.added_features),
                **wrong_facts(table.wrong_readers),
            }
        )
    elif not changed:
        show_unchanged(table)
    else:
        show(terminal.commit_parts(table.location, intervals[0]))
        lines = (done, *map(feature_refusal, table.added_features), *map(str, table.wrong_readers))
        show(Text(f"  {line}") for line in lines if line)


def show_unchanged(table: TableVersion) -> None:
    """Show that there was nothing to change."""
    show([Text(f"Nothing to change in version {table.version}.")])
