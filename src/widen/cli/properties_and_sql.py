"""The commands that change a table without its data: ``properties`` and ``sql``.

Source: Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, spark_session
from widen.cli.output import note, show, show_json
from widen.cli.show_commands import show_rows
from widen.cli.step_display import progress
from widen.errors import InvalidOption

if TYPE_CHECKING:
    from widen.cli.step_display import StepDisplay
    from widen.spark.spark_types import SparkSession
    from widen.table.table_version import TableVersion

NO_FACTS: Mapping[str, object] = {}
FEW_COLUMNS = 3
"""Up to this number of columns a result stays a table, even if its values take several lines."""


def properties(
    table: shared_options.Table,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property; can be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a property; can be repeated.")
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show, set or remove the properties of a table."""
    settings, properties_to_set = shared_options.storage(storage_option), shared_options.pairs(set, "--set")
    if properties_to_set and unset:
        raise typer.BadParameter("--set and --unset need a commit each. Run one command for each.")
    if not properties_to_set and not unset:
        shown = lazy_imports.open_snapshot(lazy_imports.LogStore(table, settings)).properties
        if json:
            show_json(shown)
        else:
            show([lazy_imports.terminal.pairs_table(sorted(shown.items()))])
        return
    opened = lazy_imports.PropertyChangesMixin(table, settings)
    before = opened.version
    missing = [key for key in unset or () if key not in opened.properties]
    if missing:
        names = ", ".join(sorted(opened.properties)) or "none"
        raise InvalidOption(option="--unset", value=missing[0], expected=f"Must be a property that is set: {names}.")
    given = properties_to_set or dict.fromkeys(unset or (), lazy_imports.NONE)
    with progress("changing properties") as update:
        is_mapped = opened.properties.get(lazy_imports.MODE, lazy_imports.NONE) != lazy_imports.NONE
        ends = {key.lower(): value for key, value in given.items()}.get(lazy_imports.MODE.lower()) == lazy_imports.NONE
        session = start_unmapping(opened, update) if is_mapped and ends else None
        if properties_to_set:
            after = opened.set_properties(properties_to_set, spark=session)
        else:
            after = opened.unset_properties(unset or (), spark=session)
    report_change(before, after, json=json)


def sql(
    text: Annotated[str, typer.Argument(metavar="STATEMENT", help="A statement; - reads statements from stdin.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="The maximum number of rows; by default 20, with --json all.")
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Run one SQL statement, of rows or of tables. A table is delta.`path`, or a name in the catalog."""
    settings = shared_options.storage(storage_option)
    for statement in lazy_imports.split_statements(sys.stdin.read()) if text == STDIN else [text]:
        _run_statement(statement, settings, limit, json=json)


STDIN = "-"


def _run_statement(text: str, settings: dict[str, str], limit: int | None, *, json: bool) -> None:
    statement = lazy_imports.parse_sql(text)
    session = spark_session.spark_session() if lazy_imports.needs_session(statement) else None
    done = lazy_imports.run_statement(statement, session, settings)
    if isinstance(done, lazy_imports.ChangedTable):
        report_change(done.before, done.table, json=json)
    elif not isinstance(done, lazy_imports.QueryResult):
        show_rows(done, limit, json=json)
    elif json:
        show_json(done.to_values())
    else:
        lines = [dumps(row) for row in done.to_values()]
        show(lazy_imports.terminal.rows_parts(done.names, lines, folds=len(done.names) <= FEW_COLUMNS))


def start_unmapping(table: TableVersion, update: StepDisplay) -> SparkSession | None:
    """Say that the files are rewritten without column mapping, and return the session for it; None without files."""
    sizes = table.snapshot.files()["size_bytes"].to_pylist()
    if not sizes:
        return None
    size = lazy_imports.text_format.count_noun(len(sizes), "file")
    note(f"rewriting {size} ({lazy_imports.text_format.size_text(sum(sizes))}) with the names of the columns")
    return update.watch(spark_session.spark_session())


def report_change(
    before: int, table: TableVersion, *, json: bool, done: str = "", facts: Mapping[str, object] = NO_FACTS
) -> None:
    """Show the version of the table, and what it changed.

    Args:
        table: The table after it.
    """
    changed = table.version > before
    intervals = lazy_imports.read_history(table.snapshot, 1) if changed else []
    if json:
        changes = [change.to_value() for interval in intervals for change in interval.changes]
        show_json({"version": table.version, "changed": changed, "changes": changes, **facts})
    elif not changed:
        show_unchanged(table)
    else:
        show(lazy_imports.terminal.commit_parts(table.location, intervals[0]))
        show([Text(f"  {done}")] if done else [])


def show_unchanged(table: TableVersion) -> None:
    """Show that there was nothing to change."""
    show([Text(f"Nothing to change in version {table.version}.")])
