"""Commit actions as a new version of a table, with optimistic concurrency.

The log entry is created with put-if-absent, so one writer wins each version. The order is: data files, log entry, then
checksum and checkpoint. So a visible version never names a missing file, and the later steps can fail without harm.

Source: PROTOCOL.md#delta-log-entries, #commit-provenance-information
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata as packages

import msgspec

from widen.errors import (
    AppendOnlyTable,
    AttemptsExhausted,
    CommitUnknown,
    CorruptLog,
    FileMissing,
    InternalError,
    StorageRefused,
    TableAlreadyExists,
)
from widen.errors.foreign import add_note
from widen.log.read.commit_lines import decode_commit
from widen.log.read.commit_timestamps import IN_COMMIT_TIMESTAMP, current_ms, has_in_commit_timestamps
from widen.log.read.log_segment import commit_path
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit_outcome import (
    Committed,
    Conflicted,
    Outcome,
    Unknown,
    after_commit,
    reason_of,
    retry_conflicts,
    several_commits,
)
from widen.log.write.conflict import ROW_TRACKING_DOMAIN, ReadSet, Transaction, WinningCommit, find_conflict
from widen.log.write.iceberg_files import ensure_files_compatible
from widen.log.write.post_commit import run_post_commit_hooks
from widen.log.write.row_ids import high_water_mark, with_row_ids
from widen.log.write.staged_files import StagedFiles
from widen.log.write.version_expiry import PAUSE_MS, find_expired, is_reachable
from widen.model.progress import record_commit
from widen.model.schema_json import from_json
from widen.protocol.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove, encode_lines
from widen.protocol.iceberg_compat import ensure_compatible, ensure_same_partitions
from widen.protocol.leaf_counts import move_to_commit_info
from widen.protocol.skipping.file_statistics import FileStatistics
from widen.protocol.table_features import ensure_writable, is_enabled, is_supported
from widen.protocol.table_properties import TIMESTAMPS_SINCE_MS, TIMESTAMPS_SINCE_VERSION
from widen.protocol.type_changes import TABLE_VERSION, renumber_type_changes
from widen.protocol.void_columns import ensure_storable

__all__ = [
    "Committed",
    "Conflicted",
    "Outcome",
    "ReadSet",
    "StagedFiles",
    "Unknown",
    "after_commit",
    "commit",
    "retry_conflicts",
    "several_commits",
    "write_metrics",
]

MAX_ATTEMPTS = 10_000
_ORDER: Mapping[type, int] = {Metadata: 0, Protocol: 1}
_REST = 2


def commit(
    store: LogStore,
    base: Snapshot | None,
    actions: Sequence[Action],
    operation: str,
    parameters: Mapping[str, object],
    *,
    reads: ReadSet = ReadSet.NOTHING,
    metrics: Mapping[str, int] | None = None,
    max_attempts: int = MAX_ATTEMPTS,
    staged: StagedFiles | None = None,
) -> Outcome:
    """Commit actions on top of a version, or on top of later versions that do not conflict with them.

    After the commit, a checksum and, if due, a checkpoint are written; if that fails, the commit remains valid.

    Args:
        base: The version that the actions are based on; None to create version 0.
        actions: At most one metadata action, at most one protocol action, and any others.
        parameters: The parameters in the history; lists and objects become JSON text.
        max_attempts: The number of lost races after which the commit gives up.
        staged: The files that the actions name. Once the log entry is being written they are kept, unless the entry is
            proved absent.

    Returns:
        `Committed`, `Conflicted` or `Unknown`: a lost race is an outcome, not an error.

    Raises:
        UnsupportedFeature: the table has, or would get, a writer feature that Widen does not support.
        AppendOnlyTable: rows would be removed from an append-only table.
        IcebergIncompatible: Iceberg compatibility is enabled, and the commit would violate its rules.
        NoStoredColumns: rows would be added to a table without a column that is stored in files.
        NestedVoidColumn: rows would be added to a table with a void type inside an array or a map.
        StorageError: the store reported an error; nothing is visible.
        CorruptLog: the winning commit is damaged; nothing is visible.

    Source: PROTOCOL.md#delta-log-entries; Delta Spark's optimistic transaction.
    """
    attempt = _first_attempt(store, base, actions, reads)
    _ensure_allowed(base, attempt.ours, operation, store.location)
    began_ms = current_ms()
    provenance = _Provenance(
        operation, parameters, metrics or {}, None if base is None else base.version, uuid.uuid4().hex
    )
    staged = staged or StagedFiles()
    for _ in range(max_attempts):
        expired = find_expired(store, base)  # after a lost race it means that the winners may be incomplete
        if expired is not None:
            return Conflicted(expired)
        info, final = attempt.finish(provenance)
        winner = _write_entry(store, attempt.version, provenance.txn_id, encode_lines(info, final), staged)
        if isinstance(winner, Unknown):
            return winner
        if winner is None and not _is_reachable(store, base, attempt.version, began_ms):
            reason = "the previous version expired while the change was prepared"
            unknown = CommitUnknown(
                version=attempt.version, location=store.location, reason=reason, txn_id=provenance.txn_id
            )
            return Unknown(unknown)
        if winner is None:
            return _conclude(store, attempt, info, final)
        if base is None:
            return Conflicted(TableAlreadyExists(location=store.location))
        # Every commit since must be compatible, not only the one that took our version.
        for theirs in _read_winners(store, winner):
            # A winner may have added a feature for which Widen cannot write.
            ensure_writable(theirs.protocol or attempt.ours.protocol, store.location)
            conflict = find_conflict(attempt.ours, theirs, store.location)
            if conflict is not None:
                return Conflicted(conflict)
            attempt = attempt.after(theirs)
    reason = f"all {max_attempts} attempts lost the race"
    return Conflicted(AttemptsExhausted(version=attempt.version - 1, location=store.location, reason=reason))


def write_metrics(adds: Sequence[Add]) -> dict[str, int]:
    """Return the metrics that the history shows for a write."""
    rows = sum(FileStatistics(add.stats).rows or 0 for add in adds)
    return {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": sum(add.size for add in adds)}


@dataclass(frozen=True)
class _Provenance:
    """The parts of commitInfo that do not depend on the version."""

    operation: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, int]
    read_version: int | None
    txn_id: str


@dataclass(frozen=True)
class _CommitAttempt:
    """One attempt to write one version.

    Args:
        ours: The transaction, with the protocol and metadata of the previous version.
        row_ids: The highest assigned row id, if the table tracks rows.
        earlier_ms: The in-commit timestamp of the previous version, if it has one.
    """

    version: int
    ours: Transaction
    row_ids: int
    earlier_ms: int | None

    def after(self, winner: WinningCommit) -> _CommitAttempt:
        """Return the attempt for the version after a winning commit."""
        ours = replace(
            self.ours,
            protocol=winner.protocol or self.ours.protocol,
            metadata=winner.metadata or self.ours.metadata,
            actions=tuple(_renumber(action, winner.version) for action in self.ours.actions),
        )
        info = winner.lines[0].commit_info or {} if winner.lines else {}
        earlier_ms = info.get(IN_COMMIT_TIMESTAMP, self.earlier_ms)
        row_ids = high_water_mark(winner.domains.get(ROW_TRACKING_DOMAIN), self.row_ids)
        return _CommitAttempt(winner.version + 1, ours, row_ids, earlier_ms)

    @property
    def protocol(self) -> Protocol:
        """The protocol that the version will have."""
        protocols: list[Protocol] = self.ours.of(Protocol)
        return protocols[-1] if protocols else self.ours.protocol

    @property
    def metadata(self) -> Metadata:
        """The metadata that the version will have."""
        metadatas: list[Metadata] = self.ours.of(Metadata)
        return metadatas[-1] if metadatas else self.ours.metadata

    def finish(self, provenance: _Provenance) -> tuple[CommitInfo, list[Action]]:
        """Return the commitInfo and the actions to write for this version."""
        actions = sorted(self.ours.actions, key=lambda action: _ORDER.get(type(action), _REST))
        now_ms = current_ms()
        if has_in_commit_timestamps(self.metadata.configuration):
            now_ms = max(now_ms, (self.earlier_ms or 0) + 1)  # must increase, even if this clock is behind
            actions = [self._with_enablement(action, now_ms) for action in actions]
        if is_supported(self.protocol, "rowTracking"):
            actions = with_row_ids(actions, self.metadata.configuration, self.row_ids, self.version)
        actions, counts = move_to_commit_info(actions)
        return {**self._info(provenance, now_ms), **counts}, actions

    def _with_enablement(self, action: Action, now_ms: int) -> Action:
        """Record from which version on commits have timestamps, if this commit enables them on an existing table."""
        is_recorded = self.version == 0 or has_in_commit_timestamps(self.ours.metadata.configuration)
        if is_recorded or not isinstance(action, Metadata):
            return action
        marks = {TIMESTAMPS_SINCE_VERSION: str(self.version), TIMESTAMPS_SINCE_MS: str(now_ms)}
        return msgspec.structs.replace(action, configuration={**action.configuration, **marks})

    def _info(self, provenance: _Provenance, now_ms: int) -> CommitInfo:
        info: CommitInfo = {}
        if has_in_commit_timestamps(self.metadata.configuration):
            info[IN_COMMIT_TIMESTAMP] = now_ms
        info["timestamp"] = now_ms
        info["operation"] = provenance.operation
        info["operationParameters"] = {key: _parameter(value) for key, value in provenance.parameters.items()}
        if provenance.read_version is not None:
            info["readVersion"] = provenance.read_version
        # As Delta Spark: a commit that only rearranges rows depends on no rows that others add.
        info["isolationLevel"] = "SnapshotIsolation" if self.ours.is_rearrangement else "Serializable"
        info["isBlindAppend"] = self.ours.reads.is_nothing and not self.ours.of(Remove)
        info["operationMetrics"] = {key: str(value) for key, value in provenance.metrics.items()}
        info["engineInfo"] = _ENGINE
        info["txnId"] = provenance.txn_id
        return info


def _renumber(action: Action, lost: int) -> Action:
    """Return an action for the version after a lost one: type changes may record their table version.

    Source: Delta Spark, for tables of the preview of type widening
    """
    if not isinstance(action, Metadata) or TABLE_VERSION not in action.schema_string:
        return action
    return action.with_schema(renumber_type_changes(from_json(action.schema_string), lost, lost + 1))


def _parameter(value: object) -> object:
    """Return a parameter as Delta Lake writes it: lists and objects become JSON text."""
    return value if value is None or isinstance(value, (str, bool, int, float)) else msgspec.json.encode(value).decode()


def _engine() -> str:
    try:
        return f"Widen/{packages.version('widen')}"
    except packages.PackageNotFoundError:
        return "Widen/source"


_ENGINE = _engine()


def _first_attempt(store: LogStore, base: Snapshot | None, actions: Sequence[Action], reads: ReadSet) -> _CommitAttempt:
    if base is not None:
        ours = Transaction(base.protocol, base.metadata, tuple(actions), reads)
        earlier_ms = base.timestamp_ms if has_in_commit_timestamps(base.properties) else None
        tracks = is_supported(base.protocol, "rowTracking")
        row_ids = high_water_mark(base.domains.get(ROW_TRACKING_DOMAIN), -1) if tracks else -1
        return _CommitAttempt(base.version + 1, ours, row_ids, earlier_ms)
    protocol = next((action for action in actions if isinstance(action, Protocol)), None)
    metadata = next((action for action in actions if isinstance(action, Metadata)), None)
    if protocol is None or metadata is None:
        raise InternalError(reason=f"Version 0 of {store.location} has no protocol or no metadata")
    return _CommitAttempt(0, Transaction(protocol, metadata, tuple(actions), reads), -1, None)


def _ensure_allowed(base: Snapshot | None, ours: Transaction, operation: str, location: str) -> None:
    protocol = next(iter(ours.of(Protocol)), ours.protocol)
    metadata: Metadata = next(iter(ours.of(Metadata)), ours.metadata)
    ensure_writable(ours.protocol, location)
    ensure_writable(protocol, location)
    adds: list[Add] = ours.of(Add)
    schema = from_json(metadata.schema_string)
    if any(add.data_change for add in adds):
        ensure_storable(schema, metadata.partition_columns)
    ensure_compatible(protocol, metadata, schema)
    ensure_same_partitions(ours.metadata, metadata)
    ensure_files_compatible(base, metadata, adds)
    loses_rows = any(remove.data_change for remove in ours.of(Remove))
    if loses_rows and is_enabled(protocol, metadata.configuration, "appendOnly"):
        raise AppendOnlyTable(location=location, operation=operation)


def _write_entry(
    store: LogStore, version: int, txn_id: str, data: bytes, staged: StagedFiles
) -> WinningCommit | Unknown | None:
    """Write the log entry of a version; release the staged files only if the entry is proved absent.

    Returns:
        None if the entry is written, the winning commit if another writer was first, or `Unknown`.

    Raises:
        StorageRefused: the entry is not written and cannot appear later.
    """
    # Before the write, not after: an interrupt between the two must not delete files of a visible commit.
    staged.mark_visible()
    try:
        result = _put(store, version, txn_id, data)
    except StorageRefused:
        staged.mark_absent()
        raise
    if isinstance(result, WinningCommit):
        # The entry is our own if the client retried the write after its answer was lost.
        if result.info.get("txnId") == txn_id:
            return None
        staged.mark_absent()
    return result


def _put(store: LogStore, version: int, txn_id: str, data: bytes) -> WinningCommit | Unknown | None:
    """Write the log entry of a version; if the outcome is not clear, read the entry to find out.

    Returns:
        None if the entry is written, the entry that exists instead, or `Unknown`.

    Raises:
        StorageRefused: the entry is not written and cannot appear later.
        CorruptLog: the existing entry is damaged.
    """
    failure: Exception | None = None
    try:
        if store.put_if_absent(commit_path(version), data):
            return None
    except Exception as error:  # any kind: the entry may be visible
        failure = error
    except BaseException as interrupt:
        add_note(interrupt, f"Whether version {version} of {store.location} was written is not known.")
        raise
    try:
        return _read(store, version)
    except Exception as error:
        # Only a refusal proves absence: after a timeout, a missing entry may still appear.
        if isinstance(failure, StorageRefused) and isinstance(error, FileMissing):
            raise failure from None
        if failure is None and isinstance(error, CorruptLog):
            raise
        reason = ". ".join(reason_of(each) for each in (failure, error) if each is not None)
        unknown = CommitUnknown(version=version, location=store.location, reason=reason, txn_id=txn_id)
        unknown.__cause__ = failure or error
        return Unknown(unknown)


def _read(store: LogStore, version: int) -> WinningCommit:
    path = commit_path(version)
    return WinningCommit(version, tuple(decode_commit(path, store.read(path))))


def _read_winners(store: LogStore, first: WinningCommit) -> Iterator[WinningCommit]:
    """Yield the commit that won our version, and all later ones."""
    winner = first
    while True:
        yield winner
        try:
            winner = _read(store, winner.version + 1)
        except FileMissing:
            return


def _is_reachable(store: LogStore, base: Snapshot | None, version: int, began_ms: int) -> bool:
    with after_commit(store.location, version):
        return is_reachable(store, base, version, if_unknown=current_ms() - began_ms <= PAUSE_MS)


def _conclude(store: LogStore, attempt: _CommitAttempt, info: CommitInfo, actions: Sequence[Action]) -> Committed:
    record_commit(store.location, attempt.version)
    with after_commit(store.location, attempt.version):
        run_post_commit_hooks(store, attempt.version, info, actions, attempt.metadata.configuration)
    return Committed(attempt.version, store)
