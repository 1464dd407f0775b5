"""The commands that take a source: ``ingest`` and ``plan``.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from widen.cli import follow, lazy_imports, shared_options, spark_session
from widen.cli.follow import EventFile, ensure_options_apply, follow_source
from widen.cli.ingest_options import takes_policy
from widen.cli.output import note, progress, show, show_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.ingestion import IngestResult
    from widen.planning.evolution.plan import Plan

CHANGES = 2
"""The exit code of a plan that is not empty."""


@takes_policy
def ingest(
    source: shared_options.Sources,
    into: shared_options.Into,
    said: Mapping[str, Any],
    verify: bool = typer.Option(False, "--verify", help="Rebuild every value of every record from the table, compare."),
    verify_share: shared_options.VerifyShare = None,
    plan_hash: shared_options.PlanHash = None,
    events: shared_options.Events = None,
    follow: follow.Follow = False,
    once: follow.Once = False,
    checkpoint: follow.Checkpoint = None,
    every: follow.Every = 5,
    max_files: follow.MaxFiles = None,
    max_bytes: follow.MaxBytes = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write all records of a source to a table, which grows where it must, in one commit; or go on as more come."""
    words = {**said, "verify": verify_share or verify, "storage_options": shared_options.storage(storage_option)}
    words["on_event"] = None if events is None else EventFile(events)
    tell = partial(_report_result, into, json)
    limits = {"--checkpoint": checkpoint, "--max-files": max_files, "--max-bytes": max_bytes}
    ensure_options_apply({"--plan-hash": plan_hash}, limits, follows=follow or once)
    if follow or once:
        words |= {"max_files": max_files, "max_bytes": max_bytes, "every_seconds": every, "once": once}
        follow_source(source, into, checkpoint, tell, words)
        return
    with progress("starting Spark") as told:
        spark = spark_session.spark_session()
        done = lazy_imports.ingest(source, into, plan_hash=plan_hash, spark=spark, progress=told, **words)
    if not tell(done):
        raise typer.Exit(1)


def _report_result(into: str, as_json: bool, done: IngestResult) -> bool:
    """Say what an interval did, and whether all of it could be rebuilt, as far as that was looked at."""
    if as_json:
        show_json(done.to_value())
    else:
        show(_ingested(done, into))
    _tell_unmatched(done.plan)
    if done.quarantined:
        note(f"{done.quarantined} kept out, since they do not fit columns that cannot yield: see {done.quarantine}")
    for name in done.left_out:
        note(f"left out, since by its name it is something else: {name}")
    if done.verification is None or done.verification.is_clean:
        return True
    note("not every value could be rebuilt from the table: keep the source, and look at what is lost.", "bold red")
    return False


@takes_policy
def plan(
    source: shared_options.Sources,
    into: shared_options.Into,
    said: Mapping[str, Any],
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Tell what an ingestion would change; exit code 0 for nothing, 2 for changes, 1 for an error."""
    settings = shared_options.storage(storage_option)
    with progress("starting Spark"):
        spark = spark_session.spark_session()
        planned = lazy_imports.plan(source, into, storage_options=settings, spark=spark, **said)
    _tell_unmatched(planned)
    if json:
        show_json({"hash": planned.hash, **planned.to_value()})
    elif planned.is_empty and not (planned.rescued or planned.quarantined or planned.pending):
        show([Text("Nothing to change.")])
    else:
        show([*([Text("Nothing to change.")] if planned.is_empty else []), *lazy_imports.terminal.plan_parts(planned)])
        show([Text(f"hash {planned.hash}", "dim")])
    if not planned.is_empty:
        raise typer.Exit(CHANGES)


def _tell_unmatched(planned: Plan) -> None:
    for each in planned.unmatched:
        note(f"warning: {lazy_imports.text_format.printable(str(each))}", "bold red")


def _ingested(done: IngestResult, into: str) -> Iterator[RenderableType]:
    yield lazy_imports.terminal.version_line(done.version, into)
    yield Text("  " + lazy_imports.text_format.written_text(done.records, done.files, done.size_bytes, done.corrupt))
    if done.verification is not None:
        yield Text(f"  verified: {done.verification}", "green" if done.verification.is_clean else "bold red")
        yield from (
            Text(f"  lost: {lazy_imports.text_format.printable(place)}", "red") for place in done.verification.places
        )
    yield from lazy_imports.terminal.plan_parts(done.plan)
