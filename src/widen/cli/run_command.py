"""The command ``run``: the loads and flows of one file.

Source: docs/guide/pipelines.md
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import shared_options, spark_session
from widen.cli.flow_command import report_batch
from widen.cli.ingest_commands import report_result, to_listener
from widen.cli.output import note, progress, show, show_error, show_json
from widen.errors import WidenError

if TYPE_CHECKING:
    from widen.flows.pipelines import PipelineStep, StepResult
    from widen.ingestion.commit_batch import OnEvent

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
        )

    settings = shared_options.storage(storage_option)
    steps = select_steps(read_pipelines(file, settings), only)
    listeners = {step.name: listen(step) for step in steps}  # a sink that cannot be used must not start Spark
    with progress("looking at the tables") as update:
        spark = spark_session.choose_session(engine and engine.value, update)
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
        spark_session.note_engine(spark)
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
