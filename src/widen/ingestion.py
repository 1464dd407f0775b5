"""One interval from end to end: source, observe, plan, write, commit.

The plan is made from what is known, the rows are written by it while they are observed, and the files are committed
only if the observation confirms the plan; else they are discarded, and the plan is made again. So an interval that
brings nothing new takes one pass.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from widen.errors import EvolutionRefused, InternalError, InvalidOption, SourceError
from widen.log.commit import Conflicted
from widen.log.snapshot import open_snapshot
from widen.log.store import LogStore
from widen.observe.observation import Observation
from widen.planning.evolve import evolve as evolve_schema
from widen.planning.explain import explain_operations
from widen.planning.plan import Plan
from widen.planning.policy import Mode, Policy
from widen.protocol.action import Add
from widen.spark.batch import Attempt
from widen.spark.interval import observe, write_rows
from widen.spark.schema import DataFrame, SparkSession
from widen.spark.session import find_session
from widen.spark.source import find_source, read_texts
from widen.spark.verify import Verification
from widen.spark.verify import verify as verify_rows
from widen.spark.write import discard
from widen.target import Draft, Target, metrics, open_target

PATIENT_FROM, MAX_PASSES, MAX_RACES = 3, 8, 10
"""From which pass on every task looks at everything, how many passes can be needed, and how often a race is run."""

Progress: TypeAlias = Callable[[str], None]
"""Is told what is going on, in a few words."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the batch.

    Args:
        seen: What it observed.
        adds: The files that it wrote.
        is_complete: Every record that it saw is a row of these files, or nothing was to be written.
    """

    seen: Observation
    adds: Sequence[Add] = ()
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Settled:
    """A plan that the batch has confirmed.

    Args:
        plan: The plan.
        seen: What the last pass observed; its counts of records and corrupt texts are those of the batch.
        adds: The files of that pass.
    """

    plan: Plan
    seen: Observation
    adds: Sequence[Add]


@dataclass(frozen=True, slots=True)
class Ingested:
    """What one interval did.

    Args:
        version: The version of the table that holds it.
        plan: The changes that it brought.
        records: The records written.
        corrupt: The texts that are no record, kept whole in a column of their own.
        files: The files written.
        size_bytes: Their size.
        left_out: Files of the source that are no JSON by their names.
        verification: What the proof says, if it was asked for.
    """

    version: int
    plan: Plan
    records: int
    corrupt: int
    files: int
    size_bytes: int
    left_out: tuple[str, ...] = ()
    verification: Verification | None = None

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        proof = {} if self.verification is None else {"verification": self.verification.to_value()}
        numbers = {"records": self.records, "corrupt": self.corrupt, "files": self.files, "bytes": self.size_bytes}
        plan = self.plan.to_value()
        return {"version": self.version, **numbers, "leftOut": list(self.left_out), "plan": plan, **proof}


def plan(
    source: str | Sequence[str],
    into: str,
    *,
    evolve: str = Mode.WIDEN.value,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Plan:
    """Return what an ingestion would change; nothing is written.

    Args:
        source: Files, directories or patterns of JSON: lines, arrays of records, or one document a file.
        into: The table; it need not exist.
        evolve: ``widen``, ``split``, ``freeze`` or ``fail``.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.

    Raises:
        SourceError: the source cannot be used, or no record is in it.
        InvalidOption: ``evolve`` is none of the four.
        TableError: the table cannot be read or written.

    Source: spec of evolution, section 3, "dry run".
    """
    session, paths = spark or find_session(), _paths(source)
    target = open_target(LogStore(into, storage_options), _policy(evolve))
    texts = read_texts(session, find_source(session, paths))
    settled = _settle(target, Observation(), lambda attempt, _: Pass(observe(texts, attempt)))
    _ensure_records(settled, paths)
    return settled.plan


def ingest(
    source: str | Sequence[str],
    into: str,
    *,
    evolve: str = Mode.WIDEN.value,
    verify: bool = False,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = lambda _: None,
) -> Ingested:
    """Write all records of a source to a table, which grows where it must, in one commit.

    Args:
        source: Files, directories or patterns of JSON: lines, arrays of records, or one document a file.
        into: The table; it is made if it does not exist.
        evolve: ``widen`` columns in place where that is exact and else add columns; ``split`` only adds; ``freeze``
            adds nothing and keeps what does not fit as JSON text; ``fail`` refuses a batch that needs changes.
        verify: Whether to rebuild every leaf of every record from the table afterwards, and compare.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.
        progress: Is told what is going on.

    Raises:
        SourceError: the source cannot be used, or no record is in it; the table is untouched.
        EvolutionRefused: the policy forbids the changes that the batch needs; the table is untouched.
        InvalidOption: ``evolve`` is none of the four, or ``into`` is neither a table nor free.
        ContentionError: somebody else kept committing first; nothing is visible.
        TableError: the table cannot be read or written; nothing is visible.

    Source: spec of evolution, section 3.
    """
    session, paths, policy = spark or find_session(), _paths(source), _policy(evolve)
    store = LogStore(into, storage_options)
    open_target(store, policy)
    progress("looking at the source")
    batch = find_source(session, paths)
    texts = read_texts(session, batch)
    settled, version = _land(store, policy, paths, texts, progress)
    proof = None
    if verify:
        progress("proving that nothing is lost")
        proof = verify_rows(session, texts, store, open_snapshot(store, version), [add.path for add in settled.adds])
    size_bytes = sum(add.size for add in settled.adds)
    counts = (settled.seen.records, settled.seen.corrupt, len(settled.adds), size_bytes)
    return Ingested(version, settled.plan, *counts, batch.left_out, proof)


def _land(
    store: LogStore, policy: Policy, paths: Sequence[str], texts: DataFrame, progress: Progress
) -> tuple[Settled, int]:
    """Write and commit, again after every lost race; return what was settled and the version that holds it."""
    known = Observation()
    for _ in range(MAX_RACES):
        target = open_target(store, policy)
        settled = _settle(target, known, partial(_write, texts, target, progress))
        with ExitStack() as undo:
            undo.callback(discard, store, settled.adds)
            _ensure_records(settled, paths)
            _ensure_allowed(settled.plan, policy)
            progress("committing")
            outcome = target.commit(settled.plan, settled.adds)
            if not isinstance(outcome, Conflicted):
                undo.pop_all()
                return settled, outcome.or_raise().version
        known = known.merged(settled.seen, max)
    outcome.or_raise()
    raise InternalError(reason="an ingestion lost every race, to nobody")


def _write(texts: DataFrame, target: Target, progress: Progress, attempt: Attempt, draft: Draft) -> Pass:
    if not attempt.schema.fields:
        progress("observing")
        return Pass(observe(texts, attempt))
    progress("writing")
    adds, seen = write_rows(texts, attempt, target.store, draft.protocol, draft.metadata)
    return Pass(seen, adds, metrics(adds)["numOutputRows"] == seen.records + seen.corrupt)


def _settle(target: Target, known: Observation, write: Callable[[Attempt, Draft], Pass]) -> Settled:
    """Pass over the batch until the plan that a pass was made for is the one that it leads to, and nothing is missing.

    Raises:
        InternalError: that does not happen; nothing is left of the passes.
    """
    for number in range(MAX_PASSES):
        plan = evolve_schema(target.schema, known, target.policy)
        attempt = Attempt(target.schema, known.to_json(), plan.schema, target.policy, number >= PATIENT_FROM)
        done = write(attempt, target.draft(plan))
        known = known.merged(done.seen, max)
        plan = evolve_schema(target.schema, known, target.policy)
        if plan.schema == attempt.schema and done.is_complete:
            return Settled(plan, done.seen, done.adds)
        discard(target.store, done.adds)
    raise InternalError(reason=f"an ingestion was not settled after {MAX_PASSES} passes over the batch")


def _paths(source: str | Sequence[str]) -> list[str]:
    return [source] if isinstance(source, str) else list(source)


def _policy(evolve: str) -> Policy:
    if evolve not in {mode.value for mode in Mode}:
        modes = ", ".join(mode.value for mode in Mode)
        raise InvalidOption(option="evolve", value=evolve, expected=f"It is one of {modes}.")
    return Policy(Mode(evolve))


def _ensure_records(settled: Settled, paths: Sequence[str]) -> None:
    seen, reason = settled.seen, None
    if not seen.records:
        reason = f"none of its {seen.corrupt} texts is a JSON record" if seen.corrupt else "it holds no record"
    elif not settled.plan.schema.fields:
        reason = "no field of its records has a value yet"
    if reason:
        fix = "Give JSON lines, an array of records, or one record a file. Nothing was written."
        raise SourceError(source=", ".join(paths), reason=reason, fix=fix)


def _ensure_allowed(plan: Plan, policy: Policy) -> None:
    if plan.refused:
        raise EvolutionRefused(policy=policy.mode.value, plan=explain_operations(plan.refused))
