"""Drop features, rewrite old files, compact small files, restore earlier versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from widen.errors import InvalidOption, OptionMissing, WidenError
from widen.log.read.snapshot import Snapshot
from widen.log.write.commit import Committed, ReadSet, after_commit, commit, several_commits
from widen.model.argument_types import check_arguments
from widen.spark.delta_settings import FAST_DROP, is_on
from widen.spark.maintain.compact_files import OPTIMIZE, Compaction, CompactionRequest
from widen.spark.maintain.compaction_plan import TARGET_BYTES
from widen.spark.maintain.rewrite_files import REWRITE
from widen.spark.maintain.rewrite_old_files import OldFileRewrite
from widen.spark.parquet.old_type_files import OldType, find_old_files, summarize_old_types
from widen.spark.session import find_session
from widen.spark.spark_types import SparkSession
from widen.table.drop_feature import CLEARING, FeatureRemoval, without_type_changes
from widen.table.open_table import Self
from widen.table.property_changes import PropertyChangesMixin
from widen.table.restore import plan_restore
from widen.table.results import TableChange

RESTORE = "RESTORE"


class MaintenanceMixin(PropertyChangesMixin):
    """Methods that maintain the files, the features and the version of a table."""

    @check_arguments
    def drop_feature(self, name: str, *, truncate_history: bool = False, spark: SparkSession | None = None) -> Self:
        """Remove the traces of a feature and then the feature from the protocol, and return the table.

        For type widening this unsets the property, rewrites files that have an old type, and removes the recorded type
        changes. Older versions then either stay, behind protected checkpoints (``checkpointProtection``), or must have
        expired: with ``truncate_history`` this takes two calls, more than
        ``delta.dropFeatureTruncateHistory.retentionDuration`` (24 hours) apart. Steps that are committed before an
        error stay committed, and the call can be repeated.

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
        renewal = OldFileRewrite(self._store, _session(spark))
        is_fast = is_on(spark, FAST_DROP)
        return self._after(FeatureRemoval(self._store, name, truncate_history, is_fast, renewal).run)

    @check_arguments
    def rewrite(self, *, clear_history: bool = False, spark: SparkSession | None = None) -> TableChange[Self]:
        """Rewrite the files that have an old type to the current types, and return the `TableChange`.

        Other files stay as they are, and concurrent reads and writes are safe. By default the recorded type changes
        stay: to remove them changes the schema, and concurrent commits that began before it fail.

        Args:
            clear_history: Whether to remove the recorded type changes from the schema after the rewrite; older versions
                keep theirs.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#writer-requirements-for-type-widening (type changes may be removed if all files
            have the current types)
        """
        renewal = OldFileRewrite(self._store, _session(spark))
        if clear_history:
            self._after(partial(without_type_changes, renewal, CLEARING))
        else:
            self._after(renewal.run)
        metrics = {"numRemovedFiles": renewal.files, "numRemovedBytes": renewal.size_bytes}
        return TableChange(self, CLEARING if clear_history else REWRITE, self.version, metrics if renewal.files else {})

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
        if target_bytes < 1:
            raise InvalidOption(option="target_bytes", value=target_bytes, expected="Must be an integer >= 1.")
        request = CompactionRequest(where, target_bytes, tuple(zorder_by))
        compaction = Compaction(_session(spark), self._store, request)
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
        return summarize_old_types(find_old_files(_session(spark), self._snapshot, self._snapshot.files()))

    @check_arguments
    def restore(self, version: int | None = None, *, timestamp: datetime | str | None = None) -> TableChange[Self]:
        """Restore the schema, properties and rows of an earlier version in one commit, and return the `TableChange`.

        The table keeps every feature that either version supports. Older files are restored as they are, with their
        original types.

        Args:
            version: The version to restore.
            timestamp: Restores the newest version that is not later than this; a string is ISO 8601, in UTC by default.

        Raises:
            VersionNotFound: the version does not exist, or all versions are newer than the timestamp.
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
            given = (version, str(timestamp))
            raise InvalidOption(option="version and timestamp", value=given, expected="Give only one of them.")
        now = self.refresh()._snapshot
        back = plan_restore(now, self._past(version, timestamp))
        parameters = {"version": version, "timestamp": None if timestamp is None else str(timestamp)}
        if back is None:
            return TableChange(self, RESTORE, self.version, {})
        self._at(
            commit(self._store, now, back.actions, RESTORE, parameters, reads=ReadSet.EVERYTHING, metrics=back.metrics)
        )
        return TableChange(self, RESTORE, self.version, back.metrics)


def _session(spark: SparkSession | None) -> Callable[[], SparkSession]:
    return partial(find_session, spark)
