"""The commands that take a source: ``ingest`` and ``plan``.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from widen.cli import door, engine, option
from widen.cli.output import note, progress, show, show_json
from widen.cli.policy import takes_policy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.ingestion import Ingested

CHANGES = 2
"""The exit code of a plan that is not empty."""


@takes_policy
def ingest(
    source: option.Sources,
    into: option.Into,
    said: Mapping[str, Any],
    verify: bool = typer.Option(False, "--verify", help="Rebuild every value of every record from the table, compare."),
    json: option.Json = False,
    storage_option: option.StorageOptions = None,
) -> None:
    """Write all records of a source to a table, which grows where it must, in one commit."""
    settings = option.storage(storage_option)
    with progress("starting Spark") as told:
        spark = engine.session()
        done = door.ingest(source, into, verify=verify, storage_options=settings, spark=spark, progress=told, **said)
    if json:
        show_json(done.to_value())
    else:
        show(_ingested(done, into))
    if done.quarantined:
        note(f"{done.quarantined} kept out, since they do not fit columns that cannot yield: see {done.quarantine}")
    for name in done.left_out:
        note(f"left out, since it is no JSON by its name: {name}")
    if done.verification is not None and not done.verification.is_clean:
        note("not every value could be rebuilt from the table: keep the source, and look at what is lost.", "bold red")
        raise typer.Exit(1)


@takes_policy
def plan(
    source: option.Sources,
    into: option.Into,
    said: Mapping[str, Any],
    json: option.Json = False,
    storage_option: option.StorageOptions = None,
) -> None:
    """Tell what an ingestion would change; exit code 0 for nothing, 2 for changes, 1 for an error."""
    settings = option.storage(storage_option)
    with progress("starting Spark"):
        spark = engine.session()
        planned = door.plan(source, into, storage_options=settings, spark=spark, **said)
    if json:
        show_json(planned.to_value())
    elif planned.is_empty and not (planned.rescued or planned.quarantined or planned.pending):
        show([Text("Nothing to change.")])
    else:
        show([*([Text("Nothing to change.")] if planned.is_empty else []), *door.terminal.plan_parts(planned)])
    if not planned.is_empty:
        raise typer.Exit(CHANGES)


def _ingested(done: Ingested, into: str) -> Iterator[RenderableType]:
    yield door.terminal.version_line(done.version, into)
    yield Text("  " + door.words.written_text(done.records, done.files, done.size_bytes, done.corrupt))
    if done.verification is not None:
        yield Text(f"  verified: {done.verification}", "green" if done.verification.is_clean else "bold red")
        yield from (Text(f"  lost: {door.words.printable(place)}", "red") for place in done.verification.lost)
    yield from door.terminal.plan_parts(done.plan)
