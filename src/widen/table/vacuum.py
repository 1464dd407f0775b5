"""Vacuum: delete the files that no version needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widen.log.write.commit import Committed, Conflicted, retry_conflicts, several_commits
from widen.log.write.vacuum import VacuumPlan, plan_vacuum, run_vacuum, to_retention_ms
from widen.model.argument_types import check_arguments
from widen.table import lazy_spark
from widen.table.open_table import Self
from widen.table.results import Vacuumed, to_datetime
from widen.table.table_version import TableVersion

if TYPE_CHECKING:
    from widen.spark.spark_types import SparkSession
else:
    SparkSession = Any


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
        and files that killed jobs left behind. Files that are younger than the retention stay, and so does everything
        outside of the table. Two commits, ``VACUUM START`` and ``VACUUM END``, record this in the history. Older
        versions and their changes can then no longer be read.

        Args:
            retention_hours: How long files are kept; by default ``delta.deletedFileRetentionDuration`` (7 days).
            dry_run: Whether only to list the files.
            force: Whether the retention may be shorter than that of the table. No other job may then read or write the
                table.
            spark: A session, classic or Connect, whose executors list and delete the files of a very large table in an
                object store; by default this process does it.

        Raises:
            RetentionTooShort: the retention is shorter than that of the table.
            InvalidOption: the retention is negative, or that of the table is not an interval.
            UnsupportedFeature: the table has a feature that this version does not support.
            ContentionError: too many conflicts, or the outcome of a commit is unknown.
            CorruptLog: the log is damaged.
            CorruptFile: the descriptor of a deletion vector is damaged.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error. Another vacuum deletes the rest.

        Source: Delta Spark's VACUUM
        """
        retention_ms = to_retention_ms(retention_hours)
        executors = None if spark is None else lazy_spark.ExecutorVacuum(spark, self._store)
        walk, delete = (executors.walk, executors.delete) if executors else (None, None)

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
