"""What a run of a file of loads and flows would change; nothing is written.

Source: docs/guide/pipelines.md#plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from os import PathLike
from types import MappingProxyType
from typing import Any, TypeAlias

from widen.errors import InvalidOption, WidenError
from widen.evolution.plan import Plan, PlanOutcome
from widen.flows.pipelines import (
    PipelineStep,
    StepKind,
    describe_error,
    read_pipelines,
    select_steps,
    step_pool,
    step_session,
)
from widen.ingestion.ingest_options import LoadPlanOptions, RunPlanOptions
from widen.ingestion.interval import plan
from widen.model.argument_types import check_arguments
from widen.model.display import html_table, list_lines
from widen.model.keyword_options import Unpack, declared, with_defaults
from widen.model.value_classes import dataclass
from widen.report.markdown import OUTCOME_MARKS, markdown_code, markdown_table, markdown_text, plan_markdown
from widen.spark.engine import open_session


class StepOutcome(str, Enum):
    """What a step would do: the values of `PlanOutcome`, and two more."""

    NOTHING = PlanOutcome.NOTHING.value
    CHANGES = PlanOutcome.CHANGES.value
    REFUSED = PlanOutcome.REFUSED.value
    FAILED = "failed"
    """There is no plan, since an error ended it."""
    OPEN = "open"
    """It depends on rows that earlier steps or the flow itself have yet to write."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step of a file would change.

    Args:
        plan: The plan of a load; None if the outcome is failed or open.
    """

    step: PipelineStep
    outcome: StepOutcome
    plan: Plan | None = None
    error: Exception | None = None

    @property
    def summary(self) -> str:
        """The outcome in a line; what the error says is not part of it."""
        return f"{self.step.name}: {self.result}"

    @property
    def result(self) -> str:
        """What the step would do, in a line."""
        into = self.step.into
        match self.outcome:
            case StepOutcome.FAILED:
                return f"no plan, because of {describe_error(self.error)['code']}"
            case StepOutcome.OPEN:
                return "known only when it runs"
        assert self.plan is not None
        parts = [*_changes(self.plan, into), *_obstacles(self.plan)]
        return ", ".join(parts) or f"no change of {into}"

    def __str__(self) -> str:
        """Return the summary, and what the error says."""
        return self.summary if self.error is None else f"{self.summary}: {describe_error(self.error)['message']}"

    def to_value(self) -> dict[str, Any]:
        """Return the plan of the step as a JSON object."""
        return {
            "name": self.step.name,
            "kind": self.step.kind.value,
            "into": self.step.into,
            "outcome": self.outcome.value,
            "error": None if self.error is None else describe_error(self.error),
            "plan": None if self.plan is None else {"hash": self.plan.hash, **self.plan.to_value()},
        }


def _changes(plan: Plan, into: str) -> list[str]:
    if plan.creates_table:
        return [f"a new table {into}"]
    count = len(plan.operations)
    changes = [f"{count} {'change' if count == 1 else 'changes'} of {into}"] if count else []
    return changes or ([f"type widening turned on in {into}"] if plan.enables_widening else [])


def _obstacles(plan: Plan) -> list[str]:
    return [
        f"{count} {one if count == 1 else more}"
        for count, one, more in (
            (len(plan.refused), "change refused", "changes refused"),
            (len(plan.rescued), "field with values for the rescue column", "fields with values for the rescue column"),
            (len(plan.quarantined), "field with records for the quarantine", "fields with records for the quarantine"),
            (len(plan.over_limits), "limit exceeded", "limits exceeded"),
        )
        if count
    ]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What the steps of a file would change, in the order of the file."""

    steps: tuple[StepPlan, ...]

    @property
    def outcome(self) -> StepOutcome:
        """The worst outcome of all steps: failed, refused, changes, nothing. Steps that are open do not count."""
        outcomes = {each.outcome for each in self.steps}
        worst = (StepOutcome.FAILED, StepOutcome.REFUSED, StepOutcome.CHANGES)
        return next((each for each in worst if each in outcomes), StepOutcome.NOTHING)

    def __repr__(self) -> str:
        return list_lines("RunPlan", map(str, self.steps))

    def _repr_html_(self) -> str:
        rows = ((each.step.name, each.step.into, each.outcome.value, each.summary) for each in self.steps)
        return html_table("RunPlan", ("step", "into", "outcome", "summary"), rows)

    def to_markdown(self) -> Iterator[str]:
        """Yield the lines of a page of Markdown: a table of the steps, then each plan that changes something."""
        rows = ((OUTCOME_MARKS[each.outcome.value], each.step.name, each.result) for each in self.steps)
        yield from markdown_table(("", "step", "result"), rows)
        for each in self.steps:
            if each.error is not None:
                text = markdown_text(describe_error(each.error)["message"])
                yield from (f"### {OUTCOME_MARKS[each.outcome.value]} {markdown_code(each.step.into)}", "", text, "")
            elif each.plan is not None and each.plan.outcome is not PlanOutcome.NOTHING:
                yield from plan_markdown(each.plan, each.step.into)

    def to_value(self) -> dict[str, Any]:
        """Return the plan of the run as a JSON object."""
        return {"outcome": self.outcome.value, "steps": [each.to_value() for each in self.steps]}


@check_arguments
def plan_run(
    file: str | PathLike[str], *, only: Sequence[str] | None = None, jobs: int = 1, **options: Unpack[RunPlanOptions]
) -> RunPlan:
    """Return what `run` would change in the tables of a file; nothing is written.

    Each load is planned against its table and its source as they are now. What a flow brings is not known before it
    runs, nor what a load reads from a table that an earlier step of the file writes: these steps stay open.

    Args:
        file: As in `run`.
        only: The names of the steps to plan; by default all.
        jobs: How many loads may be planned at the same time.

    Returns:
        The plans. They hold the errors of the loads that cannot be planned.

    Raises:
        InvalidConfig: the file cannot be read, has an unknown setting or an invalid value.
        InvalidOption: another argument cannot be used.

    Source: docs/guide/pipelines.md#plan
    """
    steps = select_steps(read_pipelines(file, options["storage_options"]), only)
    return plan_steps(steps, jobs, None, options)


OnStepPlan: TypeAlias = Callable[[StepPlan], object]
"""Called with the plan of each step, in the order of the file."""


def plan_steps(
    steps: Sequence[PipelineStep],
    jobs: int = 1,
    on_step: OnStepPlan | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> RunPlan:
    """Return what steps would change, in their order.

    Raises:
        InvalidOption: the number of jobs is not positive.
    """
    options = with_defaults(RunPlanOptions, given)
    if jobs < 1:
        raise InvalidOption(option="jobs", value=jobs, expected="Must be an integer >= 1.")
    session = open_session(options["spark"])
    written: set[str] = set()

    def is_open(step: PipelineStep) -> bool:
        reads = step.kind is StepKind.FLOW or not written.isdisjoint(step.reads)
        written.add(step.writes)
        return reads

    open_steps = {step.name for step in steps if is_open(step)}

    def plan_one(step: PipelineStep) -> StepPlan:
        if step.name in open_steps:
            return StepPlan(step, StepOutcome.OPEN)

        def say(text: str) -> object:
            return options["progress"](f"{step.name}: {text}")

        known = {name: value for name, value in step.arguments.items() if name in _SETTINGS}
        try:
            shared = {**options, "progress": say, "spark": step_session(step, session)}
            planned = plan(list(step.source), step.into, **known, **shared)
        except (WidenError, OSError) as error:  # the result of this step, which must not end others
            return StepPlan(step, StepOutcome.FAILED, error=error)
        return StepPlan(step, StepOutcome(planned.outcome.value), planned)

    planned: list[StepPlan] = []
    with step_pool(jobs) as pool:
        for each in pool.map(plan_one, steps):
            planned.append(each)
            if on_step is not None:
                on_step(each)
    return RunPlan(tuple(planned))


_SETTINGS = frozenset(declared(LoadPlanOptions))
"""The arguments of a load that its plan depends on."""
