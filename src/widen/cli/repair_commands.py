"""The commands for fields that drifted: ``view``, ``fold`` and ``replay``.

Source: docs/evolution-rules.md#one-logical-field, #u3, #d12
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, spark_session
from widen.cli.output import note, show, show_json, show_line
from widen.cli.properties_and_sql import report_change
from widen.cli.step_display import progress
from widen.errors import InvalidOption
from widen.errors.printable import printable_lines
from widen.model.progress import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from widen.planning.unify.fold_plan import FoldResult
    from widen.table import IcebergTable, Table


class Rest(str, Enum):
    """What happens to values that do not convert exactly: the values of `widen.planning.unify.fold_plan.Rest`."""

    REFUSE = "refuse"
    KEEP = "keep"
    LOSE = "lose"


def view(
    table: shared_options.Table,
    name: Annotated[str | None, typer.Option(help="The name of the view; by default that of the table.")] = None,
    rows: Annotated[
        str | None, typer.Option("--from", metavar="SQL", help="The table in SQL; by default delta.`TABLE`.")
    ] = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="Make it a temporary view.")] = False,
    data_source: Annotated[
        bool,
        typer.Option(
            "--data-source",
            help="Temporary views for a Spark without Delta Lake, in a session after widen.register(spark).",
        ),
    ] = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Print the SQL of a view with one column per source field."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    last = opened.location.rstrip("/").rpartition("/")[2]
    if data_source:
        if rows is not None:
            raise InvalidOption(option="--from", value=rows, expected="Does not apply to --data-source.")
        rows = lazy_imports.to_identifier(f"{_NOT_IN_NAMES.sub('_', last)}_rows")
        path = lazy_imports.to_literal(opened.location)
        show_line(f"CREATE OR REPLACE TEMPORARY VIEW {rows} USING widen OPTIONS (path {path});")
    print_view(opened.view_sql, last, name, rows, temporary=temporary or data_source)


def print_view(view_sql: Callable[..., str], last: str, name: str | None, rows: str | None, *, temporary: bool) -> None:
    """Print the SQL of a view of a table of either format.

    Args:
        last: The name of the table, from which the view gets its name by default.
        rows: The table in SQL.

    Raises:
        InvalidOption: the name is not one of SQL, or the SQL has characters that do not print.
    """
    if name is not None and not _VIEW_NAME.fullmatch(name):
        raise InvalidOption(option="--name", value=name, expected="Must be a name in SQL, e.g. shop.orders.")
    sql = view_sql(name or lazy_imports.to_identifier(_NOT_IN_NAMES.sub("_", last)), rows, temporary=temporary)
    if printable_lines(sql) != sql:
        raise InvalidOption(option="The SQL of the view", value=sql, expected=_UNPRINTABLE)
    show_line(sql)


_VIEW_NAME = re.compile(r"(?:\w+|`(?:[^`]|``)+`)(?:\.(?:\w+|`(?:[^`]|``)+`))*", re.ASCII)
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)
"""Characters that Spark does not allow in the name of a view, not even in backticks."""
_UNPRINTABLE = "A name has characters that do not print. Rename the column, or call Table.view_sql."


def fold(
    table: shared_options.Table,
    column: Annotated[str, typer.Argument(help="The column to fold, e.g. total_string.")],
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="COLUMN",
            help="The column that gets the values; by default the one with the name of the field.",
        ),
    ] = None,
    rest: Annotated[
        Rest,
        typer.Option(
            help="Values that do not convert exactly: refuse changes nothing, keep leaves them, lose drops them."
        ),
    ] = Rest.REFUSE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be lost, and change nothing.")] = False,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Fold an evolved column into another one of its field. Do that after the source is fixed."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    _, size_bytes = opened.snapshot.count_files()
    before = opened.version
    if run_fold(opened, size_bytes, (column, into, rest), samples, is_dry=dry_run, json=json):
        report_change(before, opened, json=json)


def run_fold(
    opened: Table | IcebergTable,
    size_bytes: int,
    wanted: tuple[str, str | None, Rest],
    samples: shared_options.Shown,
    *,
    is_dry: bool,
    json: bool,
) -> bool:
    """Fold a column of a table of either format, and return whether it was done and not only shown.

    Args:
        wanted: The column, the target column, and what to do with the rest.
        is_dry: Whether to show only what would be lost.

    Raises:
        FoldLosesValues: values do not convert exactly, and the rest is to be refused.
        FoldRefused: the columns cannot be folded.
    """
    column, into, rest = wanted
    with progress("starting Spark") as update:
        session = update.watch(spark_session.spark_session())
        update(Step("reading the values", size_bytes))
        result = opened.plan_fold(column, into, spark=session)
    shown = [text for text in map(lazy_imports.sample_formatter(samples.value), result.samples) if text]
    if is_dry:
        if json:
            show_json({**result.to_value(), "samples": shown})
        else:
            show(_fold_preview(result, shown))
        return False
    if not json:
        show(_fold_preview(result, shown))
    before = opened.version
    with progress("writing") as update:
        update.watch(session)
        update(Step("writing", size_bytes))
        opened.fold(column, into, rest=rest.value, spark=session)
    if not result.is_dropped and opened.version != before:
        note(f"{column} stays, because the table has no column mapping or something depends on the column.")
    return True


def _fold_preview(result: FoldResult, samples: list[str]) -> Iterator[RenderableType]:
    text = lazy_imports.text_format
    yield Text(f"{text.printable(str(result.fold))}: {text.count_noun(result.values, 'value')}")
    yield Text(f"  {text.count_text(result.fits)} convert exactly to {result.fold.into_type.sql} and back")
    if result.duplicates:
        yield Text(f"  {text.count_text(result.duplicates)} are in the column already")
    if result.lost:
        examples = f": {', '.join(map(text.printable, samples))}" if samples else ""
        yield Text(f"  {text.count_text(result.lost)} do not convert and would be lost{examples}", "bold red")


def replay(
    quarantine: Annotated[str, typer.Argument(help="The quarantine, e.g. orders_quarantine.")],
    into: shared_options.Into,
    catalog: shared_options.Catalog = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Move records from a quarantine to the table. Only those that the table can hold now, in one commit."""
    settings = shared_options.storage(storage_option)
    lazy_imports.ensure_replayable(quarantine, into, catalog=catalog, storage_options=settings)
    with progress("starting Spark") as update:
        spark = update.watch(spark_session.spark_session())
        result = lazy_imports.replay(
            quarantine, into, catalog=catalog, storage_options=settings, spark=spark, progress=update
        )
    if json:
        show_json(result.to_value())
        return
    left = f"{lazy_imports.text_format.count_text(result.left)} left in the quarantine"
    if not result.replayed:
        show([Text(f"Nothing replayed: {left}.")])
    else:
        show([lazy_imports.terminal.version_line(result.version, into)])
        show([Text(f"  replayed {lazy_imports.text_format.count_noun(result.replayed, 'record')}; {left}")])
    show(lazy_imports.terminal.plan_parts(result.plan))
