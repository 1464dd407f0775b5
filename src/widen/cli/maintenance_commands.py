"""The commands that maintain a table: ``rewrite``, ``restore`` and ``drop-feature``.

Source: Delta Lake's REORG TABLE, RESTORE TABLE and ALTER TABLE … DROP FEATURE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, show_commands, spark_session
from widen.cli.output import progress, show, show_json
from widen.cli.properties_and_sql import report_change

if TYPE_CHECKING:
    from widen.spark.spark_types import SparkSession
    from widen.table import Table


def rewrite(
    table: shared_options.Table,
    clear_history: Annotated[
        bool, typer.Option("--clear-history", help="Also remove the type history, which no file needs afterwards.")
    ] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Rewrite the files that still have old types. Other files stay as they are."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    before = opened.version
    with progress("reading the files"):
        opened.rewrite(clear_history=clear_history, spark=_session(opened))
    done = [
        info for version, _, info in opened.history() if version > before and info["operation"] == lazy_imports.REWRITE
    ]
    files, size_bytes = (sum(int(info["operationMetrics"][key]) for info in done) for key in _REMOVED)
    if json:
        changed = opened.version > before
        show_json({"version": opened.version, "changed": changed, "files": files, "bytes": size_bytes})
    elif files:
        counted, size = (
            lazy_imports.text_format.count_noun(files, "file"),
            lazy_imports.text_format.size_text(size_bytes),
        )
        show([Text(f"rewrote {counted}, {size}: version {opened.version}")])
    else:
        report_change(before, opened, json=False)


_REMOVED = ("numRemovedFiles", "numRemovedBytes")


def restore(
    table: shared_options.Table,
    version: shared_options.Version = None,
    timestamp: Annotated[
        str | None, typer.Option(help="The newest version at that time, e.g. 2024-01-31 12:00:00Z.")
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Restore an earlier version of a table. One commit brings back its columns, properties and rows."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    before = opened.version
    report_change(before, opened.restore(version, timestamp=timestamp).table, json=json)


def drop_feature(
    table: shared_options.Table,
    feature: Annotated[str, typer.Argument(help="The table feature, e.g. typeWidening.", show_default=False)],
    truncate_history: Annotated[
        bool,
        typer.Option("--truncate-history", help="Delete the versions that use the feature; they must have expired."),
    ] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Drop a table feature and every use of it. Then clients without the feature can use the table."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    before = opened.version
    with progress("reading the files"):
        opened.drop_feature(feature, truncate_history=truncate_history, spark=_session(opened))
    report_change(before, opened, json=json)


def _session(table: Table) -> SparkSession | None:
    """Return the session for rewriting files; None if there are none, so that Spark is not started.

    Raises:
        SparkUnavailable: Spark or Java is not installed, or does not start.
    """
    found, _ = show_commands.find_old_types(table.snapshot)
    return None if found == [] else spark_session.spark_session()
