"""The commands that repair what drifted: ``view``, ``fold`` and ``replay``.

Source: docs/evolution-rules.md#one-logical-field, #u3, #d12
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, spark_session
from widen.cli.output import note, progress, show, show_json, show_line
from widen.cli.properties_and_sql import report_change
from widen.errors import InvalidOption
from widen.model.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from widen.planning.unify.fold_plan import FoldResult


class Rest(str, Enum):
    """What becomes of values that do not convert exactly: the words of `widen.planning.unify.fold_plan.Rest`."""

    REFUSE = "refuse"
    KEEP = "keep"
    LOSE = "lose"


def view(
    table: shared_options.Table,
    name: Annotated[str | None, typer.Option(help="What the view is called; as the table by default.")] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="SQL", help="What it is a view of; delta.`TABLE` by default.", show_default=False
        ),
    ] = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="Let it go with the session.")] = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write the SQL of a view with one column for each source field, whatever columns it has got."""
    if name is not None and not _VIEW_NAME.fullmatch(name):
        raise InvalidOption(option="--name", value=name, expected="Write a name as in SQL, e.g. shop.orders.")
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    last = opened.location.rstrip("/").rpartition("/")[2]
    sql = opened.view_sql(name or lazy_imports.to_identifier(_NO_NAME.sub("_", last)), rows, temporary=temporary)
    if printable_lines(sql) != sql:
        raise InvalidOption(option="The SQL of the view", value=sql, expected=_UNPRINTABLE)
    show_line(sql)


_VIEW_NAME = re.compile(r"(?:\w+|`(?:[^`]|``)+`)(?:\.(?:\w+|`(?:[^`]|``)+`))*", re.ASCII)
_NO_NAME = re.compile(r"\W", re.ASCII)
"""What Spark does not allow in the name of a view, not even in back-ticks."""
_UNPRINTABLE = "A name has characters that do not print. Rename it, or call Table.view_sql, which returns all of it."


def fold(
    table: shared_options.Table,
    column: Annotated[str, typer.Argument(help="The column that evolved, e.g. total_string.", show_default=False)],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="COLUMN", help="Where to; by default the plain name.", show_default=False),
    ] = None,
    rest: Annotated[
        Rest,
        typer.Option(help="What becomes of values that do not convert exactly; refuse: then nothing is done."),
    ] = Rest.REFUSE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and change nothing.")] = False,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Bring a column that evolved back into another one of its field, after the source is repaired."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    with progress("looking at the values"):
        session = spark_session.spark_session()
        found = opened.plan_fold(column, into, spark=session)
    shown = [text for text in map(lazy_imports.shown_as(samples.value), found.samples) if text]
    if dry_run:
        if json:
            show_json({**found.to_value(), "samples": shown})
        else:
            show(_fold_preview(found, shown))
        return
    if not json:
        show(_fold_preview(found, shown))
    before = opened.version
    with progress("writing"):
        opened.fold(column, into, rest=rest.value, spark=session)
    report_change(before, opened, json=json)
    if not found.is_dropped and opened.version > before:
        note(f"{column} stays, for columns are not mapped or something needs it.")


def _fold_preview(found: FoldResult, samples: list[str]) -> Iterator[RenderableType]:
    text = lazy_imports.text_format
    yield Text(f"{text.printable(str(found.fold))}: {text.count_noun(found.values, 'value')}")
    yield Text(
        f"  {lazy_imports.text_format.count_text(found.fits)} convert exactly to {found.fold.into_type.sql} and go back"
    )
    if found.held:
        yield Text(f"  {lazy_imports.text_format.count_text(found.held)} stand there already")
    if found.lost:
        told = f"  {lazy_imports.text_format.count_text(found.lost)} do not, and would be lost"
        yield Text(
            told + (f": {', '.join(map(lazy_imports.text_format.printable, samples))}" if samples else ""), "bold red"
        )


def replay(
    quarantine: Annotated[str, typer.Argument(help="The quarantine, e.g. orders_quarantine.", show_default=False)],
    into: shared_options.Into,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write what a quarantine holds and a table can hold by now to the table, in one commit, once."""
    settings = shared_options.storage(storage_option)
    with progress("starting Spark") as told:
        spark = spark_session.spark_session()
        done = lazy_imports.replay(quarantine, into, storage_options=settings, spark=spark, progress=told)
    if json:
        show_json(done.to_value())
        return
    show([lazy_imports.terminal.version_line(done.version, into)])
    left = f"{lazy_imports.text_format.count_text(done.left)} left in the quarantine"
    show([Text(f"  replayed {lazy_imports.text_format.count_noun(done.replayed, 'record')}; {left}")])
    show(lazy_imports.terminal.plan_parts(done.plan))
