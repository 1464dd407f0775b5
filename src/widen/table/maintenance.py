"""Drop features, rewrite old files, compact small files, restore earlier versions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from widen.errors import (
    CheckpointBarrierFailed,
    DropConflict,
    DropPendingRetention,
    FileMissing,
    HistoryUsesFeature,
    InvalidOption,
    OptionConflict,
    OptionMissing,
    ProtectedVersionsRemain,
    RetentionNotExpired,
    VersionNotFound,
    WidenError,
)
from widen.log.checkpoint_reader import is_v2
from widen.log.checkpoint_writer import (
    DAY_MS,
    MINUTE_MS,
    clean_up,
    earliest_reliable_checkpoint,
    is_truncated,
    retention_ms,
    write_checkpoint,
)
from widen.log.commit import (
    Committed,
    Conflicted,
    ReadSet,
    StagedFiles,
    after_commit,
    commit,
    retry_conflicts,
    several_commits,
)
from widen.log.commit_files import METADATA, current_ms, decode_commit, read_non_file_actions, time_text, to_ms
from widen.log.file_list import canonical_path, to_adds, to_remove
from widen.log.loads import restore_loads
from widen.log.log_segment import find_segment, list_log
from widen.log.log_store import LogStore, percent_encode
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.vacuum import VacuumPlan, plan_vacuum, run_vacuum, to_retention_ms
from widen.log.version_changes import files_only_in, missing_files
from widen.model.argument_types import check_arguments
from widen.model.transaction_id import DELETED_KEYS_APP_ID
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, Remove, Txn
from widen.protocol.deletion_vectors import locate_vector
from widen.protocol.table_configuration import protected_before
from widen.protocol.table_features import PROTECTION, TYPE_WIDENING
from widen.protocol.table_properties import (
    LOG_RETENTION,
    TARGET_BYTES,
    TRUNCATE_HISTORY_RETENTION,
    duration_ms,
    duration_text,
)
from widen.schema import feature_removal
from widen.schema.feature_removal import RemovableFeature, Stored
from widen.schema.table_definition import ensure_removable, restore_actions
from widen.schema.table_state import MetadataChange, TableState, to_table_state
from widen.table.column_operations import (
    PropertyChangesMixin,
    add_files_again,
    has_row_ids,
    remove_column_mapping,
    remove_row_ids,
    session_to_rewrite,
)
from widen.table.open_table import Self, TableVersion
from widen.table.results import TableChange, Vacuumed, to_datetime

if TYPE_CHECKING:
    from widen.changes.rewrite_files import OldFileRewrite
    from widen.files.data_reader import FileScan
    from widen.files.footers import OldType
    from widen.iceberg.catalog import CatalogSource
    from widen.iceberg.mirror import Mirrored
    from widen.spark.spark_types import DataFrame, SparkSession

RESTORE = "RESTORE"


class MaintenanceMixin(PropertyChangesMixin):
    """Methods that maintain the files, the features and the version of a table."""

    @check_arguments
    def drop_feature(self, name: str, *, truncate_history: bool = False, spark: SparkSession | None = None) -> Self:
        """Remove the traces of a feature and then the feature from the protocol, and return the table.

        What the feature has left in files is removed first: files in old types, with deletion vectors or with the
        names of column mapping are rewritten, and the row ids of files are removed. Older versions that need the
        feature then either stay, behind protected checkpoints (``checkpointProtection``), or must have
        expired: with ``truncate_history`` this takes two calls, more than
        ``delta.dropFeatureTruncateHistory.retentionDuration`` (24 hours) apart. Steps that are committed before an
        error stay committed, and the call can be repeated.

        A table that ingestion created and that never widened does not have ``typeWidening`` yet. It then only forgets
        that its first type change turns the feature on.

        Args:
            name: The feature, e.g. ``typeWidening`` or ``typeWidening-preview``; each is dropped separately.
            truncate_history: Whether to delete versions that use the feature instead of protecting them.
            spark: The session, classic or Connect; by default the active one, else a local one. It is used only
                to write files, or to read the footers of very many files.

        Raises:
            FeatureDropRefused: a subclass: the table does not have the feature, or it cannot be dropped this way.
            UnsupportedFeatureForWrite: the table has another feature that this version does not support for
                writing.
            DropPendingRetention: the newest version no longer uses the feature; call again when the history has
                expired.
            HistoryUsesFeature: versions that have not expired use the feature.
            ProtectedVersionsRemain: versions whose checkpoints are protected have not expired.
            CheckpointBarrierFailed: a required checkpoint could not be written.
            DropConflict: a concurrent commit used the feature again.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptFile: a file cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Spark's DROP FEATURE
        """
        from widen.changes.rewrite_files import OldFileRewrite
        from widen.spark.engine import find_started
        from widen.spark.session import FAST_DROP, is_setting_on

        renewal = OldFileRewrite(self._store, session_to_rewrite(spark))
        is_fast = is_setting_on(find_started(spark), FAST_DROP)
        return self._after(FeatureRemoval(self._store, name, truncate_history, is_fast, renewal).run)

    @check_arguments
    def rewrite(
        self, *, clear_history: bool = False, statistics: bool = False, spark: SparkSession | None = None
    ) -> TableChange[Self]:
        """Rewrite the files that have an old type to the current types, and return the `TableChange`.

        It also rewrites files with INT96 timestamps before 1678 or after 2261, which many other readers wrap around.
        Other files stay as they are, and concurrent reads and writes are safe. By default the recorded type changes
        stay: to remove them changes the schema, and concurrent commits that began before it fail.

        Args:
            clear_history: Whether to remove the recorded type changes from the schema after the rewrite; older versions
                keep theirs.
            statistics: Whether to rewrite no file, and to replace the bounds in the log that are not exact, by those of
                the footers: of floats that became doubles, and of decimals that were written as doubles or with
                exponents. Booleans without bounds get them. Other readers lose rows of filters on such columns.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            OptionConflict: both the history and the statistics are named.
            UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#writer-requirements-for-type-widening (type changes may be removed if all files
            have the current types)
        """
        from widen.changes.rewrite_files import REWRITE, Int96Rewrite, OldFileRewrite

        if statistics:
            if clear_history:
                expected = "To repair statistics rewrites no file."
                raise OptionConflict(option="statistics", other_option="clear_history", expected=expected)
            return self._repair_statistics(spark)
        renewal = OldFileRewrite(self._store, session_to_rewrite(spark))
        times = Int96Rewrite(self._store, session_to_rewrite(spark))
        with several_commits():
            self._after(partial(forget_type_changes, renewal, CLEARING) if clear_history else renewal.run)
            self._after(times.run)
        files, size_bytes = renewal.files + times.files, renewal.size_bytes + times.size_bytes
        metrics = {"numRemovedFiles": files, "numRemovedBytes": size_bytes} if files else {}
        return TableChange(self, CLEARING if clear_history else REWRITE, self.version, metrics)

    def _repair_statistics(self, spark: SparkSession | None) -> TableChange[Self]:
        from widen.files.statistics_repair import REPAIR, StatisticsRepair

        repair = StatisticsRepair(session_to_rewrite(spark), adds_booleans=True)
        with several_commits():
            self._after(lambda: add_files_again(self._store, REPAIR, repair.find))
        metrics = {"numRepairedFiles": len(repair.repaired)} if repair.repaired else {}
        return TableChange(self, REPAIR, self.version, metrics)

    @check_arguments
    def optimize(
        self,
        where: str | None = None,
        *,
        target_bytes: int = TARGET_BYTES,
        zorder_by: Sequence[str] = (),
        dry_run: bool = False,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Write small files together into larger ones, without any change of rows, and return the `TableChange`.

        Small files of a partition become files of about the target size; files with more than 5 % deleted rows are
        written again without them. New files have the current types. Rows keep their row ids, streams and the change
        data feed see no change, and concurrent reads and writes are safe: a commit that conflicts keeps what it can,
        and the rest is planned again.

        Args:
            where: A condition on partition columns, in Spark SQL; by default the whole table.
            target_bytes: The size of the new files, in bytes.
            zorder_by: Columns to sort by, along a Z-order curve: then all files are written again, and files can be
                skipped by conditions on any of these columns.
            dry_run: Whether only to count the files; ``numRemovedFiles`` and ``numRemovedBytes`` tell them.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            InvalidOption: the condition uses other columns, the size is not positive, or a column cannot be sorted by.
            ColumnNotFound: a column to sort by does not exist.
            UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: Delta Spark's OPTIMIZE
        """
        from widen.changes.rewrite_files import OPTIMIZE, Compaction, CompactionRequest

        if target_bytes < 1:
            raise InvalidOption(option="target_bytes", value=target_bytes, expected="Must be an integer >= 1.")
        request = CompactionRequest(where, target_bytes, tuple(zorder_by))
        compaction = Compaction(session_to_rewrite(spark), self._store, request)
        if dry_run:
            tasks = compaction.plan(self.refresh()._snapshot)
            files, size_bytes = sum(task.files.num_rows for task in tasks), sum(task.size_bytes for task in tasks)
            metrics = {"numRemovedFiles": files, "numRemovedBytes": size_bytes} if files else {}
            return TableChange(self, OPTIMIZE, self.version, metrics)
        self._after(compaction.run)
        metrics = compaction.done.metrics if compaction.done.removes else {}
        return TableChange(self, OPTIMIZE, self.version, metrics)

    def _after(self, steps: Callable[[], Committed | Snapshot | None]) -> Self:
        """Run steps that commit on their own, and refresh this object, also if a step fails."""
        try:
            with several_commits():
                done = steps()
        except Exception:  # an error of the refresh must not hide the error of the step
            with suppress(WidenError):
                self.refresh()
            raise
        if done is None:
            return self.refresh()
        if isinstance(done, Snapshot):
            self._snapshot = done
            return self
        with after_commit(self.location, done.version):
            return self.refresh()

    @check_arguments
    def old_types(self, *, spark: SparkSession | None = None) -> list[OldType]:
        """Return the columns that have an old type in some files, with the number and the size of these files.

        Reads the footers of all files.

        Args:
            spark: The session that reads the footers if there are very many files.

        Raises:
            CorruptFile: a file is not valid Parquet.
            JobFailed: the Spark job failed.
            StorageError: the storage returned an error.
        """
        from widen.files.footers import find_old_files, summarize_old_types

        return summarize_old_types(find_old_files(session_to_rewrite(spark), self._snapshot, self._snapshot.files()))

    @check_arguments
    def restore(self, version: int | None = None, *, timestamp: datetime | str | None = None) -> TableChange[Self]:
        """Restore the schema, properties and rows of an earlier version in one commit, and return the `TableChange`.

        The table keeps every feature that either version supports. Older files are restored as they are, with their
        original types.

        Args:
            version: The version to restore.
            timestamp: Restores the newest version that is not later than this; a string is ISO 8601, in UTC by default.

        Raises:
            VersionNotFound: the version does not exist, all versions are newer than the timestamp, or the timestamp
                is after the newest version.
            OptionMissing: neither is given.
            InvalidOption: both are given, or the time cannot be read.
            FileMissing: files of that version no longer exist.
            AppendOnlyTable: files would be removed, and the table is append-only.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: there was a concurrent commit; nothing is visible.
            StorageError: the storage returned an error.

        Source: Delta Spark's RESTORE
        """
        if version is None and timestamp is None:
            raise OptionMissing(option="version or timestamp", expected="Give one of them.")
        if version is not None and timestamp is not None:
            raise OptionConflict(option="version", other_option="timestamp", expected="Give only one of them.")
        now = self.refresh()._snapshot
        if timestamp is not None:
            _ensure_not_after(now, timestamp)
        back = plan_restore(now, self._past(version, timestamp))
        parameters = {"version": version, "timestamp": None if timestamp is None else str(timestamp)}
        if back is None:
            return TableChange(self, RESTORE, self.version, {})
        self._at(
            commit(self._store, now, back.actions, RESTORE, parameters, reads=ReadSet.EVERYTHING, metrics=back.metrics)
        )
        return TableChange(self, RESTORE, self.version, back.metrics)


# RESTORE: plan the commit that restores an earlier version.
#
# Source: Delta Spark's RESTORE


_NAMED = 3
"""The number of missing files that an error names."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The commit that restores a version."""

    actions: tuple[Action, ...]
    metrics: dict[str, int]


def _ensure_not_after(now: Snapshot, timestamp: datetime | str) -> None:
    """Check that a time is not after the newest version, where it would restore nothing without a word.

    Raises:
        VersionNotFound: it is after it.

    Source: Delta Spark's RESTORE
    """
    wanted_ms = to_ms(timestamp)
    if wanted_ms > now.timestamp_ms:
        raise VersionNotFound(
            location=now.location,
            wanted=f"a version from {time_text(wanted_ms)}",
            reason=f"its newest version, {now.version}, is from {time_text(now.timestamp_ms)}",
            fix="Restore an earlier time or a version.",
        )


def plan_restore(now: Snapshot, then: Snapshot) -> RestorePlan | None:
    """Return the plan to restore a version, or None if it is the newest version.

    Raises:
        FileMissing: files of that version no longer exist; the error names some.

    Source: Delta Spark's RESTORE
    """
    if now.version == then.version:
        return None
    added, removed = files_only_in(then, now), files_only_in(now, then)
    if removed:
        ensure_removable(to_table_state(now), now.location)
    if missing := missing_files(now.store, added):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        verb = "is" if len(missing) == 1 else "are"
        reason = f"version {then.version} needs {', '.join(missing[:_NAMED])}{more}, which {verb} gone"
        raise FileMissing(location=now.location, reason=reason, fix="Restore a later version.")
    now_ms = current_ms()
    files = then.files()
    metrics = {
        "tableSizeAfterRestore": pc.sum(files["size_bytes"]).as_py() or 0,
        "numOfFilesAfterRestore": files.num_rows,
        "numRemovedFiles": len(removed),
        "numRestoredFiles": len(added),
        "removedFilesSize": sum(add.size for add in removed),
        "restoredFilesSize": sum(add.size for add in added),
    }
    head = restore_actions(to_table_state(now), to_table_state(then), now.domains, then.domains)
    removes = [to_remove(add, now_ms, data_change=True) for add in removed]
    loads = restore_loads(now, then, now.version + 1)
    return RestorePlan((*head, *loads, *removes, *added), metrics)


# DROP FEATURE: remove the traces of a feature, protect or truncate the history, then change the protocol.
#
# Steps that are committed before an error stay committed: the call can be repeated.
#
# Source: Delta Spark's DROP FEATURE, fast and with the history truncated


CLEARING = "CLEAR TYPE HISTORY"
"""The operation name of a commit that removes the recorded type changes and keeps the feature."""

BARRIERS = 3
"""The number of checkpoints before a downgrade: Delta Spark tries an earlier one if it cannot read the newest."""

ATTEMPTS = 100
"""The number of times that a step is planned, if concurrent commits conflict."""


@dataclass(frozen=True)
class FeatureRemoval:
    """The removal of one feature from one table.

    Args:
        is_fast: Whether the history may be kept, behind protected checkpoints.
        renewal: Rewrites files to the current types.
    """

    store: LogStore
    name: str
    truncates: bool
    is_fast: bool
    renewal: OldFileRewrite

    def run(self) -> Committed:
        """Drop the feature, and return the version that no longer has it."""
        if self.name == TYPE_WIDENING:
            forgotten = _commit_plan(self.store, lambda: open_snapshot(self.store), feature_removal.without_intent)
            if forgotten is not None:
                return forgotten
        row = self._row(open_snapshot(self.store))
        if row.name == PROTECTION:
            self._truncate_protected()
        had_traces = self._remove_traces(row)
        if not row.keeps_history:
            return self._finish(row, protects=False)
        if self.is_fast and not self.truncates:
            return self._finish_fast(row)
        write_barrier_commit(self.store)
        if had_traces:
            raise self._must_age(DropPendingRetention, open_snapshot(self.store))
        return self._finish(row, protects=False, ensure=lambda snapshot: self._ensure_aged(row, snapshot))

    def _row(self, snapshot: Snapshot) -> RemovableFeature:
        return feature_removal.find_removable_feature(to_table_state(snapshot), self.name, truncates=self.truncates)

    def _remove_traces(self, row: RemovableFeature) -> bool:
        """Disable the feature and remove what it stored; return whether older versions need it.

        Source: Delta Spark: properties of type widening alone do not have to expire.
        """
        from widen.changes.rewrite_files import Purge

        before = open_snapshot(self.store)
        if row.stored is Stored.COLUMN_NAMES:
            remove_column_mapping(self.store, self.renewal.session)
        purge = Purge(self.store, self.renewal.session)
        if row.stored in (Stored.OLD_TYPES, Stored.DELETION_VECTORS):
            (self.renewal if row.stored is Stored.OLD_TYPES else purge).start_spark()
        _commit_plan(
            self.store,
            lambda: open_snapshot(self.store),
            lambda state: feature_removal.disable_feature(state, row),
        )
        if row.stored is Stored.OLD_TYPES:
            forget_type_changes(self.renewal, feature_removal.OPERATION)
        elif row.stored is Stored.DELETION_VECTORS:
            purge.run()
            protect_vector_files(self.store)
        elif row.stored is Stored.ROW_IDS:
            remove_row_ids(self.store)
        return row.is_trace(before.metadata) or has_stored(row, before) or self.renewal.files > 0

    def _truncate_protected(self) -> None:
        snapshot = open_snapshot(self.store)
        if is_truncated(snapshot):
            return
        write_barrier_commit(self.store)
        clean_up(snapshot, duration_ms(snapshot.properties, TRUNCATE_HISTORY_RETENTION), MINUTE_MS)
        if not is_truncated(snapshot):
            version = protected_before(snapshot.configuration)
            retention = duration_text(snapshot.properties, TRUNCATE_HISTORY_RETENTION)
            raise ProtectedVersionsRemain(feature=self.name, version=version, retention=retention)

    def _finish_fast(self, row: RemovableFeature) -> Committed:
        for _ in range(BARRIERS):
            if not write_barrier_commit(self.store):
                raise CheckpointBarrierFailed(feature=self.name, version=open_snapshot(self.store).version)
        done = self._finish(row, protects=True)
        with after_commit(self.store.location, done.version):
            ensure_checkpoint(self.store, done.version)
        return done

    def _finish(
        self, row: RemovableFeature, *, protects: bool, ensure: Callable[[Snapshot], None] = lambda _: None
    ) -> Committed:
        """Change the protocol on top of a version that has no trace of the feature."""

        def newest() -> Snapshot:
            if row.stored is Stored.COLUMN_NAMES:
                remove_column_mapping(self.store, self.renewal.session)
            elif row.stored is Stored.OLD_TYPES:
                self.renewal.run()
            elif row.stored is Stored.ROW_IDS:
                remove_row_ids(self.store)
            snapshot = open_snapshot(self.store)
            self._row(snapshot)
            if has_stored(row, snapshot) or not row.is_clean(to_table_state(snapshot)):
                raise DropConflict(version=snapshot.version, location=self.store.location, feature=self.name)
            ensure(snapshot)
            return snapshot

        def plan(state: TableState) -> MetadataChange:
            return feature_removal.downgrade_protocol(state, row, truncates=self.truncates, protects=protects)

        done = _commit_plan(self.store, newest, plan)
        assert done is not None
        return done

    def _ensure_aged(self, row: RemovableFeature, snapshot: Snapshot) -> None:
        key, unit_ms = (TRUNCATE_HISTORY_RETENTION, MINUTE_MS) if self.truncates else (LOG_RETENTION, DAY_MS)
        clean_up(snapshot, duration_ms(snapshot.properties, key), unit_ms)
        if history_contains(snapshot, row):
            raise self._must_age(HistoryUsesFeature, snapshot)

    def _must_age(self, kind: type[RetentionNotExpired], snapshot: Snapshot) -> RetentionNotExpired:
        return kind(
            feature=self.name,
            retention_key=LOG_RETENTION,
            retention=duration_text(snapshot.properties, LOG_RETENTION),
            truncate_retention=duration_text(snapshot.properties, TRUNCATE_HISTORY_RETENTION),
        )


def forget_type_changes(renewal: OldFileRewrite, operation: str) -> Committed | None:
    """Rewrite all old files and remove the recorded type changes; return the commit, or None without type changes.

    Source: PROTOCOL.md#writer-requirements-for-type-widening (allowed if all data files have the table's types)
    """
    return _commit_plan(
        renewal.store, renewal.run, lambda state: feature_removal.without_type_changes(state, operation)
    )


def _commit_plan(
    store: LogStore, newest: Callable[[], Snapshot], plan: Callable[[TableState], MetadataChange | None]
) -> Committed | None:
    """Commit a plan for the newest version; plan again after a conflict."""
    for attempt in range(1, ATTEMPTS + 1):
        snapshot = newest()
        change = plan(to_table_state(snapshot))
        if change is None:
            return None
        result = commit(store, snapshot, change.actions, change.operation, change.parameters, max_attempts=1)
        if not isinstance(result, Conflicted) or attempt == ATTEMPTS:
            return result.or_raise()
    return None


# Checkpoint barriers: an empty commit with a checkpoint, so that readers never need the log before it.
#
# Source: Delta Spark's DROP FEATURE; protocol_rfcs/checkpoint-protection.md.


CHECKPOINT_ATTEMPTS = 3
_log = logging.getLogger(__name__)


def write_barrier_commit(store: LogStore) -> bool:
    """Make an empty commit and a checkpoint of it; return whether the checkpoint exists."""
    version = commit(store, open_snapshot(store), (), "Empty Commit", {}).or_raise().version
    return ensure_checkpoint(store, version)


def ensure_checkpoint(store: LogStore, version: int) -> bool:
    """Write a checkpoint of a version unless it exists, with retries; return whether it exists."""
    for _ in range(CHECKPOINT_ATTEMPTS):
        try:
            if _has_checkpoint(store, version):
                return True
            write_checkpoint(open_snapshot(store, version))
        except WidenError as error:
            _log.warning("Cannot write the checkpoint of version %d: %s", version, error)
    return _has_checkpoint(store, version)


def _has_checkpoint(store: LogStore, version: int) -> bool:
    checkpoint = find_segment(store, version).checkpoint
    return checkpoint is not None and checkpoint.version == version


def history_contains(snapshot: Snapshot, row: RemovableFeature) -> bool:
    """Return whether any readable version, up to this one, contains a trace of a feature.

    Reads the oldest checkpoint that allows all later versions to be reconstructed, and every existing commit, even
    commits before that checkpoint.

    Source: Delta Spark's DROP FEATURE … TRUNCATE HISTORY
    """
    store, listing = snapshot.store, list_log(snapshot.store)
    earliest = open_snapshot(store, earliest_reliable_checkpoint(listing) or min(listing.commits))
    if row.is_trace(earliest.metadata) or has_stored(row, earliest):
        return True
    paths = [file.entry.path for file in listing.versions if file.first <= snapshot.version]
    for path, data in zip(paths, store.read_many(paths), strict=True):
        for line in read_non_file_actions(path, data, METADATA):
            if line.meta_data is not None and row.is_trace(line.meta_data):
                return True
        if row.stored is Stored.DELETION_VECTORS and _names_vector(path, data):
            return True
    return False


def has_stored(row: RemovableFeature, snapshot: Snapshot) -> bool:
    """Return whether the files of a version, or its checkpoint, contain what only the feature reads."""
    if row.stored is Stored.DELETION_VECTORS:
        return bool(pc.any(snapshot.files()["deletion_vector"].is_valid()).as_py())
    if row.stored is Stored.ROW_IDS:
        return bool(pc.any(has_row_ids(snapshot.files())).as_py())
    if row.stored is Stored.SIDECARS and snapshot.segment.checkpoint is not None:
        return is_v2(snapshot.store, snapshot.segment.checkpoint)
    return False


def _names_vector(path: str, data: bytes) -> bool:
    if b'"deletionVector"' not in data:
        return False
    actions = ((line.add, line.remove) for line in decode_commit(path, data))
    return any(action is not None and action.deletion_vector is not None for pair in actions for action in pair)


TOMBSTONES = "Deletion Vector Tombstones"
"""The operation of the commit that protects deletion vectors of older versions, as Delta Spark has it."""


def protect_vector_files(store: LogStore) -> None:
    """Record the deletion vector files of older versions as removed, so that they are kept as long as these versions.

    A writer that does not know the feature does not see that older versions need them, and its vacuum would delete
    them at once.

    Source: Delta Spark's DROP FEATURE deletionVectors
    """

    def attempt(_: Conflicted | None) -> Committed | Conflicted | None:
        snapshot = open_snapshot(store)
        removes, now_ms = _vector_tombstones(snapshot), current_ms()
        actions = [Remove(path=path, data_change=False, deletion_timestamp=now_ms) for path in removes]
        if not actions:
            return None
        outcome = commit(store, snapshot, actions, TOMBSTONES, {})
        return outcome if isinstance(outcome, Conflicted) else outcome.or_raise()

    retry_conflicts(attempt)


def _vector_tombstones(snapshot: Snapshot) -> list[str]:
    """Return the paths of the deletion vector files that unexpired tombstones need and that have no tombstone."""
    since_ms, location = current_ms() - retention_ms(snapshot.properties), snapshot.location
    removed = [remove for remove in snapshot.removed_files() if (remove.deletion_timestamp or 0) > since_ms]
    vectors = [locate_vector(each.deletion_vector) for each in removed if each.deletion_vector is not None]
    known = {canonical_path(each.path, location) for each in removed if each.deletion_vector is None}
    needed = {canonical_path(each.path, location) for each in vectors if each is not None}
    # A clone names vectors of another table by their absolute paths: they are not ours to keep.
    return [percent_encode(path) for path in sorted(needed - known) if not (path.startswith("/") or "://" in path)]


# Vacuum: delete the files that no version needs.


class VacuumMixin(TableVersion):
    """The method that deletes unneeded files; it works without Spark."""

    @check_arguments
    def vacuum(
        self,
        retention_hours: float | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
        spark: SparkSession | None = None,
    ) -> Vacuumed[Self]:
        """Delete the files that no version within the retention needs, and return the `Vacuumed`.

        These are files that were removed longer ago than the retention, with their deletion vectors and change files,
        and files that killed jobs left behind. Files that are younger than the retention stay, as does everything
        outside of the table. Two commits, ``VACUUM START`` and ``VACUUM END``, record this in the history. Older
        versions and their changes can then no longer be read.

        Args:
            retention_hours: How long files are kept; by default ``delta.deletedFileRetentionDuration`` (7 days).
            dry_run: Whether only to list the files.
            force: Whether the retention may be shorter than the table's. No other job may then read or write the table.
            spark: A session, classic or Connect, whose executors list and delete the files of a very large table in an
                object store; by default this process does it.

        Raises:
            RetentionTooShort: the retention is shorter than the table's.
            InvalidOption: the retention is negative, or the table's retention is not an interval.
            UnsupportedFeature: the table has a feature that this version does not support.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptLog: the log is damaged.
            CorruptFile: the descriptor of a deletion vector is damaged.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error. Another vacuum deletes the rest.

        Source: Delta Spark's VACUUM
        """
        retention_ms = to_retention_ms(retention_hours)
        walk, delete = None, None
        if spark is not None:
            from widen.frames.vacuum_tasks import ExecutorVacuum
            from widen.spark.engine import find_session

            executors = ExecutorVacuum(find_session(spark, "tasks list and delete the files"), self._store)
            walk, delete = executors.walk, executors.delete

        def attempt(_: Conflicted | None) -> tuple[VacuumPlan, Committed] | Conflicted:
            return run_vacuum(plan_vacuum(self._store, retention_ms, force=force, walk=walk), delete)

        if dry_run:
            plan = plan_vacuum(self._store, retention_ms, force=force, walk=walk)
        else:
            with several_commits():
                plan, done = retry_conflicts(attempt)
            self._at(done)
        files = tuple(entry.path for entry in plan.files)
        return Vacuumed(self, self.version, files, plan.size_bytes, to_datetime(plan.cutoff_ms), is_dry_run=dry_run)

    @check_arguments
    def forget(
        self, keys: Sequence[Mapping[str, object]] = (), *, older_than: str | None = None, dry_run: bool = False
    ) -> TableChange[Self]:
        """Remove deleted keys from what the table remembers of them, and return the `TableChange`.

        A load by key remembers the keys that it has deleted, so that a late older record does not bring their rows
        back. A late record of a forgotten key inserts it again. The files that held the keys are deleted at once.

        Args:
            keys: The keys, each with the values of its fields, e.g. ``[{"id": 7}]``.
            older_than: Instead of keys, how long ago the table must have deleted them at least, e.g. ``90d``, ``12h``,
                ``2w`` or ``90 days``.
            dry_run: Whether only to count them.

        Raises:
            InvalidOption: the table is not loaded by key, a field is missing, or a value has another type; the age
                is not one; or the table keeps every version of its rows, and an age is given or a key has versions.
            ContentionError: too many conflicts, or the outcome of the commit is unknown.
            CorruptLog: the list of deleted keys is missing or damaged.
            StorageError: the storage returned an error.
        """
        from widen.changes import deleted_keys, forgotten_keys
        from widen.evolution.key_rules import PROPERTY

        def attempt(_: Conflicted | None) -> tuple[forgotten_keys.ForgottenKeys, Committed | None] | Conflicted:
            snapshot = self.refresh()._snapshot
            rows = forgotten_keys.KeyedRows(
                snapshot.schema, partial(_open_files, snapshot), partial(_read_rows, snapshot)
            )
            rule = forgotten_keys.ForgetRule.of(rows, snapshot.properties.get(PROPERTY), keys, older_than)
            lists = deleted_keys.KeyLists.of(self._store, snapshot)
            if dry_run:
                return forgotten_keys.write_without(lists, rule, 0, None), None
            with StagedFiles() as staged:
                done = forgotten_keys.write_without(lists, rule, snapshot.version + 1, staged)
                if done.head is None:
                    return done, None
                actions = [Txn(DELETED_KEYS_APP_ID, done.head, current_ms())]
                operation, metrics = forgotten_keys.OPERATION, done.metrics
                outcome = commit(self._store, snapshot, actions, operation, {}, metrics=metrics, staged=staged)
                return outcome if isinstance(outcome, Conflicted) else (done, outcome.or_raise())

        done, committed = retry_conflicts(attempt)
        if committed is not None:
            self._at(committed)
            with after_commit(self.location, self.version):
                forgotten_keys.delete_old(self._store, done)
        return TableChange(self, forgotten_keys.OPERATION, self.version, done.metrics)


def _open_files(snapshot: Snapshot) -> tuple[Callable[[StructType], FileScan], Sequence[Add]]:
    from widen.changes.keyed_files import DeltaFiles
    from widen.files.data_reader import plan_local_scan

    plan_local_scan(snapshot)
    return DeltaFiles(snapshot, snapshot).scan, to_adds(snapshot.files())


def _read_rows(snapshot: Snapshot) -> DataFrame:
    from widen.frames.scan import read_snapshot
    from widen.spark.engine import find_session

    return read_snapshot(find_session(None, "it reads the keys of the table"), snapshot.store, snapshot)


# Mirror a Delta table as an Iceberg table.


class MirrorMixin(TableVersion):
    """The method that mirrors the table."""

    @check_arguments
    def mirror(self, *, catalog: CatalogSource, identifier: str) -> Mirrored:
        """Make an Iceberg table show this version, from the log alone: no data file is opened, written or moved.

        The Iceberg table is created if it is missing; later calls add and remove only the files that have changed. It
        is for reading: another writer of it would not change the Delta table.

        Args:
            catalog: The name of a catalog in PyIceberg's configuration, a path that ends in ``.db`` for an embedded
                catalog, or an open PyIceberg catalog.
            identifier: The namespace and the name of the Iceberg table, e.g. ``shop.orders``.

        Raises:
            MirrorRefused: the table lacks IcebergCompatV1 and V2, or has deletion vectors. Nothing is written.
            InvalidOption: the Iceberg table is not its mirror. Nothing is written.
            UnsupportedColumnType: Iceberg does not have the type of a column. Nothing is written.
            IcebergUnavailable: PyIceberg is not installed.
            ContentionError: another writer changed the mirror first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: PROTOCOL.md#iceberg-compatibility-v2
        """
        from widen.iceberg.catalog import to_table_name
        from widen.iceberg.mirror import mirror_version

        return mirror_version(self._snapshot, to_table_name(identifier, catalog))
