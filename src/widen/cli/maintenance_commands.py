"""The commands that maintain a table: ``rewrite``, ``optimize``, ``vacuum``, ``restore`` and ``drop-feature``.

Source: Delta Lake's REORG TABLE, OPTIMIZE, VACUUM, RESTORE TABLE and ALTER TABLE … DROP FEATURE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options, show_commands, spark_session
from widen.cli.output import show, show_json
from widen.cli.properties_and_sql import report_change, show_unchanged, start_unmapping
from widen.cli.step_display import progress
from widen.model.progress import Step

if TYPE_CHECKING:
    from widen.cli.step_display import StepDisplay
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
    with progress("reading the footers") as update:
        opened.rewrite(clear_history=clear_history, spark=session_for(opened, update))
    files, size_bytes = _count_rewritten(opened, before)
    if json:
        changed = opened.version > before
        show_json({"version": opened.version, "changed": changed, "files": files, "bytes": size_bytes})
    elif files:
        show([Text(f"rewrote {_files_text(files, size_bytes)}: version {opened.version}")])
    else:
        report_change(before, opened, json=False)


def _count_rewritten(table: Table, before: int) -> tuple[int, int]:
    """Return the number and the size of the files that were rewritten since a version."""
    history = table.history(table.version - before) if table.version > before else []
    done = [info for _, _, info in history if info["operation"] == lazy_imports.REWRITE]
    files, size_bytes = (sum(int(info["operationMetrics"][key]) for info in done) for key in _REMOVED)
    return files, size_bytes


_REMOVED = ("numRemovedFiles", "numRemovedBytes")


def vacuum(
    table: shared_options.Table,
    retention_hours: Annotated[
        float | None, typer.Option(min=0, help="How long files are kept; by default as the table says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Allow a shorter time than the table does; no other job may be active.")
    ] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Delete the files that no version within the retention needs. Older versions can then no longer be read."""
    opened = lazy_imports.VacuumMixin(table, shared_options.storage(storage_option))
    with progress("listing the files"):
        done = opened.vacuum(retention_hours, dry_run=dry_run, force=force)
    if json:
        show_json(
            {
                "version": done.version,
                "dryRun": dry_run,
                "files": len(done.files),
                "bytes": done.size_bytes,
                "keptSince": done.kept_since.isoformat(),
                "paths": done.files,
            }
        )
        return
    counted = _files_text(len(done.files), done.size_bytes)
    verb, end = ("would delete", "") if dry_run else ("deleted", f": version {done.version}")
    show([Text(f"{verb} {counted}{end}"), *(Text(f"  {path}") for path in done.files if dry_run)])


def optimize(
    table: shared_options.Table,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only these partitions, e.g. \"day > '2024-01-31'\".")
    ] = None,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option("--zorder-by", metavar="COLUMN", help="Sort by a column, for data skipping; can be repeated."),
    ] = None,
    target_bytes: Annotated[
        int, typer.Option(min=1, help="The size of new files; by default 1 GiB.", show_default=False)
    ] = 2**30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the files.")] = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write small files together into larger ones. The rows stay as they are."""
    opened = lazy_imports.Table(table, shared_options.storage(storage_option))
    before = opened.version
    run = partial(opened.optimize, where, target_bytes=target_bytes, zorder_by=zorder_by or ())
    change = run(dry_run=True, spark=None if where is None else spark_session.spark_session())
    if change.metrics and not dry_run:
        session = spark_session.spark_session()
        with progress("writing"):
            change = run(spark=session)
    counts = [change.metrics.get(key, 0) for key in (*_REMOVED, *_ADDED)]
    if json:
        names = ("files", "bytes", "newFiles", "newBytes")
        show_json(
            {"version": opened.version, "changed": opened.version > before} | dict(zip(names, counts, strict=True))
        )
    elif not change.metrics:
        show_unchanged(opened)
    else:
        old, new = _files_text(*counts[:2]), _files_text(*counts[2:])
        done = f"would write {old} again" if dry_run else f"{old} became {new}: version {opened.version}"
        show([Text(done)])


_ADDED = ("numAddedFiles", "numAddedBytes")


def _files_text(files: int, size_bytes: int) -> str:
    text = lazy_imports.text_format
    return f"{text.count_noun(files, 'file')}, {text.size_text(size_bytes)}"


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
    change = opened.restore(version, timestamp=timestamp)
    back, removed = (change.metrics.get(key, 0) for key in ("numRestoredFiles", "numRemovedFiles"))
    noun = lazy_imports.text_format.count_noun
    target = f"version {version}" if version is not None else f"the version of {timestamp}"
    done = f"restored {target}: {noun(back, 'file')} came back, {noun(removed, 'file')} left"
    facts = {"restoredFiles": back, "removedFiles": removed}
    report_change(before, change.table, json=json, done=done, facts=facts)


def drop_feature(
    table: shared_options.Table,
    feature: Annotated[str, typer.Argument(help="The table feature, e.g. typeWidening.")],
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
    with progress("reading the footers") as update:
        session = session_for(opened, update, all_files=feature == lazy_imports.COLUMN_MAPPING)
        opened.drop_feature(feature, truncate_history=truncate_history, spark=session)
    files, size_bytes = _count_rewritten(opened, before)
    features = sorted(lazy_imports.supported_features(opened.snapshot.protocol))
    done = f"dropped {feature}"
    if files:
        done += f"; rewrote {_files_text(files, size_bytes)}"
    facts = {"dropped": feature, "rewrittenFiles": files, "features": features}
    report_change(before, opened, json=json, done=f"{done}; left: {', '.join(features) or 'none'}", facts=facts)


def session_for(table: Table, update: StepDisplay, *, all_files: bool = False) -> SparkSession | None:
    """Return the session for rewriting files; None if there are none, so that Spark is not started.

    Args:
        all_files: Whether all files are rewritten, to end column mapping, instead of those in old types.

    Raises:
        SparkUnavailable: Spark or Java is not installed, or does not start.
    """
    if all_files:
        return start_unmapping(table, update)
    files, _ = show_commands.find_old_types(table.snapshot)
    if files == []:
        return None
    spark = update.watch(spark_session.spark_session())
    # A file with several old types counts once.
    update(Step("rewriting files", max((old.size_bytes for old in files or ()), default=0)))
    return spark
