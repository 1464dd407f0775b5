"""The rows of a table that are there already: update, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from widen.errors import AppendOnlyTable, WidenError
from widen.log.commit import Conflicted, commit
from widen.protocol.feature import ensure_writable, is_enabled
from widen.spark import edit
from widen.spark.condition import Expression, to_text
from widen.spark.ground import Outcome
from widen.spark.metric import delete_metrics, update_metrics
from widen.spark.schema import SparkSession
from widen.table.opened import Opened

if TYPE_CHECKING:
    from typing_extensions import Self


class Changes(Opened):
    """A table whose rows are changed."""

    def delete(self, spark: SparkSession, where: Expression | None = None) -> Self:
        """Delete rows in one commit, and return the table at its new version; if no row matches there is no commit.

        Whole files go where the condition looks at partition columns only. Otherwise the rows are marked in deletion
        vectors where the table has enabled them, and their files are written anew where it has not.

        Args:
            spark: The session.
            where: Which rows, in Spark SQL or as a column; all of them if it is None. A text skips files by their
                statistics, and lets writers go on who add other rows meanwhile.

        Raises:
            AppendOnlyTable: the table promises never to lose a row.
            NotDeterministic: the condition may say something else the next time.
            ConditionRefused: the condition cannot be used.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might match, or removed what was read; nothing is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: Delta Lake's DELETE; PROTOCOL.md#deletion-vectors
        """
        self._ensure_changeable("DELETE")
        outcome = edit.delete(spark, self._snapshot, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
        return self._commit_change(outcome, "DELETE", parameters, delete_metrics)

    def update(
        self, spark: SparkSession, assignments: Mapping[str, Expression], where: Expression | None = None
    ) -> Self:
        """Update rows in one commit, and return the table at its new version; if no row matches there is no commit.

        No type changes: a value that is out of range for its column fails the update.

        Args:
            spark: The session.
            assignments: The new values, in Spark SQL or as columns, by the paths of their columns, e.g.
                ``{"amount": "amount * 2", "address.zip": "'9000'"}``. All of them see the row as it was before.
            where: Which rows; all of them if it is None.

        Raises:
            AppendOnlyTable: the table promises never to lose a row.
            ColumnNotFound: there is no such column.
            InvalidPath: a path cannot be read.
            AssignmentConflict: two assignments go to the same column.
            ItemAssignmentRefused: a path leads into an array or a map.
            SchemaMismatch: a value does not fit its column.
            NotDeterministic: the condition may say something else the next time.
            ConditionRefused: the condition or a value cannot be used.
            RowRefused: a row would be one that the table may not hold; nothing is visible.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might match, or removed what was read; nothing is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: Delta Lake's UPDATE
        """
        self._ensure_changeable("UPDATE")
        outcome = edit.update(spark, self._snapshot, assignments, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
        return self._commit_change(outcome, "UPDATE", parameters, update_metrics)

    def _ensure_changeable(self, operation: str) -> None:
        """Go to the newest version, and check before any job runs that its rows may be changed."""
        state = self.refresh()._state
        ensure_writable(state.protocol, self.location)
        if is_enabled(state.protocol, state.properties, "appendOnly"):
            raise AppendOnlyTable(location=self.location, operation=operation)

    def _commit_change(
        self,
        outcome: Outcome | None,
        operation: str,
        parameters: Mapping[str, object],
        metrics: Callable[[Outcome], dict[str, int]],
    ) -> Self:
        if outcome is None:
            return self
        said, reads = metrics(outcome), outcome.reads
        try:
            committed = commit(
                self._store, self._snapshot, outcome.actions, operation, parameters, reads=reads, metrics=said
            )
        except WidenError:
            outcome.discard(self._store)
            raise
        if isinstance(committed, Conflicted):
            outcome.discard(self._store)
        return self._at(committed)
