"""The rows of a table that are there already: delete, update, merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from widen.errors import AppendOnlyTable
from widen.log.commit import Conflicted, commit
from widen.planning.capability import parse_automatic_widening
from widen.planning.growth import leeway_of
from widen.protocol.action import Metadata
from widen.protocol.feature import ensure_writable, is_enabled
from widen.spark import edit
from widen.spark.clause import Clause, Side, ordered
from widen.spark.condition import Expression, to_text
from widen.spark.decision import Kind
from widen.spark.ground import Outcome
from widen.spark.merge import merge_rows
from widen.spark.metric import delete_metrics, merge_metrics, update_metrics
from widen.spark.resolve import Sides, resolve_merge
from widen.spark.schema import DataFrame, SparkSession
from widen.spark.setting import automatic_widening, merges_schemas
from widen.table.merge import MergeBuilder
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

    def merge(
        self,
        source: DataFrame,
        on: Expression,
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        merge_schema: bool | None = None,
        widening: str | None = None,
    ) -> MergeBuilder[Self]:
        """Begin a merge of rows into the table; say what to do with them by its clauses, then call ``execute``.

        Args:
            source: The rows.
            on: When one of them matches a row of the table, in Spark SQL or as a column.
            source_alias: What the source is called in expressions.
            target_alias: What the table is called there.
            merge_schema: Whether the table gets new columns of the source that ``…_all`` clauses take and, where type
                widening is enabled, wider types for columns that are assigned a column of the source; by default what
                `spark.databricks.delta.schema.autoMerge.enabled` says. Other values are cast, and fail if they are out
                of range.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; by default what
                `spark.databricks.delta.typeWidening.allowAutomaticWidening` says.

        Source: Delta Lake's MERGE

        Example:
            table.merge(changes, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
        """
        return MergeBuilder(
            partial(
                self._merge,
                Sides(source, on, source_alias, target_alias),
                merges=merges_schemas(source.sparkSession) if merge_schema is None else merge_schema,
                mode=automatic_widening(source.sparkSession) if widening is None else widening,
            )
        )

    def _merge(self, sides: Sides, clauses: tuple[Clause, ...], *, merges: bool, mode: str) -> Self:
        numbered, widening = ordered(clauses), parse_automatic_widening(mode)
        self._ensure_changeable("MERGE", loses_rows=any(clause.kind is not Kind.INSERT for clause in numbered))
        leeway = leeway_of(self._state, merge_schema=merges, widening=widening, cast=True)
        merge, growth = resolve_merge(self._state, sides, numbered, leeway)
        outcome = merge_rows(self._snapshot, growth, merge)
        told = {side: [clause.to_value() for clause in numbered if clause.side is side] for side in Side}
        parameters = {
            "predicate": [to_text(sides.on)],
            "matchedPredicates": told[Side.MATCHED],
            "notMatchedPredicates": told[Side.NOT_MATCHED],
            "notMatchedBySourcePredicates": told[Side.NOT_MATCHED_BY_SOURCE],
        }
        metrics = partial(merge_metrics, clauses=numbered)
        return self._commit_change(outcome, "MERGE", parameters, metrics, growth.metadata)

    def _ensure_changeable(self, operation: str, *, loses_rows: bool = True) -> None:
        """Go to the newest version, and check before any job runs that its rows may be changed."""
        state = self.refresh()._state
        ensure_writable(state.protocol, self.location)
        if loses_rows and is_enabled(state.protocol, state.properties, "appendOnly"):
            raise AppendOnlyTable(location=self.location, operation=operation)

    def _commit_change(
        self,
        outcome: Outcome | None,
        operation: str,
        parameters: Mapping[str, object],
        metrics: Callable[[Outcome], dict[str, int]],
        metadata: Metadata | None = None,
    ) -> Self:
        """Commit a change, with the metadata that it is made for if they are new; what was written goes if it fails."""
        if outcome is None:
            return self
        store, actions = self._store, outcome.actions
        if metadata is not None and metadata != self.metadata:
            actions = [metadata, *actions]
        said, reads = metrics(outcome), outcome.reads
        with ExitStack() as undo:
            undo.callback(outcome.discard, store)
            committed = commit(store, self._snapshot, actions, operation, parameters, reads=reads, metrics=said)
            if not isinstance(committed, Conflicted):
                undo.pop_all()
        return self._at(committed)
