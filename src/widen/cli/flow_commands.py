"""The commands ``flow`` (one flow, or a chain of flows from a TOML file) and ``run`` (the loads and flows of one file).

Source: docs/guide/flow.md, docs/guide/pipelines.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from widen.cli import ingest_commands, output, shared_options
from widen.cli.ingest_commands import report_result, stop_requested, to_listener
from widen.cli.output import note, progress, show, show_error, show_json
from widen.errors import WidenError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.flows import Flow, FlowBatch
    from widen.flows.pipelines import PipelineStep, StepResult
    from widen.ingestion.commit_batch import OnEvent

CHAIN = ".toml"


class Removed(str, Enum):
    """What a flow without keys does with updates and deletions: the values of `widen.flows.run_flow.REMOVED`."""

    FAIL = "fail"
    SKIP = "skip"


_OPTIONS = (
    *("to", "catalog", "partition_by", "evolve", "enable_type_widening", "config", "pins"),
    *("max_columns", "numbers", "quarantine", "samples"),
)


@ingest_commands.with_ingest_options(*_OPTIONS)
def flow_command(
    options: Mapping[str, Any],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE|CHAIN.toml", help="The table to read, or a file with a chain of flows.")
    ],
    into: Annotated[str | None, typer.Option("--into", metavar="TABLE", help="The table to write.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", metavar="QUERY", help="A query over the table `source`.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            metavar="COLUMN[=SQL]",
            help="A column by which rows are replaced, or an expression over the source; can be repeated.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="The directory that records the progress.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the target has what the source has now.")] = False,
    every: Annotated[float, typer.Option("--every", min=0, help="How often to poll the source, in seconds.")] = 5,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="Close a batch at this size, in bytes.")
    ] = None,
    removed: Annotated[
        Removed, typer.Option("--removed", help="Without keys: fail on updates and deletions, or skip their versions.")
    ] = Removed.FAIL,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Recompute the target: the first batch replaces all of its rows.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the rows of each batch with the table.")] = False,
    source_catalog: Annotated[
        str | None,
        typer.Option("--source-catalog", metavar="NAME|FILE.db", help="The catalog of an Iceberg table to read."),
    ] = None,
    events: shared_options.Events = None,
    events_from: shared_options.EventsFrom = shared_options.EventGrade.STRUCTURAL,
    dead_letter: shared_options.DeadLetter = None,
    events_required: shared_options.EventsRequired = False,
    openlineage: shared_options.Lineage = False,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Propagate the changes of one table to another. The target's schema follows."""
    from widen.flows import flow, flow_chain
    from widen.flows.run_flow import check_chain, check_flow

    arguments: dict[str, Any] = {
        **options,
        "sql": sql,
        "keys": _parse_keys(keys),
        "checkpoint": checkpoint,
        "max_bytes": max_bytes,
        "source_catalog": source_catalog,
        "into": into,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    shared: dict[str, Any] = {
        "every_seconds": every,
        "rebuild": rebuild,
        "storage_options": shared_options.storage(storage_option),
    }
    if source.endswith(CHAIN):
        _ensure_alone(given)
        check_chain(source, shared["storage_options"])
        start = partial(flow_chain, source, **shared)
    else:
        _ensure_given(given, "into", "checkpoint")
        more = {"source": source, "removed": removed.value, "verify": verify}
        check_flow({**given, **more}, shared["storage_options"])
        start = partial(flow, source, **given, removed=removed.value, verify=verify, **shared)
    listener = to_listener(
        events,
        grade=events_from,
        dead_letter=dead_letter,
        must_deliver=events_required,
        lineage=openlineage,
        inputs=[] if source.endswith(CHAIN) else [source],
        tables=[] if source.endswith(CHAIN) else [(into, None)],
    )
    _run(partial(start, on_event=listener, on_batch=partial(report_batch, json)), once=once)


def _run(start: Callable[..., Flow], *, once: bool) -> None:
    with progress("starting Spark") as update:
        spark = update.watch(output.spark_session("flows run on it"))
        if once:
            running = start(spark=spark, progress=update, once=True)
        else:
            with stop_requested() as stop:
                running = start(spark=spark, progress=update)
                while not running.wait(1):
                    if stop.is_set():
                        update("finishing the batch")
                        running.stop()
    if not once:
        note("stopped; run it again with this checkpoint to continue.")
    elif not running.batches:
        note("nothing to do: the target has everything that the source has now.")


def report_batch(as_json: bool, batch: FlowBatch) -> None:
    """Show the result of a batch."""
    from widen.ingestion.new_files import name_some
    from widen.report import text_format

    if as_json:
        show_json(batch.to_value())
    else:
        show(_parts(batch))
    if batch.skipped:
        versions = name_some([str(version) for version in batch.skipped])
        note(f"left out, because rows were updated or removed: version {versions} of {batch.source}", "bold red")
    result = batch.result
    if result is not None and result.quarantined:
        counted = text_format.count_noun(result.quarantined, "record")
        note(f"{counted} in quarantine, because fixed columns cannot hold them: see {result.quarantine}")


def _parts(batch: FlowBatch) -> Iterator[RenderableType]:
    from widen.report import terminal, text_format

    span = f"version {batch.last}" if batch.first == batch.last else f"versions {batch.first} to {batch.last}"
    result = batch.result
    if result is None:
        yield Text(f"{batch.into} has {span} of {batch.source}; no row has changed.")
        return
    assert result.version is not None
    yield terminal.version_line(result.version, batch.into)
    counts = result.records, result.files, result.size_bytes, result.corrupt
    written = text_format.written_text(*counts, result.corrupt_reason)
    yield Text(f"  {written}, from {span} of {batch.source}")
    yield from terminal.plan_parts(result.plan)


def _parse_keys(words: Sequence[str] | None) -> dict[str, str] | None:
    """Return the keys by their columns; a column alone is its own expression."""
    from widen.model.types import quote_name

    parts = (word.partition("=") for word in words or ())
    return {name: text if equals else quote_name(name) for name, equals, text in parts} or None


def _ensure_given(given: Mapping[str, object], *names: str) -> None:
    for name in names:
        if name not in given:
            raise typer.BadParameter("Is needed, unless the source is a file with a chain.", param_hint=f"--{name}")


def _ensure_alone(given: Mapping[str, object]) -> None:
    for name in given:
        raise typer.BadParameter("Must be in the file of the chain.", param_hint=f"--{name.replace('_', '-')}")


# The command run: the loads and flows of one file.
#
# Source: docs/guide/pipelines.md


OVER_LIMIT = 3
"""The exit code if steps failed only because their batch was over a limit."""


def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file with the loads and flows.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this step; can be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many steps may run at the same time.")] = 1,
    events: shared_options.Events = None,
    events_from: shared_options.EventsFrom = shared_options.EventGrade.STRUCTURAL,
    dead_letter: shared_options.DeadLetter = None,
    events_required: shared_options.EventsRequired = False,
    openlineage: shared_options.Lineage = False,
    engine: shared_options.Engine = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Run the loads and flows of a file. If a step fails, only steps that depend on it are skipped."""
    from widen.flows.pipelines import read_pipelines, run_steps, select_steps
    from widen.spark.engine import is_local

    def listen(step: PipelineStep) -> OnEvent | None:
        return to_listener(
            events,
            grade=events_from,
            dead_letter=dead_letter,
            must_deliver=events_required,
            lineage=openlineage,
            inputs=step.source,
            tables=[(each.into, each.arguments.get("catalog")) for each in steps],
        )

    settings = shared_options.storage(storage_option)
    steps = select_steps(read_pipelines(file, settings), only)
    listeners = {step.name: listen(step) for step in steps}  # a sink that cannot be used must not start Spark
    with progress("looking at the tables") as update:
        spark = output.choose_session(engine and engine.value, update)
        run = run_steps(
            steps,
            lambda step: listeners[step.name],
            jobs,
            settings,
            spark,
            update,
            on_step=None if json else _report_step,
        )
    if not is_local(spark):
        output.note_engine(spark)
    if json:
        show_json(run.to_value())
    else:
        show([Text(), *map(_summary_line, run.steps)])
    if not run.is_clean:
        raise typer.Exit(OVER_LIMIT if run.is_only_over_limits else 1)


def _report_step(ended: StepResult) -> None:
    """Show what a step has committed, as `ingest` and `flow` do, and why it failed."""
    from widen.flows import FlowBatch
    from widen.report.text_format import printable

    if not ended.results and ended.error is None:
        return
    show([Text(f"── {printable(ended.step.name)}", "bold")])
    for result in ended.results:
        report_batch(False, result) if isinstance(result, FlowBatch) else report_result(ended.step.into, False, result)
    if isinstance(ended.error, WidenError):
        show_error(ended.error)
    elif ended.error is not None:
        note(str(ended), "bold red")


def _summary_line(ended: StepResult) -> Text:
    from widen.report.text_format import printable

    mark, style = _MARKS[ended.status.value]
    return Text(f"{mark} {printable(ended.summary)}", style)


_MARKS: Mapping[str, tuple[str, str]] = {
    "loaded": ("✓", "green"),
    "unchanged": ("·", "dim"),
    "lost": ("✗", "bold red"),
    "failed": ("✗", "bold red"),
    "skipped": ("·", "yellow"),
}
"""The mark and the style of the summary, by `widen.flows.pipelines.StepStatus`."""
