"""Landing: a batch becomes one version of the table, also if others write to it at the same time.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from widen.errors import EvolutionRefused, FieldsUnmatched, InternalError, PlanChanged, SourceError
from widen.formats.delta_target import DeltaTarget, TableDraft, open_target, write_metrics
from widen.ingestion.quarantine import MAX_RACES, QuarantineWrite, quarantine_location, write_quarantine
from widen.ingestion.stable_plan import BatchPass, WrittenBatch, write_until_plan_is_stable
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, StagedFiles
from widen.observe.observation import Observation
from widen.planning.evolution.explain_plan import explain_operations, explain_plan
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.policy import Policy
from widen.protocol.actions import Txn
from widen.spark.ingest.batch import Batch
from widen.spark.text.text_tasks import BatchWriteSpec

Progress: TypeAlias = Callable[[str], None]
"""Is told what is going on, in a few words."""


def no_progress(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Where a batch goes, and on what conditions.

    Args:
        store: Of the table.
        policy: What may be done to the table.
        plan_hash: The only plan that is allowed, by its hash; None for every plan that the policy allows.
        txn: Which interval of which stream the batch is; None if it is of none.
        may_be_empty: Whether a batch without a record, or without a value, is nothing to complain of: of what follows
            one another, one that cannot go in would keep out all that come after it.
        progress: Is told what is going on.
        quarantine: Where what is kept out of the table goes; by default beside it.
        is_strict: Whether everything that the policy says of fields must have an effect.
    """

    store: LogStore
    policy: Policy
    plan_hash: str | None = None
    txn: Txn | None = None
    may_be_empty: bool = False
    progress: Progress = no_progress
    quarantine: str | None = None
    is_strict: bool = False

    def for_batch(self, batch: Batch) -> BatchRequest:
        """Return the same for a batch, of which the policy knows what fields are from its files."""
        return replace(self, policy=replace(self.policy, file_fields=batch.names))


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that is in the table.

    Args:
        version: The version that holds it; where nothing was written, the newest.
        plan: The changes that it brought.
        settled: What was written; None if the table had the batch already.
        policy: What was allowed, restricted to what the table can do.
        kept: What went to the quarantine, if anything did.
    """

    version: int
    plan: Plan
    settled: WrittenBatch | None
    policy: Policy
    kept: QuarantineWrite | None = None


def commit_batch(batch: Batch, landing: BatchRequest) -> CommittedBatch | None:
    """Write and commit, again after every lost race.

    Args:
        batch: The records.
        landing: Where they go.

    Returns:
        None if there is nothing to write, and that is allowed.

    Raises:
        SourceError: no record is in the batch, or no value.
        EvolutionRefused: the policy forbids the changes that the batch needs.
        PlanChanged: they are not those that were agreed to.
        ContentionError: somebody else kept committing first; nothing is visible.
        TableError: the table cannot be read or written; nothing is visible.
        InternalError: passes over the batch do not come to an end, which does not happen.
    """
    known = Observation()
    for _ in range(MAX_RACES):
        target = open_target(landing.store, landing.policy)
        if landing.txn and target.snapshot and target.has(landing.txn):
            return CommittedBatch(target.snapshot.version, Plan((), target.snapshot.schema), None, target.policy)
        known = known.merged(batch.foreseen(target.schema, target.policy), max)
        settled = write_until_plan_is_stable(target, known, partial(write_pass, batch, target, landing.progress))
        with StagedFiles() as staged:
            staged.add_files(landing.store, settled.adds)
            if not landing.may_be_empty:
                ensure_has_records(batch, settled)
            elif not (settled.adds or settled.kept_out is not None or settled.plan.refused):
                return None
            ensure_plan_allowed(settled.plan, landing)
            landing.progress("committing")
            kept = _keep(target, settled, landing)
            if kept is not None and landing.txn is None:
                staged.add_undo(kept.give_back)
            seen, told = settled.seen, (settled.plan, settled.draft, settled.adds, landing.txn)
            outcome = target.commit(*told, seen.quarantined, corrupt=seen.corrupt, staged=staged)
        if not isinstance(outcome, Conflicted):
            return CommittedBatch(outcome.or_raise().version, settled.plan, settled, target.policy, kept)
        known = known.merged(settled.seen, max)
    outcome.or_raise()
    raise InternalError(reason="an ingestion lost every race, to nobody")


def _keep(target: DeltaTarget, settled: WrittenBatch, landing: BatchRequest) -> QuarantineWrite | None:
    if settled.kept_out is None:
        return None
    version = -1 if target.snapshot is None else target.snapshot.version
    return write_quarantine(
        quarantine_location(landing.store, landing.quarantine), settled.kept_out, version, landing.txn
    )


def write_pass(
    batch: Batch, target: DeltaTarget, progress: Progress, attempt: BatchWriteSpec, draft: TableDraft
) -> BatchPass:
    """Make one pass over a batch, as `settle` asks for it.

    Args:
        batch: The records.
        target: Where they go.
        progress: Is told what is going on.
        attempt: What the rows are made for.
        draft: What the table will be.

    Raises:
        TableError: the files cannot be written.
    """
    if not attempt.schema.fields:
        progress("observing")
        return BatchPass(batch.observe(attempt))
    progress("writing")
    done = batch.write(attempt, target.store, draft.protocol, draft.metadata)
    is_complete = write_metrics(done.adds)["numOutputRows"] == done.seen.records + done.seen.corrupt
    return BatchPass(done.seen, done.adds, is_complete, done.kept_out)


def ensure_has_records(batch: Batch, settled: WrittenBatch) -> None:
    """Check that there was something to take in.

    Raises:
        SourceError: no record is in the batch, or no value.
    """
    seen, reason = settled.seen, None
    if not seen.records and not seen.quarantined:
        none = f"none of its {seen.corrupt} texts is a record: JSON is read as UTF-8"
        reason = none if seen.corrupt else "it holds no record"
    elif not settled.plan.schema.fields and not settled.plan.refused:
        reason = "no field of its records has a value yet"
    if reason:
        raise SourceError(source=batch.name, reason=reason, fix="Give it records. Nothing was written.")


def ensure_plan_allowed(plan: Plan, landing: BatchRequest) -> None:
    """Check that a plan is one that may be carried out.

    Raises:
        EvolutionRefused: the policy forbids it.
        PlanChanged: it is not the one that was agreed to.
        FieldsUnmatched: the policy names fields that are not there, and that is not allowed.
    """
    if landing.is_strict:
        ensure_matched(plan)
    if plan.refused:
        raise EvolutionRefused(policy=landing.policy.mode.value, plan=explain_operations(plan.refused))
    if landing.plan_hash is not None and plan.hash != landing.plan_hash:
        raise PlanChanged(wanted=landing.plan_hash, found=plan.hash, plan="\n".join(explain_plan(plan)))


def ensure_matched(plan: Plan) -> None:
    """Check that everything that the policy says of fields has an effect.

    Raises:
        FieldsUnmatched: something has none.
    """
    if plan.unmatched:
        raise FieldsUnmatched(fields="; ".join(map(str, plan.unmatched)).rstrip("."))
