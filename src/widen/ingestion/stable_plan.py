"""Settling: passes over a batch until one has written it by the plan that the batch leads to.

The plan is made from what is known, the rows are written by it while they are observed, and the files are kept only
if the observation confirms the plan; else they are discarded, and the plan is made again. So an interval that brings
nothing new takes one pass.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from widen.errors import InternalError
from widen.formats.delta_target import DeltaTarget, TableDraft
from widen.log.write.staged_files import discard
from widen.observe.observation import Observation
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.unmatched_fields import find_unmatched
from widen.protocol.actions import Add
from widen.spark.spark_types import DataFrame
from widen.spark.text.text_tasks import BatchWriteSpec

PATIENT_FROM, MAX_PASSES = 3, 8
"""From which pass on every task looks at everything, and how many passes can be needed."""


@dataclass(frozen=True, slots=True)
class BatchPass:
    """One pass over the batch.

    Args:
        seen: What it observed.
        adds: The files that it wrote.
        is_complete: Every record that it saw is a row of these files, or nothing was to be written.
        kept_out: What is kept out of the table, if anything is.
    """

    seen: Observation
    adds: Sequence[Add] = ()
    is_complete: bool = True
    kept_out: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A plan that the batch has confirmed.

    Args:
        plan: The plan.
        seen: What the last pass observed; its counts of records and corrupt texts are those of the batch.
        adds: The files of that pass.
        draft: What the plan makes of the table; the files are written under it.
        kept_out: What it keeps out of the table, if anything.
    """

    plan: Plan
    seen: Observation
    adds: Sequence[Add]
    draft: TableDraft
    kept_out: DataFrame | None = None


def write_until_plan_is_stable(
    target: DeltaTarget, known: Observation, write: Callable[[BatchWriteSpec, TableDraft], BatchPass]
) -> WrittenBatch:
    """Pass over the batch until the plan that a pass was made for is the one that it leads to, and nothing is missing.

    Args:
        target: Where the batch goes.
        known: What is known of it already.
        write: Makes a pass.

    Raises:
        InternalError: that does not happen; nothing is left of the passes.
    """
    for number in range(MAX_PASSES):
        plan = evolve(target.schema, known, target.policy)
        attempt = BatchWriteSpec(target.schema, known.to_json(), plan.schema, target.policy, number >= PATIENT_FROM)
        draft = target.draft(plan)
        done = write(attempt, draft)
        known = known.merged(done.seen, max)
        plan = evolve(target.schema, known, target.policy)
        if plan.schema == attempt.schema and done.is_complete:
            plan = replace(plan, unmatched=find_unmatched(target.policy, target.schema, plan.schema, known))
            return WrittenBatch(plan, done.seen, done.adds, draft, done.kept_out)
        discard(target.store, done.adds)
    raise InternalError(reason=f"an ingestion was not settled after {MAX_PASSES} passes over the batch")
