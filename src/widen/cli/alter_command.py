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
    from widen.planning.alter.alter_request import ColumnChanges, NewColumn
    from widen.planning.table.operation import Operation
    from widen.table.column_changes import ColumnChangesMixin


def alter(
    table: shared_options.Table,
    column: Annotated[str, typer.Argument(help="The column, e.g. total or items.element.price.", show_default=False)],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="The wider type, e.g. bigint.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="The new comment.")] = None,
    nullable: Annotated[
        bool | None, typer.Option("--nullable/--not-null", help="Let it be null, or forbid it if no row has null.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Make it the first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="COLUMN", help="Put it behind that one.")] = None,
    default: Annotated[str | None, typer.Option(metavar="SQL", help="What rows have that say nothing of it.")] = None,
    drop_default: Annotated[bool, typer.Option("--drop-default", help="Let such rows have null.")] = False,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Call it so.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add it, with --type and what else is said.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Take it away.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Change, rename, add or drop one column in one commit; no file is rewritten."""
    said = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
    switches = {"first": first, "drop_default": drop_default}
    wanted = {key: value for key, value in said.items() if value is not None}
    wanted |= {key: value for key, value in switches.items() if value}
    _ensure_one(wanted, rename=rename is not None, add=add, drop=drop)
    opened = lazy_imports.ColumnChangesMixin(table, shared_options.storage(storage_option))
    operations = _operations(opened, column, wanted, rename, add=add, drop=drop)
    if dry_run:
        _show_plan(opened, opened.plan_columns(operations), json=json)
        return
    before = opened.version
    session = spark_session.spark_session() if default is not None or nullable is False else None
    report_change(before, opened.change_columns(operations, spark=session), json=json)


def _ensure_one(wanted: Mapping[str, Any], *, rename: bool, add: bool, drop: bool) -> None:
    """Check that one kind of change is asked for.

    Raises:
        typer.BadParameter: there is none, or there are several.
    """
    if not (wanted or rename or drop or add):
        raise typer.BadParameter("Say what to change, e.g. --type, --comment, --after, --rename or --drop.")
    if rename + add + drop + bool(wanted and not add) > 1:
        raise typer.BadParameter("To change, to rename, to add and to drop are commits of their own: say one of them.")


def _operations(
    opened: ColumnChangesMixin, column: str, wanted: Mapping[str, Any], name: str | None, *, add: bool, drop: bool
) -> Sequence[Operation]:
    schema = opened.snapshot.schema
    if name is not None:
        return lazy_imports.parse_rename(schema, column, name)
    if drop:
        return lazy_imports.parse_drops(schema, [column], if_exists=False)
    if add:
        return lazy_imports.parse_new_columns(schema, {column: cast("NewColumn", wanted)})
    return lazy_imports.parse_column_changes(schema, {column: cast("ColumnChanges", wanted)})


def _show_plan(table: ColumnChangesMixin, operations: Sequence[Operation], *, json: bool) -> None:
    if json:
        plan = [operation.to_value() for operation in operations]
        show_json({"version": table.version, "changed": False, "operations": plan})
    elif operations:
        show(Text(f"would {lazy_imports.text_format.printable(str(operation))}") for operation in operations)
    else:
        show_unchanged(table)
