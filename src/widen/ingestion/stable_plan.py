"""Passes over a batch until its files are written by the plan that the batch itself leads to.

A plan is made from what is known of the batch. The rows are written by that plan while they are observed. The files are
kept only if the observation leads to the same plan; else they are deleted and the next pass uses the new plan. So an
interval without changes takes one pass.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from widen.errors import InternalError
from widen.formats.table_format import IngestTarget, QuarantineWrite, TableDraft
from widen.model.column_path import ELEMENT, KEY, VALUE
from widen.observe.observation import Observation
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.plan import Plan, PlanEvent
from widen.planning.evolution.unmatched_fields import find_unmatched
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec

PATIENT_FROM, MAX_PASSES = 1, 8
"""From this pass on, each task reads all its records even if it knows that the plan will change; and the most passes.
The first pass finds all kinds but rare ones. Looking for those one pass after another would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """A batch in the files of a table, by a plan that the batch confirms.

    Args:
        draft: The table as the plan changes it; the files are written under it.
        result: The files of the last pass, and what it observed; its counts are those of the batch.
        version: The version of the table that holds the batch; None as long as it is not committed.
        quarantine: The records of the batch in the quarantine, if there are any.
        is_repeated: Whether the table had the batch already; then nothing was written.
    """

    target: IngestTarget
    plan: Plan
    draft: TableDraft
    result: BatchResult
    version: int | None = None
    quarantine: QuarantineWrite | None = None
    is_repeated: bool = False


def write_until_plan_is_stable(
    target: IngestTarget, observed: Observation, write: Callable[[BatchWriteSpec, TableDraft], BatchResult]
) -> WrittenBatch:
    """Pass over a batch until a pass confirms its plan and has written every record.

    Args:
        observed: What is known of the batch already.

    Raises:
        InvalidOption: a new table cannot be partitioned as the caller wants.
        InternalError: the plan changed in every pass, which should not happen; the files of all passes are deleted.
    """
    plan = evolve(target.schema, observed, target.policy)
    for number in range(MAX_PASSES):
        spec = BatchWriteSpec(target.schema, observed.to_json(), plan.schema, target.policy, number >= PATIENT_FROM)
        draft = target.draft(plan)
        result = write(spec, draft)
        observed = observed.merged(result.seen, max)
        plan = evolve(target.schema, observed, target.policy)
        # Schemas and not plans: counts and samples grow with every pass, and do not change what was written.
        if plan.schema == spec.schema and result.is_complete:
            draft.check()
            plan = replace(plan, unmatched=find_unmatched(target.policy, target.schema, plan.schema, observed))
            plan = _with_bounds(plan, result.seen)
            return WrittenBatch(target=target, plan=plan, draft=draft, result=result)
        draft.discard(result)
    raise InternalError(reason=f"the plan of a batch still changed after {MAX_PASSES} passes")


def _with_bounds(plan: Plan, seen: Observation) -> Plan:
    """Return the plan of a large batch with its counts as lower bounds: tasks stop counting what the columns hold."""
    records = seen.records + seen.quarantined
    if records + seen.corrupt < MIN_COUNTED_RECORDS:
        return plan
    events = tuple(replace(event, at_least=not _is_in_every_record(event, records)) for event in plan.events)
    return replace(plan, events=events, rescued=tuple(replace(field, at_least=True) for field in plan.rescued))


def _is_in_every_record(event: PlanEvent, records: int) -> bool:
    """Tell whether no more values are possible: a record has one of a field, unless arrays or maps are around it."""
    return event.count == records and _REPEATED.isdisjoint(event.column)


_REPEATED = frozenset({ELEMENT, KEY, VALUE})
"""Steps of a path into what may hold several values."""
