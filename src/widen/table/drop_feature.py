"""DROP FEATURE: remove the traces of a feature, protect or truncate the history, then change the protocol.

Steps that are committed before an error stay committed: the call can be repeated.

Source: Delta Spark's DROP FEATURE, fast and with the history truncated
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from widen.errors import (
    CheckpointBarrierFailed,
    DropConflict,
    DropPendingRetention,
    HistoryUsesFeature,
    ProtectedVersionsRemain,
    RetentionNotExpired,
)
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_barrier import ensure_checkpoint, history_contains, write_barrier_commit
from widen.log.write.commit import Committed, Conflicted, StagedFiles, after_commit, commit
from widen.log.write.log_cleanup import DAY_MS, MINUTE_MS, clean_up, is_truncated
from widen.planning.alter import feature_removal
from widen.planning.alter.feature_removal import RemovableFeature
from widen.planning.table.table_state import MetadataChange, TableState, to_table_state
from widen.protocol.duration import LOG_RETENTION, TRUNCATE_HISTORY_RETENTION, duration_ms, duration_text
from widen.protocol.table_features import PROTECTION, protected_before
from widen.spark.maintain.compact_files import live_rows
from widen.spark.maintain.rewrite_files import RewrittenFiles, rewrite_files
from widen.spark.maintain.rewrite_old_files import MOST_CONFLICTS, OldFileRewrite
from widen.spark.spark_types import SparkSession

UNMAPPING = "REMOVE COLUMN MAPPING"
"""The operation name of the commit that ends column mapping, as Delta Spark has it."""

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
        """Drop the feature, and return the version that no longer has it.

        Raises:
            FeatureDropRefused: the table does not have the feature, or it cannot be dropped this way.
            UnsupportedFeatureForWrite: the table has another feature that this version does not support for
                writing.
            DropPendingRetention: the newest version no longer uses the feature, but the history has not expired.
            HistoryUsesFeature: versions that use the feature have not expired.
            ProtectedVersionsRemain: versions whose checkpoints are protected have not expired.
            CheckpointBarrierFailed: a checkpoint could not be written.
            DropConflict: a concurrent commit used the feature again.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
        """
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
        """Unset the properties, rewrite old files and remove recorded type changes; return whether there were any.

        Source: Delta Spark: properties alone do not have to expire.
        """
        is_unmapped = row.has_mapping and remove_column_mapping(self.store, self.renewal.session) is not None
        _commit_plan(
            self.store,
            lambda: open_snapshot(self.store),
            lambda state: feature_removal.unset_feature_properties(state, row),
        )
        if row.has_mapping or not row.has_types:
            return is_unmapped
        stripped = without_type_changes(self.renewal, feature_removal.OPERATION)
        return stripped is not None or self.renewal.files > 0

    def _truncate_protected(self) -> None:
        snapshot = open_snapshot(self.store)
        if is_truncated(snapshot):
            return
        write_barrier_commit(self.store)
        clean_up(snapshot, duration_ms(snapshot.properties, TRUNCATE_HISTORY_RETENTION), MINUTE_MS)
        if not is_truncated(snapshot):
            version = protected_before(snapshot.protocol, snapshot.properties)
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
            if row.has_mapping:
                remove_column_mapping(self.store, self.renewal.session)
            snapshot = self.renewal.run() if row.has_types else open_snapshot(self.store)
            self._row(snapshot)
            if not row.is_clean(to_table_state(snapshot)):
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
        if history_contains(snapshot, row.is_trace):
            raise self._must_age(HistoryUsesFeature, snapshot)

    def _must_age(self, kind: type[RetentionNotExpired], snapshot: Snapshot) -> RetentionNotExpired:
        return kind(
            feature=self.name,
            retention_key=LOG_RETENTION,
            retention=duration_text(snapshot.properties, LOG_RETENTION),
            truncate_retention=duration_text(snapshot.properties, TRUNCATE_HISTORY_RETENTION),
        )


def remove_column_mapping(
    store: LogStore, session: Callable[[], SparkSession], *, explicit: bool = False
) -> Committed | None:
    """End column mapping in one commit; return it, or None if the table does not have column mapping.

    All files are rewritten with the logical names of the columns. If another commit comes first, all is done again: the
    files that it added have the physical names.

    Args:
        explicit: Whether the mode is set to none, instead of not at all.

    Raises:
        InvalidColumnName: a column has a name that files without column mapping cannot have.
        FeatureStillNeeded: Iceberg compatibility is enabled.
        ContentionError: too many conflicts, or the outcome of a commit is unknown.

    Source: Delta Spark's ALTER TABLE SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')
    """
    for attempt in range(1, MOST_CONFLICTS + 1):
        snapshot = open_snapshot(store)
        actions, files = (
            feature_removal.plan_mapping_removal(to_table_state(snapshot), explicit=explicit),
            snapshot.files(),
        )
        if not actions:
            return None
        with StagedFiles() as staged:
            rewrite = RewrittenFiles((), ())
            if files.num_rows:
                rows = sum(live_rows(session(), snapshot, files))
                rewrite = rewrite_files(session(), snapshot, files, rows, unmapped=True)
                staged.add_files(store, rewrite.adds)
            whole = [*actions, *rewrite.actions]
            numbers = {name: rewrite.metrics[name] for name in ("numAddedFiles", "numRemovedFiles")}
            result = commit(store, snapshot, whole, UNMAPPING, {}, metrics=numbers, max_attempts=1, staged=staged)
        if not isinstance(result, Conflicted) or attempt == MOST_CONFLICTS:
            return result.or_raise()
    return None


def without_type_changes(renewal: OldFileRewrite, operation: str) -> Committed | None:
    """Rewrite all old files and remove the recorded type changes; return the commit, or None if there were none.

    Raises:
        ContentionError: too many conflicts, or the outcome of a commit is unknown.

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
