"""The command that changes a column: ``alter``.

Source: Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, spark_session
from widen.cli.output import show, show_json
from widen.cli.properties_and_sql import report_change, show_unchanged

if TYPE_CHECKING:
    from widen.model.types import StructType
    from widen.planning.alter.alter_request import ColumnChanges, NewColumn
    from widen.planning.table.operation import Operation
    from widen.table.column_changes import ColumnChangesMixin


def alter(
    table: shared_options.Table,
    column: Annotated[str, typer.Argument(help="The column, e.g. total or items.element.price.")],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The wider type, e.g. bigint.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="The new comment.")] = None,
    nullable: Annotated[
        bool | None, typer.Option("--nullable/--not-null", help="Allow null, or forbid it; no row may have null then.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Move it to the first position.")] = False,
    after: Annotated[str | None, typer.Option(metavar="COLUMN", help="Move it after that column.")] = None,
    default: Annotated[str | None, typer.Option(metavar="SQL", help="The default value for new rows.")] = None,
    drop_default: Annotated[bool, typer.Option("--drop-default", help="Remove the default value.")] = False,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="The new name.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the column; needs --type.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the column.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Change, rename, add or drop a column. It takes one commit and rewrites no file."""
    values = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
    changes = requested_changes(**values, first=first, drop_default=drop_default)
    ensure_one_change(changes, rename=rename is not None, add=add, drop=drop)
    opened = lazy_imports.ColumnChangesMixin(table, shared_options.storage(storage_option))
    operations = parse_operations(opened.snapshot.schema, column, changes, rename, add=add, drop=drop)
    if dry_run:
        _show_plan(opened, opened.plan_columns(operations), json=json)
        return
    before = opened.version
    session = spark_session.spark_session() if default is not None or nullable is False else None
    report_change(before, opened.change_columns(operations, spark=session), json=json)


def requested_changes(**options: Any) -> dict[str, Any]:
    """Return the options that ask for a change of a column."""
    return {key: value for key, value in options.items() if value is not None and (value or key not in _SWITCHES)}


_SWITCHES = ("first", "drop_default")


def ensure_one_change(changes: Mapping[str, Any], *, rename: bool, add: bool, drop: bool) -> None:
    """Check that the options ask for exactly one kind of change.

    Raises:
        typer.BadParameter: they ask for none, or for several.
    """
    if not (changes or rename or drop or add):
        raise typer.BadParameter("No change given. Use e.g. --type, --comment, --after, --rename or --drop.")
    if rename + add + drop + bool(changes and not add) > 1:
        raise typer.BadParameter("--rename, --add, --drop and changes need a commit each. Run one command for each.")


def parse_operations(
    schema: StructType, column: str, changes: Mapping[str, Any], name: str | None, *, add: bool, drop: bool
) -> Sequence[Operation]:
    """Return the operations that the options of the command ask for.

    Args:
        changes: The changes of the column, or the settings of a new one.
    """
    if name is not None:
        return lazy_imports.parse_rename(schema, column, name)
    if drop:
        return lazy_imports.parse_drops(schema, [column], if_exists=False)
    if add:
        return lazy_imports.parse_new_columns(schema, {column: cast("NewColumn", changes)})
    return lazy_imports.parse_column_changes(schema, {column: cast("ColumnChanges", changes)})


def _show_plan(table: ColumnChangesMixin, operations: Sequence[Operation], *, json: bool) -> None:
    if json:
        plan = [operation.to_value() for operation in operations]
        show_json({"version": table.version, "changed": False, "operations": plan})
    elif operations:
        show(Text(f"would {lazy_imports.text_format.printable(str(operation))}") for operation in operations)
    else:
        show_unchanged(table)
