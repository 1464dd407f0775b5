"""The commands that maintain a table: ``rewrite``, ``optimize``, ``vacuum``, ``restore`` and ``drop-feature``.

Source: Delta Lake's REORG TABLE, OPTIMIZE, VACUUM, RESTORE TABLE and ALTER TABLE … DROP FEATURE.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from widen.cli import output, shared_options, show_commands
from widen.cli.alter_commands import report_change, show_unchanged, start_unmapping
from widen.cli.ingest_commands import stop_requested
from widen.cli.output import note, progress, show, show_json, show_line
from widen.errors import HandoverUnproven, InvalidOption, OptionConflict, ProtectedVersionsRemain, RetentionNotExpired
from widen.errors.family import printable_lines
from widen.ingestion.ingest_options import KeptTextOptions
from widen.model.display import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from widen.cli.output import StepDisplay
    from widen.evolution.unify import FoldResult
    from widen.spark.spark_types import SparkSession
    from widen.table import IcebergTable, Table
    from widen.table.results import TableChange


def rewrite(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    clear_history: Annotated[
        bool, typer.Option("--clear-history", help="Also remove the type history, which no file needs afterwards.")
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Rewrite no file; replace bounds in the log that the footers contradict."),
    ] = False,
) -> None:
    """Rewrite the files that still have old types. Other files stay as they are."""
    from widen.table import Table

    opened = Table(table, call.storage)
    before = opened.version
    if statistics:
        _repair_statistics(opened, clear_history=clear_history, json=call.json)
        return
    with progress("reading the footers") as update:
        opened.rewrite(clear_history=clear_history, spark=session_for(opened, update))
    files, size_bytes = _count_rewritten(opened, before)
    if call.json:
        changed = opened.version > before
        show_json({"version": opened.version, "changed": changed, "files": files, "bytes": size_bytes})
    elif files:
        show([Text(f"rewrote {files_text(files, size_bytes)}: version {opened.version}")])
    else:
        report_change(before, opened, json=False)


def _repair_statistics(table: Table, *, clear_history: bool, json: bool) -> None:
    from widen.report.text_format import count_noun

    before = table.version
    with progress("reading the footers"):
        change = table.rewrite(clear_history=clear_history, statistics=True)
    files, changed = change.metrics.get("numRepairedFiles", 0), table.version > before
    if json:
        show_json({"version": table.version, "changed": changed, "repairedFiles": files})
    elif files:
        show([Text(f"replaced the bounds of {count_noun(files, 'file')} in the log: version {table.version}")])
    else:
        show_unchanged(table)


def _count_rewritten(table: Table, before: int) -> tuple[int, int]:
    """Return the number and the size of the files that were rewritten since a version."""
    from widen.changes.rewrite_files import REWRITE

    history = table.history(table.version - before) if table.version > before else []
    done = [info for _, _, info in history if info["operation"] == REWRITE]
    files, size_bytes = (sum(int(info["operationMetrics"][key]) for info in done) for key in _REMOVED)
    return files, size_bytes


_REMOVED = ("numRemovedFiles", "numRemovedBytes")


def vacuum(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    retention_hours: Annotated[
        float | None, typer.Option(min=0, help="How long files are kept; by default as the table says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow a shorter time than that of the table; no other job may be active then."),
    ] = False,
) -> None:
    """Delete the files that no version within the retention needs. Older versions can then no longer be read."""
    from widen.table import Table

    opened = Table(table, call.storage)
    with progress("listing the files"):
        done = opened.vacuum(retention_hours, dry_run=dry_run, force=force)
    if call.json:
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
    counted = files_text(len(done.files), done.size_bytes)
    verb, end = ("would delete", "") if dry_run else ("deleted", f": version {done.version}")
    show([Text(f"{verb} {counted}{end}"), *(Text(f"  {path}") for path in done.files if dry_run)])


def forget(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="FIELD=VALUE",
            help="A deleted key, e.g. id=7, or a JSON object if it has several fields; can be repeated.",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="All keys that were deleted so long ago, e.g. 90d."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the keys.")] = False,
) -> None:
    """Forget keys that were deleted. A late record of such a key inserts it again."""
    from widen.table import Table

    show_forgotten(Table(table, call.storage), key, older_than, is_dry=dry_run, json=call.json)


def show_forgotten(
    opened: Table | IcebergTable, keys: Sequence[str] | None, older_than: str | None, *, is_dry: bool, json: bool
) -> None:
    """Forget keys of a table of either format, and show how many."""
    from widen.changes.forgotten_keys import to_keys
    from widen.report.text_format import count_noun

    with progress("reading the deleted keys"):
        done = opened.forget(to_keys(keys or ()), older_than=older_than, dry_run=is_dry)
    forgotten, files = done.metrics["numForgottenKeys"], done.metrics["numDeletedFiles"]
    if json:
        show_json({"version": done.version, "dryRun": is_dry, "keys": forgotten, "files": files})
        return
    verbs = ("would forget", "would delete") if is_dry else ("forgot", "deleted")
    show_line(f"{verbs[0]} {count_noun(forgotten, 'deleted key')}, {verbs[1]} {count_noun(files, 'file')} of lists")
    if forgotten and not is_dry:
        note("A late record of a forgotten key inserts it again.")


def optimize(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Compact only these partitions, e.g. \"day > '2024-01-31'\".")
    ] = None,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option("--zorder-by", metavar="COLUMN", help="Sort by a column, for data skipping; can be repeated."),
    ] = None,
    target_bytes: Annotated[
        int | None, typer.Option(min=1, help="The size of new files; by default 1 GiB, or what an Iceberg table says.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the files.")] = False,
) -> None:
    """Compact small files into larger ones. The rows stay as they are."""
    from widen.protocol.table_properties import TARGET_BYTES
    from widen.table import Table

    opened = Table(table, call.storage)
    before = opened.version
    run = partial(opened.optimize, where, target_bytes=target_bytes or TARGET_BYTES, zorder_by=zorder_by or ())
    change = run(dry_run=True)
    if change.metrics and not dry_run:
        with progress("writing") as update:
            change = run(spark=output.choose_session(None, update))
    if not call.json and not change.metrics:
        show_unchanged(opened)
    else:
        show_compaction(change, changed=opened.version > before, is_dry=dry_run, json=call.json)


def show_compaction(change: TableChange[Any], *, changed: bool, is_dry: bool, json: bool) -> None:
    """Show which files became which, or would, in a table of either format."""
    counts = [change.metrics.get(key, 0) for key in (*_REMOVED, *_ADDED)]
    if json:
        names = ("files", "bytes", "newFiles", "newBytes")
        show_json({"version": change.table.version, "changed": changed} | dict(zip(names, counts, strict=True)))
        return
    old, new = files_text(*counts[:2]), files_text(*counts[2:])
    done = f"would rewrite {old}" if is_dry else f"{old} became {new}: version {change.table.version}"
    show([Text(done)])


_ADDED = ("numAddedFiles", "numAddedBytes")


def files_text(files: int, size_bytes: int) -> str:
    """Return a number of files and their size for a reader."""
    from widen.report import text_format

    text = text_format
    return f"{text.count_noun(files, 'file')}, {text.size_text(size_bytes)}"


def restore(
    table: shared_options.Table,
    call: shared_options.OutputOptions,
    version: Annotated[
        int | None, typer.Option(min=0, help="The version to go back to; or give a --timestamp.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Go back to the newest version at that time, e.g. 2024-01-31 12:00:00Z.")
    ] = None,
) -> None:
    """Restore an earlier version of a table. One commit brings back its columns, properties and rows."""
    from widen.report import text_format
    from widen.table import Table

    opened = Table(table, call.storage)
    before = opened.version
    change = opened.restore(version, timestamp=timestamp)
    back, removed = (change.metrics.get(key, 0) for key in ("numRestoredFiles", "numRemovedFiles"))
    noun = text_format.count_noun
    target = f"version {version}" if version is not None else f"the version of {timestamp}"
    done = f"restored {target}: {noun(back, 'file')} came back, {noun(removed, 'file')} left"
    facts = {"restoredFiles": back, "removedFiles": removed}
    report_change(before, change.table, json=call.json, done=done, facts=facts)


def drop_feature(
    table: shared_options.Table,
    feature: Annotated[str, typer.Argument(help="The table feature, e.g. typeWidening.")],
    call: shared_options.OutputOptions,
    truncate_history: Annotated[
        bool,
        typer.Option("--truncate-history", help="Delete the versions that use the feature; they must have expired."),
    ] = False,
) -> None:
    """Drop a table feature and every use of it. Then clients without the feature can use the table."""
    from widen.protocol.table_features import COLUMN_MAPPING, supported_features
    from widen.table import Table

    opened = Table(table, call.storage)
    before = opened.version
    with progress("reading the footers") as update:
        session = session_for(opened, update, all_files=feature == COLUMN_MAPPING)
        opened.drop_feature(feature, truncate_history=truncate_history, spark=session)
    files, size_bytes = _count_rewritten(opened, before)
    features = sorted(supported_features(opened.snapshot.protocol))
    done = f"dropped {feature}"
    if files:
        done += f"; rewrote {files_text(files, size_bytes)}"
    facts = {"dropped": feature, "rewrittenFiles": files, "features": features}
    report_change(before, opened, json=call.json, done=f"{done}; left: {', '.join(features) or 'none'}", facts=facts)


def session_for(table: Table, update: StepDisplay, *, all_files: bool = False) -> SparkSession | None:
    """Return the session for rewriting files, which may need no Spark; None without files.

    Args:
        all_files: Whether all files are rewritten, to end column mapping, instead of the files in old types.
    """
    if all_files:
        return start_unmapping(table, update)
    files, _ = show_commands.find_old_types(table.snapshot)
    if files == []:
        return None
    session = output.choose_session(None, update)
    # A file with several old types counts once.
    update(Step("rewriting files", max((old.size_bytes for old in files or ()), default=0)))
    return session


# The commands for fields that drifted: ``view``, ``fold`` and ``replay``.
#
# Source: docs/evolution-rules.md#one-logical-field, #u3, #d12


class RestChoice(str, Enum):
    """What happens to values that do not convert exactly: the values of `widen.evolution.unify.Rest`."""

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
            help="Temporary views for a Spark that has Widen, without Delta Lake.",
        ),
    ] = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Print the SQL of a view with one column per source field."""
    from widen.model.schema_json import to_identifier, to_literal
    from widen.table import Table

    opened = Table(table, shared_options.storage(storage_option))
    last = opened.location.rstrip("/").rpartition("/")[2]
    if data_source:
        if rows is not None:
            raise OptionConflict(option="--from", other_option="--data-source", expected="Omit one of them.")
        rows = to_identifier(f"{_NOT_IN_NAMES.sub('_', last)}_rows")
        path = to_literal(opened.location)
        show_line(f"CREATE OR REPLACE TEMPORARY VIEW {rows} USING widen OPTIONS (path {path});")
    print_view(opened.view_sql, last, name, rows, temporary=temporary or data_source)


def print_view(view_sql: Callable[..., str], last: str, name: str | None, rows: str | None, *, temporary: bool) -> None:
    """Print the SQL of a view of a table of either format.

    Args:
        last: The name of the table; the view gets its name from it by default.

    Raises:
        InvalidOption: the name is not one of SQL, or the SQL has characters that do not print.
    """
    from widen.model.schema_json import to_identifier

    if name is not None and not _VIEW_NAME.fullmatch(name):
        raise InvalidOption(option="--name", value=name, expected="Must be a name in SQL, e.g. shop.orders.")
    sql = view_sql(name or to_identifier(_NOT_IN_NAMES.sub("_", last)), rows, temporary=temporary)
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
    call: shared_options.OutputOptions,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="COLUMN",
            help="The column that gets the values; by default the one with the name of the field.",
        ),
    ] = None,
    rest: Annotated[
        RestChoice,
        typer.Option(
            help="Values that do not convert exactly: refuse changes nothing, keep leaves them, lose drops them."
        ),
    ] = RestChoice.REFUSE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be lost, and change nothing.")] = False,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
) -> None:
    """Move the values of a second column into the main one. Run it after the source is fixed."""
    from widen.table import Table

    opened = Table(table, call.storage)
    _, size_bytes = opened.snapshot.count_files()
    before = opened.version
    if run_fold(opened, size_bytes, (column, into, rest), samples, is_dry=dry_run, json=call.json):
        report_change(before, opened, json=call.json)


def run_fold(
    opened: Table | IcebergTable,
    size_bytes: int,
    wanted: tuple[str, str | None, RestChoice],
    samples: shared_options.Shown,
    *,
    is_dry: bool,
    json: bool,
) -> bool:
    """Fold a column of a table of either format, and return whether it was done and not only shown.

    Args:
        wanted: The column, the target column, and what to do with the rest.
    """
    from widen.report.text_format import sample_formatter
    from widen.spark.engine import find_started

    column, into, rest = wanted
    with progress("reading the values") as update:
        session = output.choose_session(None, update)
        update(Step("reading the values", size_bytes))
        result = opened.plan_fold(column, into, spark=session)
    shown = [text for text in map(sample_formatter(samples.value), result.samples) if text]
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
        if (started := find_started(session)) is not None:
            update.watch(started)
        update(Step("writing", size_bytes))
        opened.fold(column, into, rest=rest.value, spark=session)
    if not result.is_dropped and opened.version != before:
        note(f"{column} stays, because the table has no column mapping or something depends on the column.")
    return True


def _fold_preview(result: FoldResult, samples: list[str]) -> Iterator[RenderableType]:
    from widen.report import text_format

    text = text_format
    yield Text(f"{text.printable(str(result.fold))}: {text.count_noun(result.values, 'value')}")
    yield Text(f"  {text.count_text(result.fits)} convert exactly to {result.fold.into_type.sql} and back")
    if result.duplicates:
        yield Text(f"  {text.count_text(result.duplicates)} are in the column already")
    if result.lost:
        examples = f": {', '.join(map(text.printable, samples))}" if samples else ""
        yield Text(f"  {text.count_text(result.lost)} do not convert and would be lost{examples}", "bold red")


def replay_command(
    quarantine: Annotated[str, typer.Argument(help="The quarantine, e.g. orders_quarantine.")],
    into: shared_options.Into,
    settings: KeptTextOptions,
    call: shared_options.CallOptions,
    catalog: shared_options.Catalog = None,
    branch: Annotated[
        str | None, typer.Option(help="The branch of an Iceberg table that gets the rows; by default main.")
    ] = None,
) -> None:
    """Move records from a quarantine to the table. Moves only those that fit the table now, in one commit."""
    from widen.ingestion.replay_quarantine import ensure_replayable, replay
    from widen.report import terminal, text_format

    place: dict[str, Any] = {"catalog": catalog, "branch": branch, "storage_options": call.storage}
    ensure_replayable(quarantine, into, **place)
    with progress("looking at the table") as update:
        spark = output.choose_session(call.engine_name, update)
        result = replay(quarantine, into, **place, **settings, spark=spark, progress=update)
    output.note_engine(spark)
    if call.json:
        show_json(result.to_value())
        return
    left = f"{text_format.count_text(result.left)} left in the quarantine"
    if not result.replayed:
        show([Text(f"Nothing replayed: {left}.")])
    else:
        show([terminal.version_line(result.version, into)])
        show([Text(f"  replayed {text_format.count_noun(result.replayed, 'record')}; {left}")])
    show(terminal.plan_parts(result.plan))


# The commands ``handover`` and ``mirror``: make a table readable for other clients, and prove that they read it
# right.
#
# Source: docs/guide/hand-over.md


ICEBERG = "iceberg"
"""The client that gets a mirror of the table."""

if TYPE_CHECKING:
    from widen.iceberg.mirror import Mirrored
    from widen.proof.column_digests import TableDigest
    from widen.schema.feature_removal import HandoverPlan
    from widen.table import Table


def _clients() -> list[str]:
    return [*_CHECKS, ICEBERG]


def handover(
    table: shared_options.Table,
    to: Annotated[
        str, typer.Option("--to", metavar="CLIENT", help="deltalake, polars or iceberg.", autocompletion=_clients)
    ],
    call: shared_options.OutputOptions,
    append: Annotated[
        bool,
        typer.Option("--append", help="Let the client append, too. Deletes older versions once they have expired."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be lost, and change nothing.")] = False,
    catalog: shared_options.Catalog = None,
    identifier: Annotated[
        str | None,
        typer.Option("--identifier", metavar="NAME", help="With iceberg: the Iceberg table, e.g. shop.orders."),
    ] = None,
) -> None:
    """Hand a table over to deltalake, polars or Iceberg. Proves that the client reads it."""
    from widen.log.commit_outcome import several_commits
    from widen.schema.feature_removal import plan_handover
    from widen.schema.table_state import to_table_state
    from widen.table import Table

    settings = call.storage
    opened = Table(table, settings)
    if to == ICEBERG:
        _hand_to_iceberg(opened, catalog, identifier, appends=append, is_dry=dry_run, json=call.json)
        return
    if catalog is not None or identifier is not None:
        raise typer.BadParameter("--catalog and --identifier are for --to iceberg.")
    plan = plan_handover(to_table_state(opened.snapshot), to, appends=append)
    with several_commits():
        plan, pending = (plan, "") if dry_run else _drop(opened, plan)
        asked = {"location": opened.location, "settings": settings, "version": opened.version}
        proof = None if dry_run else _prove(opened, to, asked)
    facts: dict[str, Any] = {"client": to, "drops": plan.drops, "losses": plan.losses, "unwritable": plan.unwritable}
    facts |= {"unset": plan.unset} if plan.unset else {}
    if call.json:
        done = {"version": opened.version, "dryRun": dry_run, "pending": pending or None}
        show_json({**facts, **done, **_proof_facts(proof)})
        return
    show(Text(line) for line in _lines(plan, is_done=not dry_run))
    if pending:
        note(pending)
    if proof is not None:
        show([Text.assemble(("✓ ", "bold green"), f"{to} reads version {opened.version}: {_proof_text(proof)}")])
    elif not dry_run:
        note(f"Not proved: {to} is not installed here. To check: {_CHECKS[to].format(repr(opened.location))}")


def _proof_facts(proof: tuple[int, list[str]] | None) -> dict[str, Any]:
    return {"rows": proof and proof[0], "readers": proof and proof[1]}


def _proof_text(proof: tuple[int, list[str]]) -> str:
    from widen.report import text_format

    rows, readers = proof
    return f"{text_format.count_noun(rows, 'row')}, all values and filters equal ({', '.join(readers)})"


def _lines(plan: HandoverPlan, *, is_done: bool) -> list[str]:
    verb = "dropped" if is_done else "would drop"
    as_it_is = f"{plan.client} can read the table as it is: no feature has to be dropped"
    lines = [f"{verb} {name}" for name in plan.drops] or [as_it_is]
    lines += [f"  lost: {loss}" for loss in plan.losses]
    if plan.unset:
        tense = "no longer widen" if is_done else "would no longer widen"
        lines.append(f"  {', '.join(plan.unset)} is unset: loads {tense} columns without --enable-type-widening")
    if plan.unwritable:
        lines.append(f"  {plan.client} reads it, and cannot append: {', '.join(plan.unwritable)}")
    return lines


def _drop(table: Table, plan: HandoverPlan) -> tuple[HandoverPlan, str]:
    """Drop the features; return what was done, and what has to wait for the history to expire, else an empty text."""
    from widen.protocol.table_features import COLUMN_MAPPING, PROTECTION

    table.unset_properties(plan.unset)
    with progress("reading the footers") as update:
        for name in plan.drops:
            truncates = name == PROTECTION
            try:
                is_mapping = name == COLUMN_MAPPING
                session = session_for(table, update, all_files=is_mapping)
                table.drop_feature(name, truncate_history=truncates, spark=session)
            except (RetentionNotExpired, ProtectedVersionsRemain) as error:
                return plan.until(name), f"{error.message} Run the same command again then."
    _repair_for_clients(table)
    return plan, ""


def _repair_for_clients(table: Table) -> None:
    """Repair what makes clients lose rows of filters or read other times, and say so."""
    from widen.report.delta_traits import delta_traits
    from widen.report.text_format import count_noun

    traits = {trait.name for trait in delta_traits(table.snapshot)}
    if traits & {"short-bounds", "rounded-decimals"}:
        with progress("reading the footers"):
            files = table.rewrite(statistics=True).metrics.get("numRepairedFiles", 0)
        note(f"Replaced the bounds of {count_noun(files, 'file')} in the log, which are not the exact values.")
    if "int96-far" in traits:
        with progress("rewriting files") as update:
            change = table.rewrite(spark=output.choose_session(None, update))
        files = change.metrics.get("numRemovedFiles", 0)
        note(f"Rewrote {count_noun(files, 'file')} with INT96 timestamps before 1678 or after 2261.")


def _prove(table: Table, client: str, asked: Mapping[str, object]) -> tuple[int, list[str]] | None:
    """Compare the values that the client reads with the values of the table, with every reader of the client.

    Return the number of rows and the readers, or None if the client is not installed.

    Args:
        asked: What the client needs to know to open the table.

    Raises:
        HandoverUnproven: a reader fails, or returns something else.
    """
    from widen.files.data_reader import digest_locally
    from widen.frames.scan import digest_with_spark
    from widen.proof.column_digests import describe_difference, find_readers
    from widen.spark.engine import Unsupported

    if find_spec(client) is None:
        return None
    with progress("comparing values") as update:
        try:
            expected = digest_locally(table.snapshot)
        except Unsupported as error:
            spark = update.watch(output.spark_session(str(error)))
            expected = digest_with_spark(spark, table.snapshot)
    readers = find_readers(client, expected.rows)
    for reader in readers:
        found, lost = _read({**asked, "client": client, "reader": reader})
        difference = f"fails: {found}" if isinstance(found, str) else describe_difference(expected, found)
        if difference is None and lost:
            difference = f"loses rows of filters: {'; '.join(lost[:3])}"
        if difference is not None:
            raise HandoverUnproven(
                client=client,
                version=table.version,
                location=table.location,
                reader=reader,
                difference=difference.rstrip("."),
            )
    return expected.rows, readers


def _read(asked: Mapping[str, object]) -> tuple[TableDigest | str, list[str]]:
    """Return the digest of what one reader of a client returns, or why it fails, and its filters that lose rows.

    It reads in a separate process.
    """
    from widen.proof.column_digests import TableDigest

    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from widen.proof import column_digests; column_digests.run_readers()"
    )
    question = msgspec.json.encode(asked).decode()
    done = subprocess.run([sys.executable, "-c", program], input=question, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        *_, lost, digest = done.stdout.strip().split("\n")
        return TableDigest.from_json(digest), msgspec.json.decode(lost, type=list[str])
    lines = done.stderr.strip().split("\n")
    return next((line for line in reversed(lines) if _RAISED.match(line)), lines[-1]), []


_RAISED = re.compile(r"[\w.]*(Error|Exception|Panic\w*):? ")
"""The line of a traceback that says what was raised; some messages go on for lines."""


def _hand_to_iceberg(
    table: Table, catalog: str | None, identifier: str | None, *, appends: bool, is_dry: bool, json: bool
) -> None:
    """Mirror a table as an Iceberg table, and prove that PyIceberg reads every file of it."""
    from widen.iceberg.catalog import to_catalog
    from widen.iceberg.mirror import ensure_mirrorable
    from widen.log.commit_outcome import several_commits

    if catalog is None or identifier is None:
        raise typer.BadParameter("--to iceberg needs --catalog and --identifier.")
    if appends:
        raise typer.BadParameter(
            "--append is not for --to iceberg: writers of the Iceberg table do not change the Delta table."
        )
    proof = None
    if is_dry:
        ensure_mirrorable(table.snapshot)
    else:
        with several_commits():
            table.mirror(catalog=catalog, identifier=identifier)
            opened = to_catalog(catalog).open()
            asked = {"name": opened.name, "properties": opened.properties, "identifier": identifier}
            proof = _prove(table, "pyiceberg", asked)
    if json:
        facts = {"client": ICEBERG, "identifier": identifier, "version": table.version, "dryRun": is_dry}
        show_json({**facts, **_proof_facts(proof)})
    elif proof is None:
        show([Text(f"would mirror version {table.version} as {identifier}")])
    else:
        read = f"PyIceberg reads version {table.version} as {identifier}: {_proof_text(proof)}"
        show([Text.assemble(("✓ ", "bold green"), read)])
        note("Run `widen mirror --follow` to keep it up to date.")


_CHECKS: Mapping[str, str] = {
    "deltalake": "deltalake.DeltaTable({}).to_pyarrow_table()",
    "polars": "polars.read_delta({})",
}


def mirror(
    table: shared_options.Table,
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="NAME|FILE.db",
            help="A catalog of PyIceberg's configuration, or a file for an embedded one.",
        ),
    ],
    identifier: Annotated[
        str, typer.Option("--identifier", metavar="NAME", help="The Iceberg table, e.g. shop.orders.")
    ],
    call: shared_options.OutputOptions,
    follow: Annotated[bool, typer.Option("--follow", help="Keep the mirror up to date until interrupted.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0, help="With --follow: how often to look for changes, in seconds.")
    ] = 10,
) -> None:
    """Expose a Delta table as an Iceberg table. Reads only the log and opens no data files."""
    from widen.table import Table

    opened = Table(table, call.storage)
    _show(opened.mirror(catalog=catalog, identifier=identifier), json=call.json)
    if not follow:
        return
    with stop_requested() as stop:
        while not stop.wait(every):
            done = opened.refresh().mirror(catalog=catalog, identifier=identifier)
            if done.snapshot_id is not None:
                _show(done, json=call.json)
    note("stopped; run it again to continue.")


def _show(done: Mirrored, *, json: bool) -> None:
    if json:
        changed = {"changed": done.snapshot_id is not None, "added": done.added, "removed": done.removed}
        show_json({"identifier": done.name, "version": done.version, "snapshot": done.snapshot_id, **changed})
    elif done.snapshot_id is None:
        show([Text(f"{done.name} shows version {done.version} already")])
    else:
        counted = f"{done.added} added, {done.removed} removed"
        show([Text.assemble(("✓ ", "bold green"), f"{done.name} shows version {done.version}: {counted}")])
