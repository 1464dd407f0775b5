"""The properties, the features and the files of a table: set, add and drop, rewrite, restore."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

from widen.errors import InvalidOption, WidenError
from widen.log.read.snapshot import Snapshot
from widen.log.write.commit import Committed, ReadSet, after_commit, commit
from widen.model.argument_types import check_arguments
from widen.spark.delta_settings import has_fast_drop
from widen.spark.maintain.rewrite_files import REWRITE
from widen.spark.maintain.rewrite_old_files import OldFileRewrite
from widen.spark.parquet.old_file_search import find_old_files
from widen.spark.parquet.old_type_files import OldType, summarize_old_types
from widen.spark.session import find_session
from widen.spark.spark_types import SparkSession
from widen.table.drop_feature import CLEARING, FeatureRemoval, without_type_changes
from widen.table.property_changes import PropertyChangesMixin
from widen.table.restore import plan_restore
from widen.table.results import TableChange
from widen.table.table_version import Self

RESTORE = "RESTORE"


class MaintenanceMixin(PropertyChangesMixin):
    """A table whose properties and features are kept."""

    @check_arguments
    def drop_feature(self, name: str, *, truncate_history: bool = False, spark: SparkSession | None = None) -> Self:
        """Take a feature out of the protocol, after all that makes use of it, and return the table without it.

        For type widening the property goes, whatever it says, files that hold an old type are written anew, and the
        history of types goes. Older versions then either stay, behind checkpoints that are protected from now on
        (``checkpointProtection``), or must have expired: with ``truncate_history`` this takes two calls, more than
        ``delta.dropFeatureTruncateHistory.retentionDuration`` (24 hours) apart. What is done before an error stays
        done; nothing of it has to be taken back.

        Args:
            name: Of the feature, e.g. ``typeWidening`` or ``typeWidening-preview``; each is dropped by itself.
            truncate_history: Whether versions that use the feature are to be deleted instead of being protected.
            spark: The session, classic or Connect; by default the active one, else a local one. It is only asked
                where files are written, or very many looked at.

        Raises:
            FeatureDropRefused: one of its kinds: the table does not have the feature, or it cannot be dropped so.
            UnsupportedFeatureForWrite: the table has another feature that this version cannot obey.
            DropPendingRetention: the traces are gone from the newest version; call again when its history has expired.
            HistoryUsesFeature: versions that have not expired use the feature.
            ProtectedVersionsRemain: versions whose checkpoints are protected have not expired.
            CheckpointBarrierFailed: a checkpoint that must be there could not be written.
            DropConflict: somebody began to use the feature again.
            ContentionError: too many races were lost, or nobody knows how one ended.
            CorruptFile: a file that must be looked at cannot be read.
            JobFailed: Spark could not finish a job.
            StorageError: the store refused.

        Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Spark's DROP FEATURE
        """
        renewal = OldFileRewrite(self._store, _session(spark))
        is_fast = has_fast_drop(spark)
        return self._after(FeatureRemoval(self._store, name, truncate_history, is_fast, renewal).run)

    @check_arguments
    def rewrite(self, *, clear_history: bool = False, spark: SparkSession | None = None) -> TableChange[Self]:
        """Bring the files that still hold an old type to the current ones, and return the table.

        No other file is touched, and others may go on reading and writing. The history of types stays unless it is
        asked to go: its removal is a change of the schema, which makes commits fail that began before it.

        Args:
            clear_history: Whether the history of types goes, once no file needs it; old versions keep theirs.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            UnsupportedTypeChange: the schema records a change that is not in the matrix.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: too many races were lost in a row, or nobody knows how one ended.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: Spark could not finish a job.
            StorageError: the store refused.

        Source: PROTOCOL.md#writer-requirements-for-type-widening (the history may go if all files have the types)
        """
        renewal = OldFileRewrite(self._store, _session(spark))
        if clear_history:
            self._after(partial(without_type_changes, renewal, CLEARING))
        else:
            self._after(renewal.run)
        metrics = {"numRemovedFiles": renewal.files, "numRemovedBytes": renewal.size_bytes}
        return TableChange(self, CLEARING if clear_history else REWRITE, self.version, metrics if renewal.files else {})

    def _after(self, steps: Callable[[], Committed | Snapshot | None]) -> Self:
        """Take steps, each with a commit of its own, and go to the newest version, also if one of them fails."""
        try:
            done = steps()
        except Exception:  # whatever ended the steps is what the caller has to know
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
        """Return which columns still stand in which old type, in how many files of how many bytes.

        The footers of all files are looked into.

        Args:
            spark: The session, if there are so many files that the executors have to look.

        Raises:
            CorruptFile: a file is no Parquet.
            JobFailed: Spark could not finish the job.
            StorageError: the store refused.
        """
        return summarize_old_types(find_old_files(_session(spark), self._snapshot, self._snapshot.files()))

    @check_arguments
    def restore(self, version: int | None = None, *, timestamp: datetime | str | None = None) -> TableChange[Self]:
        """Go back to an earlier version in one commit: its schema, its properties and its rows.

        Features that the table has got since stay supported, and so do those that it has dropped. Older files come
        back as they are, in the types of their time.

        Args:
            version: The version to go back to.
            timestamp: The newest version not later than that; a text is ISO, in UTC unless it says otherwise.

        Raises:
            VersionNotFound: there is no such version, or none so early.
            InvalidOption: neither or both are given, or the time cannot be read.
            FileMissing: files of that version are gone from the store.
            AppendOnlyTable: files would have to go, and the table is append-only.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody else has committed meanwhile; nothing is visible.
            StorageError: the store refused.

        Source: Delta Spark's RESTORE
        """
        if (version is None) == (timestamp is None):
            expected = "Give one of them."
            raise InvalidOption(option="version and timestamp", value=version, expected=expected)
        now = self.refresh()._snapshot
        back = plan_restore(now, self._past(version, timestamp))
        said = {"version": version, "timestamp": None if timestamp is None else str(timestamp)}
        if back is None:
            return TableChange(self, RESTORE, self.version, {})
        self._at(commit(self._store, now, back.actions, RESTORE, said, reads=ReadSet.EVERYTHING, metrics=back.metrics))
        return TableChange(self, RESTORE, self.version, back.metrics)


def _session(spark: SparkSession | None) -> Callable[[], SparkSession]:
    return partial(find_session, spark)
