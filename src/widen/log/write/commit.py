"""Commits: actions become a version, or somebody else's version becomes the reason why not.

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
)
from widen.log.write.conflict import ROW_TRACKING_DOMAIN, ReadSet, Transaction, WinningCommit, find_conflict
from widen.log.write.iceberg_files import ensure_files_compatible
from widen.log.write.post_commit import run_post_commit_hooks
from widen.log.write.row_ids import high_water_mark, with_row_ids
from widen.log.write.staged_files import StagedFiles
from widen.log.write.version_expiry import PAUSE_MS, find_expired, is_reachable
from widen.model.schema_json import from_json
from widen.protocol.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove, encode_lines
from widen.protocol.iceberg_compat import ensure_compatible, ensure_same_partitions
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
    """Commit actions on top of a version, or on top of later ones that do not contradict them.

    After the commit a checksum is written, and a checkpoint where one is due; if that fails, the commit stands.

    Args:
        store: Of the table.
        base: The version that the actions were made for; None to make version 0.
        actions: At most one metadata, one protocol, and any others.
        operation: As the history shows it, e.g. ``WRITE``.
        parameters: As the history shows them; lists and objects become JSON text.
        reads: What the actions rely on.
        metrics: Numbers for the history.
        max_attempts: After so many lost races the last winner is reported.
        staged: The files that the actions name. They are kept from the moment that the log entry begins to be written,
            until it is proved that it is absent.

    Returns:
        `Committed`, `Conflicted` or `Unknown`: losing a race is an outcome.

    Raises:
        UnsupportedFeature: the table has, or would have, a feature that this version cannot obey.
        AppendOnlyTable: rows would be removed from an append-only table.
        IcebergIncompatible: the table has switched on a compatibility with Iceberg, and would break its rules.
        NothingToStore: rows would be added to a table of whose columns none is in files.
        VoidInItems: rows would be added to a table that has a void inside an array or a map.
        StorageError: the store refused; nothing is visible.
        CorruptLog: the commit of a winner is damaged; nothing is visible.

    Source: PROTOCOL.md#delta-log-entries; Delta Spark's optimistic transaction.
    """
    attempt = _first_attempt(store, base, actions, reads)
    _ensure_allowed(base, attempt.ours, operation, store.location)
    began_ms = current_ms()
    expired = find_expired(store, base)
    if expired is not None:
        return Conflicted(expired)
    said = _Provenance(operation, parameters, metrics or {}, None if base is None else base.version, uuid.uuid4().hex)
    staged = staged or StagedFiles()
    for _ in range(max_attempts):
        info, final = attempt.finished(said)
        first = _written(store, attempt.version, said.txn_id, encode_lines(info, final), staged)
        if isinstance(first, Unknown):
            return first
        if first is None and current_ms() - began_ms > PAUSE_MS and not _is_reachable(store, attempt.version):
            reason = "the writer was paused for so long that the versions before it have expired"
            unknown = CommitUnknown(version=attempt.version, location=store.location, reason=reason, txn_id=said.txn_id)
            return Unknown(unknown)
        if first is None:
            return _conclude(store, attempt.version, info, final)
        if base is None:
            return Conflicted(TableAlreadyExists(location=store.location))
        for winner in _read_winners(store, first):
            ensure_writable(winner.protocol or attempt.ours.protocol, store.location)
            conflict = find_conflict(attempt.ours, winner, store.location)
            if conflict is not None:
                return Conflicted(conflict)
            attempt = attempt.after(winner)
    reason = f"{max_attempts} attempts lost the race"
    return Conflicted(AttemptsExhausted(version=attempt.version - 1, location=store.location, reason=reason))


def write_metrics(adds: Sequence[Add]) -> dict[str, int]:
    """Return the metrics that the history shows for a write."""
    rows = sum(FileStatistics(add.stats).rows or 0 for add in adds)
    return {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": sum(add.size for add in adds)}


@dataclass(frozen=True)
class _Provenance:
    """What the provenance says whatever the version becomes."""

    operation: str
    parameters: Mapping[str, object]
    metrics: Mapping[str, int]
    read_version: int | None
    txn_id: str


@dataclass(frozen=True)
class _CommitAttempt:
    """One try for one version.

    Args:
        version: The version to be written.
        ours: The transaction; its protocol and metadata are those of the version before.
        row_ids: The highest row id that is given away, if the table tracks rows.
        earlier_ms: The time of the version before, if it says one.
    """

    version: int
    ours: Transaction
    row_ids: int
    earlier_ms: int | None

    def after(self, winner: WinningCommit) -> _CommitAttempt:
        """Return the try for the version after that of a winner."""
        ours = replace(
            self.ours,
            protocol=winner.protocol or self.ours.protocol,
            metadata=winner.metadata or self.ours.metadata,
            actions=tuple(_renumber(action, winner.version) for action in self.ours.actions),
        )
        said = winner.lines[0].commit_info or {} if winner.lines else {}
        earlier_ms = said.get(IN_COMMIT_TIMESTAMP, self.earlier_ms)
        row_ids = high_water_mark(winner.domains.get(ROW_TRACKING_DOMAIN), self.row_ids)
        return _CommitAttempt(winner.version + 1, ours, row_ids, earlier_ms)

    @property
    def protocol(self) -> Protocol:
        """The protocol that the version will have."""
        found: list[Protocol] = self.ours.of(Protocol)
        return found[-1] if found else self.ours.protocol

    @property
    def metadata(self) -> Metadata:
        """The metadata that the version will have."""
        found: list[Metadata] = self.ours.of(Metadata)
        return found[-1] if found else self.ours.metadata

    def finished(self, said: _Provenance) -> tuple[CommitInfo, list[Action]]:
        """Return provenance and actions as they are to be written for this version."""
        actions = sorted(self.ours.actions, key=lambda action: _ORDER.get(type(action), _REST))
        now_ms = current_ms()
        if has_in_commit_timestamps(self.metadata.configuration):
            now_ms = max(now_ms, (self.earlier_ms or 0) + 1)
            actions = [self._with_enablement(action, now_ms) for action in actions]
        if is_supported(self.protocol, "rowTracking"):
            actions = with_row_ids(actions, self.metadata.configuration, self.row_ids, self.version)
        return self._info(said, now_ms), actions

    def _with_enablement(self, action: Action, now_ms: int) -> Action:
        """Record the version from which commits say their time, where an existing table begins to have that."""
        already = self.version == 0 or has_in_commit_timestamps(self.ours.metadata.configuration)
        if already or not isinstance(action, Metadata):
            return action
        marks = {TIMESTAMPS_SINCE_VERSION: str(self.version), TIMESTAMPS_SINCE_MS: str(now_ms)}
        return msgspec.structs.replace(action, configuration={**action.configuration, **marks})

    def _info(self, said: _Provenance, now_ms: int) -> CommitInfo:
        info: CommitInfo = {}
        if has_in_commit_timestamps(self.metadata.configuration):
            info[IN_COMMIT_TIMESTAMP] = now_ms
        info["timestamp"] = now_ms
        info["operation"] = said.operation
        info["operationParameters"] = {key: _parameter(value) for key, value in said.parameters.items()}
        if said.read_version is not None:
            info["readVersion"] = said.read_version
        info["isolationLevel"] = "SnapshotIsolation" if self.ours.is_rearrangement else "Serializable"
        info["isBlindAppend"] = self.ours.reads.is_nothing and not self.ours.of(Remove)
        info["operationMetrics"] = {key: str(value) for key, value in said.metrics.items()}
        info["engineInfo"] = _ENGINE
        info["txnId"] = said.txn_id
        return info


def _renumber(action: Action, lost: int) -> Action:
    """Return an action for the version after a lost one: recorded changes of type may say their version.

    Source: Delta Spark, for tables of the preview of type widening
    """
    if not isinstance(action, Metadata) or TABLE_VERSION not in action.schema_string:
        return action
    return action.with_schema(renumber_type_changes(from_json(action.schema_string), lost, lost + 1))


def _parameter(value: object) -> object:
    """Return a parameter as Delta writes it: what has parts becomes JSON text."""
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
        raise InternalError(reason=f"Version 0 of {store.location} was to be written without protocol or metadata")
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


def _written(
    store: LogStore, version: int, txn_id: str, data: bytes, staged: StagedFiles
) -> WinningCommit | Unknown | None:
    """Write the log entry of a version, and let go of the files as soon as it is proved that it is absent.

    Returns:
        None if it is written, the commit of somebody else that is there instead, or that nobody knows.

    Raises:
        StorageRefused: it was not written, and cannot be written late.
        CorruptLog: what the log has in its place is damaged.
    """
    staged.expose()
    try:
        found = _put(store, version, txn_id, data)
    except StorageRefused:
        staged.conceal()
        raise
    if isinstance(found, WinningCommit):
        if _txn_id(found) == txn_id:  # the store repeated the write, or its answer was lost
            return None
        staged.conceal()
    return found


def _put(store: LogStore, version: int, txn_id: str, data: bytes) -> WinningCommit | Unknown | None:
    """Write the log entry of a version.

    Returns:
        None if it is written, what the log has in its place, or that nobody knows.

    Raises:
        StorageRefused: it was not written, and cannot be written late.
        CorruptLog: what the log has in its place is damaged.
    """
    failure: Exception | None = None
    try:
        if store.put_if_absent(commit_path(version), data):
            return None
    except Exception as error:  # of whatever kind: the entry may be visible
        failure = error
    except BaseException as interrupt:
        add_note(interrupt, f"Whether version {version} of {store.location} was written is not known.")
        raise
    try:
        return _read(store, version)
    except Exception as error:
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
    """Yield the commit that took our version, and those after it."""
    winner = first
    while True:
        yield winner
        try:
            winner = _read(store, winner.version + 1)
        except FileMissing:
            return


def _txn_id(winner: WinningCommit) -> object:
    infos = [line.commit_info for line in winner.lines if line.commit_info is not None]
    return infos[0].get("txnId") if infos else None


def _is_reachable(store: LogStore, version: int) -> bool:
    with after_commit(store.location, version):
        return is_reachable(store, version)


def _conclude(store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action]) -> Committed:
    with after_commit(store.location, version):
        run_post_commit_hooks(store, version, info, actions)
    return Committed(version, store)
