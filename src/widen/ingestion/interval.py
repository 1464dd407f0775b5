"""One interval from end to end: source, observe, plan, write, commit.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from widen.errors import InvalidOption
from widen.formats.delta_target import open_target
from widen.ingestion.commit_batch import (
    BatchRequest,
    CommittedBatch,
    Progress,
    commit_batch,
    ensure_has_records,
    ensure_matched,
    no_progress,
)
from widen.ingestion.interval_event import IntervalEvent
from widen.ingestion.options import IngestOptions, parse_options, to_quarantine
from widen.ingestion.result import IngestResult
from widen.ingestion.stable_plan import BatchPass, write_until_plan_is_stable
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import after_commit
from widen.planning.evolution.plan import Plan, PlanEvent
from widen.planning.evolution.unmatched_fields import Unmatched
from widen.protocol.actions import Txn
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.open_source import IngestSource, persist_source
from widen.spark.session import find_session
from widen.spark.source.json_texts import TEXT
from widen.spark.spark_types import SparkSession
from widen.spark.text.verification import Verification
from widen.spark.text.verification import verify as verify_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Given = TypeVar("_Given", bound=IngestSource)

OnEvent: TypeAlias = Callable[[IntervalEvent], object]
"""Is told each thing that an interval has done, once it is committed."""


def plan(
    source: IngestSource,
    into: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    **words: Unpack[IngestOptions],
) -> Plan:
    """Return what an ingestion would change; nothing is written.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        into: The table; it need not exist.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.
        words: How records are read, and what may become of the table; see `widen.ingestion.options.IngestOptions`.

    Raises:
        SourceError: the source cannot be used, or no record is in it.
        InvalidOption: an argument cannot be used.
        FieldsUnmatched: ``strict`` is set, and options name fields that are not there.
        TableError: the table cannot be read or written.

    Source: docs/evolution-rules.md#dry-run
    """
    session, (intake, policy) = find_session(spark), parse_options(words)
    store = LogStore(into, storage_options)
    open_target(store, policy)
    batch = intake.of(session, source)
    target = open_target(store, replace(policy, file_fields=batch.names))
    foreseen = batch.foreseen(target.schema, target.policy)
    settled = write_until_plan_is_stable(target, foreseen, lambda attempt, _: BatchPass(batch.observe(attempt)))
    ensure_has_records(batch, settled)
    if words.get("strict"):
        ensure_matched(settled.plan)
    return settled.plan


def ingest(
    source: IngestSource,
    into: str,
    *,
    verify: bool | float = False,
    plan_hash: str | None = None,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
    on_event: OnEvent | None = None,
    **words: Unpack[IngestOptions],
) -> IngestResult:
    """Write all records of a source to a table, which grows where it must, in one commit.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        into: The table; it is made if it does not exist.
        verify: Whether to rebuild every leaf of every record from the table afterwards, and compare; or for what share
            of the records, between 0 and 1. Spark keeps the rows of a DataFrame meanwhile.
        plan_hash: The hash of the only plan that is allowed.
        txn: The name of an application, and how far it has written with this batch: a number that grows. A batch that
            the table has already is not written again.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.
        progress: Is told what is going on.
        on_event: Is told each thing that the plan has done, once it is committed.
        words: How records are read, and what may become of the table; see `widen.ingestion.options.IngestOptions`.

    Raises:
        SourceError: the source cannot be used, or no record is in it; the table is untouched.
        EvolutionRefused: the policy forbids the changes that the batch needs; the table is untouched.
        FieldsUnmatched: ``strict`` is set, and options name fields that are not there; the table is untouched.
        PlanChanged: the batch leads to another plan than the one of ``plan_hash``; the table is untouched.
        InvalidOption: an argument cannot be used, or ``into`` is neither a table nor free.
        ContentionError: somebody else kept committing first; nothing is visible.
        CommitUnknown: the store did not say whether the commit was written.
        AfterCommitFailed: the interval is committed, and the proof cannot be made.
        TableError: the table cannot be read or written; nothing is visible.

    Source: docs/evolution-rules.md#one-interval
    """
    session, (intake, policy) = find_session(spark), parse_options(words)
    written = None if txn is None else Txn(app_id=txn[0], version=txn[1])
    store = LogStore(into, storage_options)
    landing = BatchRequest(store, policy, plan_hash, written, progress=progress, quarantine=to_quarantine(words))
    watch = IntervalWatch(parse_share(verify), on_event)
    landing = replace(landing, is_strict=words.get("strict", False))
    with persist_if_reread(source, landing, watch) as given:
        progress("looking at the source")
        batch = intake.of(session, given)
        landing = landing.for_batch(batch)
        landed = commit_batch(batch, landing)
        assert landed is not None
        return to_result(batch, landing, landed, watch)


@dataclass(frozen=True, slots=True)
class IntervalWatch:
    """What is to be known of an interval once it is committed.

    Args:
        verified: For what share of the records it is to be proved that nothing is lost.
        on_event: Is told each thing that the plan has done.
    """

    verified: float = 0.0
    on_event: OnEvent | None = None


def persist_if_reread(given: _Given, landing: BatchRequest, watch: IntervalWatch) -> AbstractContextManager[_Given]:
    """Return what a caller gives; rows that are read more than once are the same each time as long as it is open.

    Args:
        given: Paths or rows.
        landing: Where they go.
        watch: What is to be known.

    Raises:
        InvalidOption: there is no table but there are other files.
        TableError: the table cannot be read or written.
    """
    guards = open_target(landing.store, landing.policy).policy.guards
    return persist_source(given) if watch.verified or guards else nullcontext(given)


def to_result(batch: Batch, landing: BatchRequest, landed: CommittedBatch, watch: IntervalWatch) -> IngestResult:
    """Return what an interval did, proved if that is asked for, and tell its events.

    Args:
        batch: The records.
        landing: Where they went.
        landed: What became of them.
        watch: What is to be known.

    Raises:
        AfterCommitFailed: the proof cannot be made.
    """
    interval = landing.txn.version if landing.txn else None
    if landed.settled is None:
        return IngestResult(landed.version, landed.plan, interval=interval, is_repeated=True)
    settled, store = landed.settled, landing.store
    if watch.on_event:
        events: list[PlanEvent | Unmatched] = [*landed.plan.events, *landed.plan.unmatched]
        for event in events:
            watch.on_event(IntervalEvent(store.location, landed.version, interval, event))
    proof = None
    if watch.verified:
        with after_commit(store.location, landed.version):
            proof = _proof(batch, landing, landed, watch.verified)
    size_bytes = sum(add.size for add in settled.adds)
    counts = (settled.seen.records, settled.seen.corrupt, len(settled.adds), size_bytes)
    place = landed.kept.store.location if landed.kept else None
    kept = (settled.seen.quarantined, place)
    return IngestResult(landed.version, landed.plan, *counts, batch.left_out, proof, interval, False, *kept)


def parse_share(verify: bool | float) -> float:
    """Return for what share of the records something is to be proved.

    Raises:
        InvalidOption: it is no share.
    """
    if not 0 <= verify <= 1:
        raise InvalidOption(option="verify", value=verify, expected="It is true, or a share between 0 and 1.")
    return float(verify)


def _proof(batch: Batch, landing: BatchRequest, landed: CommittedBatch, share: float) -> Verification:
    assert landed.settled is not None
    landing.progress("proving that nothing is lost")
    snapshot = open_snapshot(landing.store, landed.version)
    source = batch.said(snapshot.schema, landed.policy)
    kept_out = landed.kept.rows(source.digests.sparkSession).select(TEXT) if landed.kept else None
    paths = [add.path for add in landed.settled.adds]
    return verify_rows(source, batch.found(landing.store, snapshot, paths, landed.policy, kept_out), share)
