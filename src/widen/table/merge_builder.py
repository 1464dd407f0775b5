"""The builder for MERGE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression

_T = TypeVar("_T")


@dataclass(frozen=True)
class MergeBuilder(Generic[_T]):
    """A merge to which clauses are added one by one; nothing runs before `execute`.

    There are three kinds of clauses: matched, not matched, and not matched by source. For each row, the first clause of
    its kind whose condition is true applies; a clause without a condition applies to all rows of its kind. Expressions
    are strings in Spark SQL or columns; they refer to both sides by alias, e.g. ``s.amount + t.amount``.

    Source: Delta Lake's MERGE
    """

    run: Callable[[tuple[MergeClause, ...]], _T]
    clauses: tuple[MergeClause, ...] = ()

    def when_matched_update(
        self, assignments: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Update rows of the table that a row of the source matches."""
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition, assignments))

    def when_matched_update_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Update matched rows from all columns of the source; columns that it lacks stay as they are."""
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition))

    def when_matched_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that a row of the source matches."""
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.DELETE, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row of the table.

        Args:
            values: The values by column; other columns get their default, their generated value, or null.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition, values))

    def when_not_matched_insert_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row of the table, with all their columns."""
        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition))

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Update rows of the table that no row of the source matches.

        Args:
            assignments: The new values by column path; they can refer to the table only.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.UPDATE, condition, assignments))

    def when_not_matched_by_source_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that no row of the source matches."""
        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.DELETE, condition))

    def execute(self) -> _T:
        """Merge in one commit, and return the `TableChange`; if no row changes there is no commit.

        Raises:
            MergeWithoutClause: the merge has no clause.
            UnreachableClause: a clause follows one of its kind that applies to every row.
            AmbiguousMerge: several rows of the source match one row of the table; nothing is visible.
            AppendOnlyTable: a clause updates or deletes rows, and the table is append-only.
            SchemaMismatch: a value does not fit its column, or the source lacks a column.
            ColumnRefused: a column does not exist, or cannot be added or widened.
            ChangeRefused: a condition or an assignment cannot be used.
            RowRefused: a row violates a column rule or a constraint; nothing is visible.
            FeatureRequired: a new type requires a feature that the table does not support.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: a concurrent commit added rows that might match, or changed files that were read; nothing
                is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the storage returned an error; nothing is visible.
        """
        return self.run(self.clauses)

    def _with(self, clause: MergeClause) -> MergeBuilder[_T]:
        return replace(self, clauses=(*self.clauses, clause))
