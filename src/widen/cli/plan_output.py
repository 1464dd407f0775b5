"""How the commands ``plan``, ``ingest --dry-run`` and ``run --dry-run`` show plans.

Source: docs/guide/gate.md, docs/guide/pipelines.md#plan
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.output import note, progress, show, show_error, show_json, show_line
from widen.errors import OptionConflict, WidenError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.evolution.plan import Plan
    from widen.flows.pipelines import PipelineStep
    from widen.flows.run_plan import StepPlan

PLAN_CODES: Mapping[str, int] = {"nothing": 0, "open": 0, "failed": 1, "changes": 2, "refused": 3}
"""The exit codes of a plan, by `widen.flows.run_plan.StepOutcome`."""


class PlanForm(str, Enum):
    """How a plan is written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


Markdown: TypeAlias = Annotated[
    bool, typer.Option("--markdown", help="Write the plan to stdout as Markdown, e.g. for a pull request.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would change, with the exit codes of `widen plan`.")
]


def to_form(as_json: bool, as_markdown: bool) -> PlanForm:
    """Return how a plan is written.

    Raises:
        OptionConflict: both are asked for.
    """
    if as_json and as_markdown:
        raise OptionConflict(option="--json", other_option="--markdown", expected="Omit one of them.")
    return PlanForm.JSON if as_json else PlanForm.MARKDOWN if as_markdown else PlanForm.TEXT


def end_with(outcome: str) -> None:
    """End the command with the exit code of a plan."""
    if PLAN_CODES[outcome]:
        raise typer.Exit(PLAN_CODES[outcome])


def show_markdown(lines: Iterable[str]) -> None:
    """Write lines of Markdown to stdout."""
    for line in lines:
        show_line(line)


def planned_parts(planned: Plan) -> Iterator[RenderableType]:
    """Yield what is shown of a plan."""
    from widen.report import terminal, text_format

    if planned.keyed_by:
        yield Text(f"Rows change by key: {text_format.printable(planned.keyed_by)}")
    if planned.is_empty:
        yield Text("Nothing to change." if not planned.keyed_by else "The schema does not change.")
    notes = (
        planned.rescued,
        planned.quarantined,
        planned.pending,
        planned.lost_sources,
        planned.over_limits,
        planned.readers,
    )
    has_notes = any(notes)
    if not planned.is_empty or has_notes:
        yield from terminal.plan_parts(planned)
        yield Text(f"hash {planned.hash}", "dim")


def show_run_plan(
    file: str | Path,
    only: Sequence[str] | None,
    jobs: int,
    call: shared_options.CallOptions,
    form: PlanForm,
    readers: Sequence[str] | None = None,
) -> None:
    """Show what the loads of a file would change, and end with the exit code of the worst plan."""
    from widen.flows.pipelines import read_pipelines, select_steps
    from widen.flows.run_plan import plan_steps

    steps = select_steps(read_pipelines(file, call.storage), only)
    with progress("looking at the tables") as update:
        spark = output.choose_session(call.engine_name, update)
        given = {"storage_options": call.storage, "spark": spark, "progress": update, "readers": readers}
        planned = plan_steps(steps, jobs, _report_plan if form is PlanForm.TEXT else None, given)
    output.note_engine(spark, says_local=False)
    if form is PlanForm.JSON:
        show_json(planned.to_value())
    elif form is PlanForm.MARKDOWN:
        show_markdown(planned.to_markdown())
    else:
        show([Text(), *map(_summary_line, planned.steps)])
    end_with(planned.outcome.value)


def _report_plan(planned: StepPlan) -> None:
    """Show the plan of a step, or why it has no plan."""
    if planned.plan is None and planned.error is None:
        return
    show_heading(planned.step)
    if planned.plan is not None:
        show(planned_parts(planned.plan))
    elif planned.error is not None:
        show_failure(planned.error, str(planned))


def show_heading(step: PipelineStep) -> None:
    """Show the name of a step."""
    from widen.report.text_format import printable

    show([Text(f"── {printable(step.name)}", "bold")])


def show_failure(error: Exception, text: str) -> None:
    """Show why a step failed."""
    if isinstance(error, WidenError):
        show_error(error)
    else:
        note(text, "bold red")


def _summary_line(planned: StepPlan) -> Text:
    from widen.report.markdown import OUTCOME_MARKS

    outcome = planned.outcome.value
    return outcome_line((OUTCOME_MARKS[outcome], _STYLES[outcome]), planned.summary)


def outcome_line(mark: tuple[str, str], text: str) -> Text:
    """Return a line of a summary."""
    from widen.report.text_format import printable

    sign, style = mark
    return Text(f"{sign} {printable(text)}", style)


_STYLES: Mapping[str, str] = {
    "nothing": "dim",
    "changes": "green",
    "refused": "bold red",
    "failed": "bold red",
    "open": "yellow",
}
"""The style of the summary, by `widen.flows.run_plan.StepOutcome`."""
