"""A Delta table as a quarantine: the records that another table could not hold, whole and with the reason.

Two tables cannot be changed in one commit. So a replay writes the files that the quarantine will keep first, and the
commit to the table names them; then the quarantine is changed. After a crash in between, the next replay reads that
commit and finishes the change. The number of a replay is the version of the quarantine that it read. Both tables record
it, so that no record is written twice.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from widen.batches.text_batch import with_original_positions, with_quarantine_time
from widen.errors import InvalidOption, QuarantineNotFound, SourceError, TableNotFound
from widen.frames.parquet_writer import write_parquet
from widen.frames.table_writers import DeltaRows
from widen.log.commit import Conflicted, StagedFiles, commit, write_metrics
from widen.log.commit_files import current_ms
from widen.log.file_list import to_adds, to_remove
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.transaction_id import REPLAY_PREFIX
from widen.model.types import LONG, STRING, TIMESTAMP, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, Txn
from widen.protocol.file_statistics import NO_STATS
from widen.protocol.table_configuration import TableConfiguration
from widen.schema.source_metadata import COMMENT
from widen.schema.table_definition import plan_create_table
from widen.spark.engine import Rows, Session
from widen.targets.quarantine_tags import TAG, encode_tag, find_interrupted
from widen.targets.table_format import (
    IngestTarget,
    NewFiles,
    Quarantine,
    QuarantineContent,
    QuarantineWrite,
    TransactionId,
    retry_conflicts,
)

SUFFIX = "_quarantine"
"""The suffix of the default location, after the table's location."""

COLUMNS = StructType(
    tuple(
        Field(name, data_type, metadata={COMMENT: comment})
        for name, data_type, comment in (
            ("text", STRING, "The record, as it stood in the source."),
            ("file", STRING, "The file that it stood in."),
            ("position", LONG, "Its number in that file."),
            ("reason", STRING, "Why the table could not hold it."),
            ("kept_at", TIMESTAMP, "When its interval was written."),
            ("table_version", LONG, "The version of the table that could not hold it."),
        )
    )
)

REPLAY = "REPLAY"
"""The operation in the history of the quarantine."""

REMAINING_FILES = "leftInQuarantine"
"""The parameter in the history of the table with the files that the quarantine keeps, as JSON."""

_APPEND = {"mode": "Append", "partitionBy": []}


def quarantine_store(table: LogStore, location: str | None) -> LogStore:
    """Return the store of the quarantine of a table.

    Args:
        location: The location of the quarantine; by default the location of the table with `SUFFIX`.

    Raises:
        InvalidOption: it is the location of the table, or its scheme is not supported.
    """
    store = LogStore(location or table.location.rstrip("/") + SUFFIX, table.storage_options)
    if store.location.rstrip("/") == table.location.rstrip("/"):
        raise InvalidOption(option="quarantine", value=location, expected="Must not be the target table.")
    return store


@dataclass(frozen=True, slots=True)
class DeltaQuarantine(Quarantine):
    """A quarantine, which may not exist yet."""

    store: LogStore

    @property
    def location(self) -> str:
        return self.store.location

    def write(
        self,
        quarantined_records: Rows | None,
        table_version: int,
        interval: TransactionId | None,
        new_files: NewFiles | None = None,
    ) -> DeltaQuarantineWrite | None:
        txn = None if interval is None else Txn(app_id=interval.app_id, version=interval.number)
        rows = None if quarantined_records is None else with_quarantine_time(quarantined_records, table_version)
        return retry_conflicts(lambda _: self._append(rows, txn, new_files))

    def _append(
        self, rows: Rows | None, txn: Txn | None, new_files: NewFiles | None
    ) -> DeltaQuarantineWrite | Conflicted | None:
        snapshot = self._newest()
        # An earlier attempt of this interval has written its records, and crashed before the commit to the table.
        if snapshot is not None and txn is not None and snapshot.has_written(txn):
            return None
        live = to_adds(snapshot.files()) if snapshot and new_files else []
        replaced = find_interrupted(live, lambda add: (add.tags or {}).get(TAG), new_files)
        if rows is None and not replaced:
            return None
        creation, table = _create_quarantine(snapshot)
        now_ms = current_ms()
        with StagedFiles() as staged:
            adds = [] if rows is None else _with_tag(write_parquet(rows, self.store, table), new_files)
            staged.add_files(self.store, adds)
            removes = [to_remove(add, now_ms, data_change=True) for add in replaced]
            actions = [*creation, *([txn] if txn else []), *removes, *adds]
            metrics = write_metrics(adds)
            outcome = commit(self.store, snapshot, actions, "WRITE", _APPEND, metrics=metrics, staged=staged)
        if isinstance(outcome, Conflicted):
            return outcome
        return DeltaQuarantineWrite(self.store, adds, outcome.or_raise().version, replaced)

    def open(self) -> DeltaQuarantineContent:
        snapshot = self._newest()
        if snapshot is None:
            raise QuarantineNotFound(location=self.location)
        return DeltaQuarantineContent(self.store, snapshot)

    def finish_replay(self, target: IngestTarget) -> None:
        content = self.open()
        last = target.last_interval(content.interval.app_id)
        # The table names the last replay that it has. If the quarantine has it too, nothing was interrupted.
        if last is None or content.snapshot.has_written(txn := Txn(app_id=last.app_id, version=last.number)):
            return
        remaining = _remaining_files(target, last)
        now_ms, live = current_ms(), set(content.snapshot.files()["path"].to_pylist())
        # Only files of the version that was replayed: records that were quarantined since have not been replayed.
        replayed = open_snapshot(self.store, last.number).files()
        removes = [to_remove(add, now_ms, data_change=True) for add in to_adds(replayed) if add.path in live]
        actions: list[Action] = [txn, *removes, *remaining]
        parameters, metrics = {"into": target.location}, write_metrics(remaining)
        commit(self.store, content.snapshot, actions, REPLAY, parameters, metrics=metrics).or_raise()

    def _newest(self) -> Snapshot | None:
        try:
            snapshot = open_snapshot(self.store)
        except TableNotFound:
            return None
        missing = [field.name for field in COLUMNS if snapshot.schema.find(field.name) is None]
        if missing:
            expected = f"Must be a quarantine or an empty location; the table there has no column {missing[0]}."
            raise InvalidOption(option="quarantine", value=self.location, expected=expected)
        return snapshot


@dataclass(frozen=True, slots=True)
class DeltaQuarantineWrite(QuarantineWrite):
    """The records that one interval has added.

    Args:
        replaced: The files with the records of an interrupted load, which this one has replaced.
    """

    store: LogStore
    adds: Sequence[Add]
    version: int
    replaced: Sequence[Add] = ()

    @property
    def location(self) -> str:
        return self.store.location

    def rows(self, spark: Session) -> Rows:
        rows = DeltaRows(self.store, open_snapshot(self.store, self.version))
        return rows.read(spark, [add.path for add in self.adds])

    def undo(self) -> None:
        now_ms = current_ms()
        removes = [to_remove(add, now_ms, data_change=True) for add in self.adds]
        # A removed file stays on disk until a vacuum, so adding it again brings its records back.
        actions: list[Action] = [*removes, *self.replaced]

        def attempt(_: Conflicted | None) -> int | Conflicted:
            outcome = commit(self.store, open_snapshot(self.store), actions, "DELETE", {"predicate": "[]"})
            return outcome if isinstance(outcome, Conflicted) else outcome.or_raise().version

        retry_conflicts(attempt)


@dataclass(frozen=True, slots=True)
class DeltaQuarantineContent(QuarantineContent):
    """One version of a quarantine."""

    store: LogStore
    snapshot: Snapshot

    @property
    def interval(self) -> TransactionId:
        return TransactionId(f"{REPLAY_PREFIX}{self.snapshot.metadata.id}", self.snapshot.version)

    @property
    def is_empty(self) -> bool:
        return not len(self.snapshot.files())

    @property
    def size_bytes(self) -> int:
        return DeltaRows(self.store, self.snapshot).size_bytes

    def rows(self, spark: Session) -> Rows:
        return DeltaRows(self.store, self.snapshot).read(spark)

    def write_remaining(
        self, quarantined_records: Rows | None, table_version: int, staged: StagedFiles
    ) -> Mapping[str, object]:
        adds: list[Add] = []
        if quarantined_records is not None:
            rows = with_quarantine_time(with_original_positions(quarantined_records), table_version)
            adds = write_parquet(rows, self.store, self.snapshot.configuration)
            staged.add_files(self.store, adds)
        return {REMAINING_FILES: msgspec.to_builtins(adds)}


def _with_tag(adds: Sequence[Add], files: NewFiles | None) -> list[Add]:
    if files is None:
        return list(adds)
    text = encode_tag(files)
    return [msgspec.structs.replace(add, tags={**(add.tags or {}), TAG: text}) for add in adds]


def _create_quarantine(snapshot: Snapshot | None) -> tuple[tuple[Action, ...], TableConfiguration]:
    if snapshot is not None:
        return (), snapshot.configuration
    # The beginning of a record may be a value that has no statistics in the table.
    created = plan_create_table(COLUMNS, (), {NO_STATS: "text, reason"}, current_ms())
    return created.actions, created.table


def _remaining_files(target: IngestTarget, replayed: TransactionId) -> list[Add]:
    """Return the files that the quarantine keeps after a replay, as its commit to the table names them."""
    parameters = target.interval_parameters(replayed)
    if parameters is None:
        reason = "its last replay was interrupted, and the log of the table no longer records what it did"
        fix = "Look for its records in the table, and delete them."
        raise SourceError(source=target.location, reason=reason, fix=fix)
    return msgspec.json.decode(parameters[REMAINING_FILES], type=list[Add])
