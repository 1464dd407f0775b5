"""Commit actions as a new version of a table, with optimistic concurrency.

The log entry is created with put-if-absent, so one writer wins each version. The order is: data files, log entry, then
checksum and checkpoint. So a visible version never names a missing file, and the later steps can fail without harm.

Source: PROTOCOL.md#delta-log-entries, #commit-provenance-information
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from threading import Lock, Thread

import msgspec
import pyarrow.compute as pc

from widen.errors import (
    AppendOnlyTable,
    AttemptsExhausted,
    BaseExpired,
    CommitUnknown,
    CorruptLog,
    FileMissing,
    IcebergIncompatible,
    InternalError,
    StorageRefused,
    TableAlreadyExists,
    WidenError,
)
from widen.errors.tables import add_note
from widen.log.checkpoint_writer import clean_up_if_enabled, write_checkpoint
from widen.log.commit_files import IN_COMMIT_TIMESTAMP, current_ms, decode_commit
from widen.log.commit_outcome import (
    Committed,
    Conflicted,
    Outcome,
    StagedFiles,
    Unknown,
    after_commit,
    reason_of,
    retry_conflicts,
    several_commits,
)
from widen.log.conflict import ReadSet, Transaction, WinningCommit, find_conflict
from widen.log.exact_bounds import exact_float_adds, exact_floats, widened_floats, without_named
from widen.log.log_segment import (
    commit_path,
    list_log,
    next_checksum,
    read_checksum,
    read_last_checkpoint,
    write_checksum,
)
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import Path
from widen.model.display import record_commit
from widen.model.schema_json import from_json
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, CommitInfo, DomainMetadata, Metadata, Protocol, Remove, encode_lines
from widen.protocol.column_mapping import ROW_TRACKING_DOMAIN, SUSPENDED
from widen.protocol.file_statistics import FileStatistics
from widen.protocol.iceberg_compat import IcebergCompat, enabled_compat, ensure_compatible, ensure_same_partitions
from widen.protocol.parquet_files import ensure_storable, move_to_commit_info
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable, missing_type_features, require_feature
from widen.protocol.table_properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
    is_on,
)
from widen.protocol.type_widening import TABLE_VERSION, renumber_type_changes

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
        max_attempts: After this many lost races, the commit gives up.
        staged: The files that the actions name. Once the log entry is being written they are kept, unless the entry is
            proved absent.

    Returns:
        `Committed`, `Conflicted` or `Unknown`: a lost race is an outcome, not an error.

    Source: PROTOCOL.md#delta-log-entries; Delta Spark's optimistic transaction.
    """
    attempt = _first_attempt(store, base, actions, reads)
    _ensure_allowed(base, attempt, operation, store.location)
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
            # A winner may have added a feature that Widen cannot write.
            ensure_writable(theirs.protocol or attempt.before.protocol, store.location)
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
        ours: The transaction, with the configuration of the previous version.
        row_ids: The highest assigned row id, if the table tracks rows.
        earlier_ms: The in-commit timestamp of the previous version, if it has one.
        floats: The columns that the transaction widens from float to double, by physical path.
    """

    version: int
    ours: Transaction
    row_ids: int
    earlier_ms: int | None
    floats: tuple[Path, ...] = ()

    def after(self, winner: WinningCommit) -> _CommitAttempt:
        """Return the attempt for the version after a winning commit."""
        table = TableConfiguration(winner.protocol or self.before.protocol, winner.metadata or self.before.metadata)
        actions = [_renumber(each, winner.version) for each in self.actions]
        if self.floats:
            named = [action for line in winner.lines for action in (line.add, line.remove) if action is not None]
            added = (action for action in named if isinstance(action, Add))
            actions = [*without_named(actions, named), *exact_floats(added, self.floats)]
        ours = replace(self.ours, table=table, actions=tuple(actions))
        info = winner.lines[0].commit_info or {} if winner.lines else {}
        earlier_ms = info.get(IN_COMMIT_TIMESTAMP, self.earlier_ms)
        row_ids = high_water_mark(winner.domains.get(ROW_TRACKING_DOMAIN), self.row_ids)
        return replace(self, version=winner.version + 1, ours=ours, row_ids=row_ids, earlier_ms=earlier_ms)

    @property
    def before(self) -> TableConfiguration:
        """The configuration of the previous version."""
        return self.ours.table

    @property
    def actions(self) -> tuple[Action, ...]:
        """What the transaction wants to commit."""
        return self.ours.actions

    @cached_property
    def table(self) -> TableConfiguration:
        """The configuration that the version will have."""
        protocol, metadata = self.before.protocol, self.before.metadata
        for action in self.actions:
            protocol = action if isinstance(action, Protocol) else protocol
            metadata = action if isinstance(action, Metadata) else metadata
        is_same = protocol is self.before.protocol and metadata is self.before.metadata
        return self.before if is_same else TableConfiguration(protocol, metadata)

    def finish(self, provenance: _Provenance) -> tuple[CommitInfo, list[Action]]:
        """Return the commitInfo and the actions to write for this version."""
        actions = sorted(self.actions, key=lambda action: _ORDER.get(type(action), _REST))
        now_ms = current_ms()
        if is_on(self.table.properties, ENABLE_IN_COMMIT_TIMESTAMPS):
            now_ms = max(now_ms, (self.earlier_ms or 0) + 1)  # must increase, even if this clock is behind
            actions = [self._with_enablement(action, now_ms) for action in actions]
        if self.table.supports("rowTracking"):
            actions = with_row_ids(actions, self.table.properties, self.row_ids, self.version)
        actions, counts = move_to_commit_info(actions)
        return {**self._info(provenance, now_ms), **counts}, actions

    def _with_enablement(self, action: Action, now_ms: int) -> Action:
        """Record the first version with commit timestamps, if this commit enables them on an existing table."""
        is_recorded = self.version == 0 or is_on(self.before.properties, ENABLE_IN_COMMIT_TIMESTAMPS)
        if is_recorded or not isinstance(action, Metadata):
            return action
        marks = {TIMESTAMPS_SINCE_VERSION: str(self.version), TIMESTAMPS_SINCE_MS: str(now_ms)}
        return msgspec.structs.replace(action, configuration={**action.configuration, **marks})

    def _info(self, provenance: _Provenance, now_ms: int) -> CommitInfo:
        info: CommitInfo = {}
        if is_on(self.table.properties, ENABLE_IN_COMMIT_TIMESTAMPS):
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


# Not from the metadata of the installation, whose parser takes longer to import than a commit.
_ENGINE = f"Widen/{import_module('widen').__version__}"


def _first_attempt(store: LogStore, base: Snapshot | None, actions: Sequence[Action], reads: ReadSet) -> _CommitAttempt:
    if base is not None:
        floats = widened_floats(base.configuration, actions)
        repaired = exact_float_adds(base, floats, actions) if floats else []
        ours = Transaction(base.configuration, (*actions, *repaired), reads)
        earlier_ms = base.timestamp_ms if is_on(base.properties, ENABLE_IN_COMMIT_TIMESTAMPS) else None
        tracks = base.configuration.supports("rowTracking")
        row_ids = high_water_mark(base.domains.get(ROW_TRACKING_DOMAIN), -1) if tracks else -1
        return _CommitAttempt(base.version + 1, ours, row_ids, earlier_ms, floats)
    protocol = next((action for action in actions if isinstance(action, Protocol)), None)
    metadata = next((action for action in actions if isinstance(action, Metadata)), None)
    if protocol is None or metadata is None:
        raise InternalError(reason=f"Version 0 of {store.location} has no protocol or no metadata")
    return _CommitAttempt(0, Transaction(TableConfiguration(protocol, metadata), tuple(actions), reads), -1, None)


def _ensure_allowed(base: Snapshot | None, attempt: _CommitAttempt, operation: str, location: str) -> None:
    table, adds = attempt.table, [action for action in attempt.actions if isinstance(action, Add)]
    ensure_writable(attempt.before.protocol, location)
    ensure_writable(table.protocol, location)
    if base is not None:
        base.ensure_checksum_agrees()
    # As Delta Lake, which also writes rows of such a table, but does not touch its metadata.
    if table.metadata is not attempt.before.metadata or base is None:
        missing = missing_type_features(table.protocol, table.schema)
        if missing:
            raise require_feature(table.protocol, missing[0])
    if any(add.data_change for add in adds):
        ensure_storable(table.schema, table.partition_columns)
    ensure_compatible(table)
    ensure_same_partitions(attempt.before.metadata, table.metadata)
    ensure_files_compatible(base, table.metadata, adds)
    loses_rows = any(isinstance(action, Remove) and action.data_change for action in attempt.actions)
    if loses_rows and table.enables("appendOnly"):
        raise AppendOnlyTable(location=location, operation=operation)


def _write_entry(
    store: LogStore, version: int, txn_id: str, data: bytes, staged: StagedFiles
) -> WinningCommit | Unknown | None:
    """Write the log entry of a version; release the staged files only if the entry is proved absent.

    Returns:
        None if the entry is written, the winning commit if another writer was first, or `Unknown`.
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
        run_post_commit_hooks(store, attempt.version, info, actions, attempt.table.properties)
    return Committed(attempt.version, store)


# Post-commit hooks: write the checksum and, if due, a checkpoint; then clean up the log.
#
# A hook that fails does not undo the commit. The checkpoint of a large table takes longer than the commit, so it is
# written less often, and in its own thread: the process ends when it is written.
#
# Source: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup


CHECKPOINT_INTERVAL = "delta.checkpointInterval"
INTERVALS = ((1_000_000, 100), (100_000, 50), (0, 10))
"""The number of versions between two checkpoints, by the least number of actions in the last one; each is a multiple of
the next."""

SMALL_PART = 1000
"""A commit is small if it has less than this part of the actions in the checkpoint. Readers replay small commits fast,
so only these make checkpoints less frequent."""

MAX_ACTIONS_IN_COMMIT = 50_000
"""From this many actions on, a checkpoint is written in its own thread; fewer take less than a tenth of a second."""

_writing: dict[str, Thread] = {}
_lock = Lock()
_log = logging.getLogger(__name__)


def run_post_commit_hooks(
    store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action], properties: Mapping[str, str]
) -> None:
    """Write the checksum of a version and, if due, a checkpoint; then clean up the log.

    Errors are logged, not raised: the commit is visible, and readers need neither file.
    """
    try:
        _write_checksum(store, version, info, actions)
        text = properties.get(CHECKPOINT_INTERVAL, "")
        # Every longer interval is a multiple of this one, so most commits need not read the size of the last
        # checkpoint.
        if version == 0 or version % (max(1, int(text)) if text.isdecimal() else INTERVALS[-1][1]):
            return
        size = read_last_checkpoint(store).size
        if not text.isdecimal() and version % checkpoint_interval(size, len(actions)):
            return
        if size > MAX_ACTIONS_IN_COMMIT:
            _start_checkpoint(store, version)
        else:
            _write_checkpoint(store, version)
    except Exception as error:  # any kind: the version is visible, so this must not look like a failed commit
        _warn(version, error)


def checkpoint_interval(size: int, commit_size: int) -> int:
    """Return the number of versions between two checkpoints; a property of the table can override it.

    Source: PROTOCOL.md#checkpoints; Delta Spark for the interval of small tables, 10.
    """
    if commit_size * SMALL_PART >= size:
        return INTERVALS[-1][1]
    return next(interval for least, interval in INTERVALS if size >= least)


def _write_checkpoint(store: LogStore, version: int) -> None:
    snapshot = open_snapshot(store, version)
    write_checkpoint(snapshot)
    clean_up_if_enabled(snapshot)


def _start_checkpoint(store: LogStore, version: int) -> None:
    """Write a checkpoint in a thread, unless one of the table is still being written."""

    def write() -> None:
        try:
            _write_checkpoint(store, version)
        except Exception as error:  # any kind, as above
            _warn(version, error)

    with _lock:
        last = _writing.get(store.location)
        if last is None or not last.is_alive():
            _writing[store.location] = Thread(target=write, name=f"widen-checkpoint-{version}")
            _writing[store.location].start()


def _warn(version: int, error: Exception) -> None:
    _log.warning("Version %d is committed, but its checksum or checkpoint could not be written: %s", version, error)


def _write_checksum(store: LogStore, version: int, info: CommitInfo, actions: Sequence[Action]) -> None:
    previous = read_checksum(store, version - 1) if version else None
    if version and previous is None:
        return
    checksum = next_checksum(
        previous, actions, txn_id=str(info["txnId"]), in_commit_timestamp=info.get(IN_COMMIT_TIMESTAMP)
    )
    if checksum is not None:
        write_checksum(store, version, checksum)


# Row ids: assign every new file a range of ids that no other file has.
#
# Source: PROTOCOL.md#row-tracking


class _HighWaterMark(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


class _RowCount(msgspec.Struct, rename="camel"):
    num_records: int


def high_water_mark(domain: DomainMetadata | None, default: int) -> int:
    """Return the highest assigned row id.

    Raises:
        CorruptLog: the domain is damaged.

    Source: PROTOCOL.md#row-tracking (domain delta.rowTracking)
    """
    if domain is None:
        return default
    try:
        return msgspec.json.decode(domain.configuration, type=_HighWaterMark).row_id_high_water_mark
    except msgspec.DecodeError as error:
        fix = "Repair the domain with the client that wrote it."
        raise CorruptLog(
            path="_delta_log", reason=f"damaged metadata domain {ROW_TRACKING_DOMAIN} ({error})", fix=fix
        ) from error


def with_row_ids(actions: Sequence[Action], properties: Mapping[str, str], highest: int, version: int) -> list[Action]:
    """Return the actions with row ids for every added file without them, and with the new high water mark.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if is_on(properties, SUSPENDED):
        return list(actions)
    result: list[Action] = []
    mark = highest
    for action in actions:
        if isinstance(action, Add):
            first = mark + 1 if action.base_row_id is None else action.base_row_id
            mark = mark + _rows(action) if action.base_row_id is None else mark
            commit_version = action.default_row_commit_version
            action = msgspec.structs.replace(
                action,
                base_row_id=first,
                default_row_commit_version=version if commit_version is None else commit_version,
            )
        result.append(action)
    if mark > highest:
        text = msgspec.json.encode(_HighWaterMark(mark)).decode()
        result.append(DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=text, removed=False))
    return result


def _rows(add: Add) -> int:
    try:
        return msgspec.json.decode(add.stats or "{}", type=_RowCount).num_records
    except msgspec.DecodeError as error:
        reason = f"The file {add.path} has no row count, which row tracking requires"
        raise InternalError(reason=reason) from error


# Detect a base version that expired while a change was prepared.
#
# Log cleanup deletes old commits, so their file names are free again. A slow writer could then create such a file,
# and its commit would seem to succeed. But readers start from a later checkpoint and would never see it: its rows
# would be lost.
#
# Source: PROTOCOL.md#metadata-cleanup, #delta-log-entries


PAUSE_MS = 60_000
"""If a commit takes longer and the store cannot tell whether readers see it, its outcome counts as unknown: the machine
may have slept in between."""


def find_expired(store: LogStore, base: Snapshot | None) -> BaseExpired | TableAlreadyExists | None:
    """Return why a change cannot be committed on a base; None if every commit since the base is there."""
    if base is None:
        return TableAlreadyExists(location=store.location) if list_log(store).newest >= 0 else None
    if _has_base(store, base):
        return None
    # The commit after the base proves nothing: another writer with an old base may have written it again.
    newest = list_log(store).newest
    if newest <= base.version:
        return None
    reason = f"version {base.version}, on which the change is based, was cleaned up"
    return BaseExpired(version=newest, location=store.location, reason=reason)


def is_reachable(store: LogStore, base: Snapshot | None, version: int, *, if_unknown: bool) -> bool:
    """Return whether readers see a version that was just written.

    A cleanup may have deleted the commits of other writers, this version among them, after `find_expired`. Before it
    frees the name of a version it makes sure of a checkpoint of a later one, so the newest version is seen. An older
    one is seen if the commit of its base is still there: a cleanup deletes that one first. The commit before proves
    nothing: another writer with an old base may have written it again.

    Args:
        if_unknown: What to return if the store fails: the version is written, so this must not look like a failed
            commit.
    """
    try:
        return base is None or _has_base(store, base) or list_log(store).newest == version
    except WidenError:
        return if_unknown


def _has_base(store: LogStore, base: Snapshot) -> bool:
    """Return whether the commit of a base is the file that was there when the base was opened.

    Then no later commit was deleted: a cleanup deletes them one after the other, oldest first. That holds for Delta
    Lake and Widen; clients that delete many files in one request of an object store give no order.
    """
    commits = base.segment.commits[-1:]
    if not commits or commits[0].first != base.version:
        return False
    listed, current = commits[0].entry, store.find(commits[0].entry.path)
    # Some stores return the time of a single file without milliseconds.
    return (
        current is not None
        and current.size_bytes == listed.size_bytes
        and abs(current.modified_ms - listed.modified_ms) < 1000
    )


# Requirements of Iceberg compatibility on files: on new ones, and on those that exist when it is enabled.
#
# Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2


_REWRITE = "Write the rows to a new table that is created with Iceberg compatibility."


def ensure_files_compatible(base: Snapshot | None, metadata: Metadata, adds: Iterable[Add]) -> None:
    """Check that files meet the requirements of the enabled Iceberg compatibility."""
    compat = enabled_compat(metadata.configuration)
    if compat is None:
        return
    _ensure_row_counts(compat, ((add.path, add.stats) for add in adds))
    if base is not None and enabled_compat(base.properties) != compat:
        _ensure_existing_files(compat, base)


def _ensure_existing_files(compat: IcebergCompat, base: Snapshot) -> None:
    """Check the files that existed before compatibility was enabled."""
    files = base.files()
    if files.num_rows == 0:
        return
    if pc.any(files["deletion_vector"].is_valid()).as_py():
        raise _incompatible(compat, "DELETION_VECTORS_NOT_PURGED", "rows are deleted through deletion vectors")
    if compat.version == 1 and base.partition_columns:
        raise _incompatible(compat, "PARTITION_COLUMNS_NOT_IN_FILES", "the partition columns are not in the files")
    _ensure_row_counts(compat, zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True))


def _ensure_row_counts(compat: IcebergCompat, files: Iterable[tuple[str, str | None]]) -> None:
    for path, stats in files:
        if FileStatistics(stats).rows is None:
            raise _incompatible(compat, "MISSING_NUM_RECORDS", f"the file {path} has no row count")


def _incompatible(compat: IcebergCompat, kind: str, reason: str) -> IcebergIncompatible:
    return IcebergIncompatible(version=compat.version, kind=kind, reason=reason, fix=_REWRITE)
