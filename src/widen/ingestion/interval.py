"""One interval from end to end: source, observe, plan, write, commit.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from widen.errors import InvalidOption
from widen.ingestion.event import IntervalEvent
from widen.ingestion.land import Landed, Landing, Progress, ensure_matched, ensure_records, land, silent
from widen.ingestion.outcome import Ingested
from widen.ingestion.settle import Pass, settle
from widen.ingestion.words import Words, to_quarantine, understood
from widen.log.commit import after_commit
from widen.log.snapshot import open_snapshot
from widen.log.store import LogStore
from widen.planning.plan import Event, Plan
from widen.planning.unmatched import Unmatched
from widen.protocol.action import Txn
from widen.spark.intake import Given, steady
from widen.spark.interval import Batch
from widen.spark.raw import TEXT
from widen.spark.schema import SparkSession
from widen.spark.session import find_session
from widen.spark.verify import Verification
from widen.spark.verify import verify as verify_rows
from widen.target import open_target

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Given = TypeVar("_Given", bound=Given)

OnEvent: TypeAlias = Callable[[IntervalEvent], object]
"""Is told each thing that an interval has done, once it is committed."""


def plan(
    source: Given,
    into: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    **words: Unpack[Words],
) -> Plan:
    """Return what an ingestion would change; nothing is written.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        into: The table; it need not exist.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.
        words: How records are read, and what may become of the table; see `widen.ingestion.words.Words`.

    Raises:
        SourceError: the source cannot be used, or no record is in it.
        InvalidOption: an argument cannot be used.
        FieldsUnmatched: ``strict`` is set, and options name fields that are not there.
        TableError: the table cannot be read or written.

    Source: spec of evolution, section 3, "dry run".
    """
    session, (intake, policy) = find_session(spark), understood(words)
    store = LogStore(into, storage_options)
    open_target(store, policy)
    batch = intake.of(session, source)
    target = open_target(store, replace(policy, file_fields=batch.names))
    foreseen = batch.foreseen(target.schema, target.policy)
    settled = settle(target, foreseen, lambda attempt, _: Pass(batch.observe(attempt)))
    ensure_records(batch, settled)
    if words.get("strict"):
        ensure_matched(settled.plan)
    return settled.plan


def ingest(
    source: Given,
    into: str,
    *,
    verify: bool | float = False,
    plan_hash: str | None = None,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = silent,
    on_event: OnEvent | None = None,
    **words: Unpack[Words],
) -> Ingested:
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
        words: How records are read, and what may become of the table; see `widen.ingestion.words.Words`.

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

    Source: spec of evolution, section 3.
    """
    session, (intake, policy) = find_session(spark), understood(words)
    written = None if txn is None else Txn(app_id=txn[0], version=txn[1])
    store = LogStore(into, storage_options)
    landing = Landing(store, policy, plan_hash, written, progress=progress, quarantine=to_quarantine(words))
    watch = Watch(to_share(verify), on_event)
    landing = replace(landing, is_strict=words.get("strict", False))
    with held(source, landing, watch) as given:
        progress("looking at the source")
        batch = intake.of(session, given)
        landing = landing.for_batch(batch)
        landed = land(batch, landing)
        assert landed is not None
        return told(batch, landing, landed, watch)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is to be known of an interval once it is committed.

    Args:
        verified: For what share of the records it is to be proved that nothing is lost.
        on_event: Is told each thing that the plan has done.
    """

    verified: float = 0.0
    on_event: OnEvent | None = None


def held(given: _Given, landing: Landing, watch: Watch) -> AbstractContextManager[_Given]:
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
    return steady(given) if watch.verified or guards else nullcontext(given)


def told(batch: Batch, landing: Landing, landed: Landed, watch: Watch) -> Ingested:
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
        return Ingested(landed.version, landed.plan, interval=interval, is_repeated=True)
    settled, store = landed.settled, landing.store
    if watch.on_event:
        events: list[Event | Unmatched] = [*landed.plan.events, *landed.plan.unmatched]
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
    return Ingested(landed.version, landed.plan, *counts, batch.left_out, proof, interval, False, *kept)


def to_share(verify: bool | float) -> float:
    """Return for what share of the records something is to be proved.

    Raises:
        InvalidOption: it is no share.
    """
    if not 0 <= verify <= 1:
        raise InvalidOption(option="verify", value=verify, expected="It is true, or a share between 0 and 1.")
    return float(verify)


def _proof(batch: Batch, landing: Landing, landed: Landed, share: float) -> Verification:
    assert landed.settled is not None
    landing.progress("proving that nothing is lost")
    snapshot = open_snapshot(landing.store, landed.version)
    source = batch.said(snapshot.schema, landed.policy)
    kept_out = landed.kept.rows(source.digests.sparkSession).select(TEXT) if landed.kept else None
    paths = [add.path for add in landed.settled.adds]
    return verify_rows(source, batch.found(landing.store, snapshot, paths, landed.policy, kept_out), share)
