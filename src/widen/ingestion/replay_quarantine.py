"""Replaying a quarantine: what the table can hold by now goes into it, in one commit, and out of the quarantine.

Two tables cannot be changed at once. So the commit to the table says which files the quarantine is to have instead of
those that were replayed; they are written before it, and seen by nobody. Whoever finds that the quarantine has not been
told yet, after a crash, does that first. The number of the replay is the version of the quarantine that it read, and
both tables keep it, so that no record comes twice.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from widen.errors import SourceError, TableNotFound
from widen.formats.delta_target import DeltaTarget, open_target, write_metrics
from widen.ingestion.commit_batch import BatchRequest, Progress, ensure_plan_allowed, no_progress, write_pass
from widen.ingestion.options import IngestOptions, parse_options
from widen.ingestion.quarantine import MAX_RACES, find_quarantine
from widen.ingestion.stable_plan import WrittenBatch, write_until_plan_is_stable
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.file_list import to_adds, to_remove
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, StagedFiles, after_commit, commit
from widen.observe.observation import Observation
from widen.planning.evolution.plan import Plan
from widen.protocol.actions import Action, Add, Txn
from widen.spark.ingest.batch import TextBatch
from widen.spark.read.scan import read_snapshot
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.spark.text.quarantined_rows import quarantined_texts, with_original_positions, with_quarantine_time
from widen.spark.write.parquet_writer import write_parquet

if TYPE_CHECKING:
    from typing_extensions import Unpack

REPLAY = "REPLAY"
"""What the history of the quarantine calls it."""

LEFT = "leftInQuarantine"
"""The parameter in the history of the table with the files that the quarantine is to have instead, as JSON."""

_NO_LOG = "there is no log"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay did.

    Args:
        version: The version of the table that holds the records.
        plan: The changes that they brought.
        replayed: How many records went to the table.
        left: How many are still in the quarantine.
    """

    version: int
    plan: Plan
    replayed: int
    left: int

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        counts = {"replayed": self.replayed, "left": self.left}
        return {"version": self.version, **counts, "plan": self.plan.to_value()}


def replay(
    source: str,
    into: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
    **words: Unpack[IngestOptions],
) -> ReplayResult:
    """Write those records of a quarantine to a table that it can hold now; they leave the quarantine.

    Args:
        source: The quarantine.
        into: The table.
        storage_options: Settings and credentials of the store of both.
        spark: The session to work in; by default the active one, else a local one.
        progress: Is told what is going on.
        words: What may become of the table; see `widen.ingestion.options.IngestOptions`.

    Raises:
        InvalidOption: an argument cannot be used, or there is another kind of table in place of the quarantine.
        TableNotFound: one of the two is not there.
        SourceError: an earlier replay was interrupted so long ago that nobody knows what it had done.
        EvolutionRefused: the policy forbids the changes that the records need; nothing is changed.
        ContentionError: somebody else kept committing first.
        TableError: one of the tables cannot be read or written.

    Source: docs/evolution-rules.md#d12
    """
    session, (_, policy) = find_session(spark), parse_options(words)
    landing = BatchRequest(LogStore(into, storage_options), policy, progress=progress)
    return _QuarantineReplay(session, LogStore(source, storage_options), landing).run()


@dataclass(frozen=True)
class _QuarantineReplay:
    spark: SparkSession
    place: LogStore
    landing: BatchRequest

    def run(self) -> ReplayResult:
        self._finish(self._target())
        held = self._held()
        batch = TextBatch(quarantined_texts(read_snapshot(self.spark, self.place, held)), self.place.location)
        known = Observation()
        for _ in range(MAX_RACES):
            target = self._target()
            if held.files().num_rows == 0 or target.has(_txn(held)):
                break
            settled = write_until_plan_is_stable(
                target, known, partial(write_pass, batch, target, self.landing.progress)
            )
            done = self._commit(target, held, settled)
            if done is not None:
                with after_commit(self.landing.store.location, done.version):
                    self._finish(self._target())
                return done
            known = known.merged(settled.seen, max)
        snapshot = target.snapshot
        assert snapshot is not None
        return ReplayResult(snapshot.version, Plan((), snapshot.schema), 0, 0)

    def _commit(self, target: DeltaTarget, held: Snapshot, settled: WrittenBatch) -> ReplayResult | None:
        """Commit the records that fit; None if somebody else was faster."""
        assert target.snapshot is not None
        number, rest = settled.seen.records, settled.seen.quarantined
        with StagedFiles() as staged:
            staged.add_files(self.landing.store, settled.adds)
            ensure_plan_allowed(settled.plan, self.landing)
            if not number:
                return ReplayResult(target.snapshot.version, settled.plan, 0, rest)
            left = self._left(held, settled.kept_out, target.snapshot.version)
            staged.add_files(self.place, left)
            self.landing.progress("committing")
            more = {LEFT: msgspec.to_builtins(left)}
            outcome = target.commit(settled.plan, settled.draft, settled.adds, _txn(held), rest, more, staged=staged)
        if isinstance(outcome, Conflicted):
            return None
        return ReplayResult(outcome.or_raise().version, settled.plan, number, rest)

    def _left(self, held: Snapshot, kept_out: DataFrame | None, version: int) -> Sequence[Add]:
        """Write the records that do not fit as files that the quarantine will have."""
        if kept_out is None:
            return []
        return write_parquet(
            with_quarantine_time(with_original_positions(kept_out), version), self.place, held.protocol, held.metadata
        )

    def _finish(self, target: DeltaTarget) -> None:
        """Take out of the quarantine what the table got by the last replay, unless that is done."""
        held = self._held()
        assert target.snapshot is not None
        done = target.snapshot.transactions.get(_txn(held).app_id)
        if done is None or held.has_written(done):
            return
        left = _remaining_files(target.snapshot, done)
        now_ms, live = current_ms(), set(held.files()["path"].to_pylist())
        read_then = open_snapshot(self.place, done.version).files()
        gone = [to_remove(add, now_ms, data_change=True) for add in to_adds(read_then) if add.path in live]
        actions: list[Action] = [Txn(app_id=done.app_id, version=done.version), *gone, *left]
        commit(
            self.place, held, actions, REPLAY, {"into": target.store.location}, metrics=write_metrics(left)
        ).or_raise()

    def _held(self) -> Snapshot:
        found = find_quarantine(self.place)
        if found is None:
            raise TableNotFound(location=self.place.location, reason=_NO_LOG)
        return found

    def _target(self) -> DeltaTarget:
        target = open_target(self.landing.store, self.landing.policy)
        if target.snapshot is None:
            raise TableNotFound(location=self.landing.store.location, reason=_NO_LOG)
        return target


def _txn(held: Snapshot) -> Txn:
    return Txn(app_id=f"widen-replay-{held.metadata.id}", version=held.version)


def _remaining_files(table: Snapshot, done: Txn) -> list[Add]:
    """Return the files that the quarantine is to have after a replay, as the commit of the replay says.

    Raises:
        SourceError: the commit is not in the log any more.
    """
    for _, _, info in table.history():
        said = info.get("operationParameters")
        if isinstance(said, dict) and (said.get("queryId"), said.get("epochId")) == (done.app_id, str(done.version)):
            return msgspec.json.decode(said[LEFT], type=list[Add])
    reason = "its last replay was interrupted, and the log of the table does not tell any more what it had done"
    raise SourceError(source=table.location, reason=reason, fix="Look for its records in the table, and delete them.")
