"""The commands ``flow`` (one flow, or a chain of flows from a TOML file) and ``run`` (the loads and flows of one file).

Source: docs/guide/flow.md, docs/guide/pipelines.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.ingest_commands import report_result, stop_requested, wait_until_stopped
from widen.cli.output import ensure_output_writable, note, progress, show, show_json, writing
from widen.cli.plan_output import DryRun, Markdown, outcome_line, show_failure, show_heading, show_run_plan, to_form
from widen.errors import InvalidOption, OptionMissing
from widen.flows.flow_options import ChainOptions, StepOptions
from widen.model.keyword_options import with_defaults

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.flows.flow_step import FlowBatch
    from widen.flows.pipelines import PipelineStep, StepResult
    from widen.flows.run_flow import Flow
    from widen.ingestion.result import OnEvent

CHAIN = ".toml"
FIRST_FILE = Path("pipelines.toml")


def flow_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE|CHAIN.toml", help="The table to read, or a file with a chain of flows.")
    ],
    step: StepOptions,
    chain: ChainOptions,
    sinks: shared_options.EventSinkOptions,
    into: Annotated[str | None, typer.Option("--into", metavar="TABLE", help="The table to write.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="The directory that records the progress.")
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Propagate the changes of one table to another. The target's schema follows."""
    from widen.flows.run_flow import check_chain, check_flow, flow, flow_chain

    given: dict[str, Any] = {"into": into, "checkpoint": checkpoint, **step, "keys": _parse_keys(step["keys"])}
    given = {name: value for name, value in given.items() if value is not None}
    shared: dict[str, Any] = {**chain, "storage_options": shared_options.storage(storage_option)}
    shared["on_batch"] = partial(report_batch, json)
    if source.endswith(CHAIN):
        _ensure_alone(given)
        check_chain(source, shared["storage_options"])
        listener = sinks.listener()
        start: Callable[..., Flow] = partial(flow_chain, source)
    else:
        _ensure_given(given, "into", "checkpoint")
        check_flow({"source": source, **given, "storage_options": shared["storage_options"]})
        listener = sinks.listener([source], [(into, None)])
        start = partial(flow, source, **given)
    _run(partial(start, **shared, on_event=listener), once=chain["once"])


def _run(start: Callable[..., Flow], *, once: bool) -> None:
    with progress("starting Spark") as update:
        spark = update.watch(output.spark_session("flows run on it"))
        if once:
            running = start(spark=spark, progress=update)
        else:
            with stop_requested() as stop:
                running = start(spark=spark, progress=update)
                for _ in wait_until_stopped(running, stop, lambda: update("finishing the batch")):
                    pass
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
        note(f"{counted} in quarantine, because fixed columns cannot hold them: see {result.quarantine}", "yellow")


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


def _parse_keys(words: Iterable[str] | None) -> dict[str, str] | None:
    """Return the keys by their columns; a column alone is its own expression."""
    from widen.model.types import quote_name

    parts = (word.partition("=") for word in words or ())
    return {name: text if equals else quote_name(name) for name, equals, text in parts} or None


def _ensure_given(given: Mapping[str, object], *names: str) -> None:
    for name in names:
        if name not in given:
            raise typer.BadParameter("Is needed, unless the source is a file with a chain.", param_hint=f"--{name}")


def _ensure_alone(given: Mapping[str, object]) -> None:
    defaults = with_defaults(StepOptions, {})
    for name, value in given.items():
        if value != defaults.get(name):
            raise typer.BadParameter("Must be in the file of the chain.", param_hint=f"--{name.replace('_', '-')}")


# The command run: the loads and flows of one file.
#
# Source: docs/guide/pipelines.md


def init_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A local folder with the source files.")],
    lake: Annotated[str, typer.Option("--lake", metavar="DIR", help="The folder of the tables.")] = "lake",
    file: Annotated[Path, typer.Option("--file", metavar="FILE.toml", help="The file to write.")] = FIRST_FILE,
) -> None:
    """Write a first file of loads for a folder of source files."""
    from widen.flows.first_file import draft_pipelines

    if file.exists():
        raise InvalidOption(option="--file", value=str(file), expected="It exists: name another file.")
    ensure_output_writable(file)
    with progress("looking at the folder"):
        text = draft_pipelines(folder, lake)
    with writing(file):
        file.write_text(text, encoding="utf-8")
    show([Text(text.rstrip())])
    note(f"wrote {file}; next: widen plan {file}", "bold")


OVER_LIMIT = 3
"""The exit code if steps failed only because their batch was over a limit."""


def run_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file with the loads and flows.")],
    sinks: shared_options.EventSinkOptions,
    call: shared_options.CallOptions,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this step; can be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many steps may run at the same time.")] = 1,
    dry_run: DryRun = False,
    markdown: Markdown = False,
) -> None:
    """Run the loads and flows of a file. If a step fails, only steps that depend on it are skipped."""
    if dry_run:
        show_run_plan(file, only, jobs, call, to_form(call.json, markdown))
        return
    if markdown:
        raise OptionMissing(option="--dry-run", expected="--markdown needs it.")
    from widen.flows.pipelines import read_pipelines, run_steps, select_steps

    def listen(step: PipelineStep) -> OnEvent | None:
        return sinks.listener(step.source, [(each.into, each.arguments.get("catalog")) for each in steps])

    settings = call.storage
    steps = select_steps(read_pipelines(file, settings), only)
    listeners = {step.name: listen(step) for step in steps}  # a sink that cannot be used must not start Spark
    with progress("looking at the tables") as update:
        spark = output.choose_session(call.engine_name, update)
        given = {"storage_options": settings, "spark": spark, "progress": update}
        on_step = None if call.json else _report_step
        run = run_steps(steps, lambda step: listeners[step.name], jobs, on_step, given)
    output.note_engine(spark, says_local=False)
    if call.json:
        show_json(run.to_value())
    else:
        show([Text(), *(outcome_line(_MARKS[each.status.value], each.summary) for each in run.steps)])
    if not run.is_clean:
        raise typer.Exit(OVER_LIMIT if run.is_only_over_limits else 1)


def _report_step(ended: StepResult) -> None:
    """Show what a step has committed, as `ingest` and `flow` do, and why it failed."""
    from widen.flows.flow_step import FlowBatch

    if not ended.results and ended.error is None:
        return
    show_heading(ended.step)
    for result in ended.results:
        report_batch(False, result) if isinstance(result, FlowBatch) else report_result(ended.step.into, False, result)
    if ended.error is not None:
        show_failure(ended.error, str(ended))


_MARKS: Mapping[str, tuple[str, str]] = {
    "loaded": ("✓", "green"),
    "unchanged": ("·", "dim"),
    "lost": ("✗", "bold red"),
    "failed": ("✗", "bold red"),
    "skipped": ("·", "yellow"),
}
"""The mark and the style of the summary, by `widen.flows.pipelines.StepStatus`."""
