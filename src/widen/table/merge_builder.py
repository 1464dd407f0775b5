"""Merges of a source into a table, put together clause by clause."""

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
    """A merge that gets its clauses one by one; nothing happens before `execute`.

    Of the clauses for rows that match, the first one whose condition is true takes the row, and so it is with those for
    rows of the source that match nothing, and with those for rows of the table that nothing matches. Expressions are
    texts in Spark SQL or columns; both sides are named by their aliases, e.g. ``s.amount + t.amount``.

    Args:
        run: What `execute` calls with the clauses.
        clauses: Those given so far.

    Source: Delta Lake's MERGE
    """

    run: Callable[[tuple[MergeClause, ...]], _T]
    clauses: tuple[MergeClause, ...] = ()

    def when_matched_update(
        self, assignments: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Update rows of the table that a row of the source matches.

        Args:
            assignments: The new values by the paths of their columns.
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition, assignments))

    def when_matched_update_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Update rows that match with every column of the source; what it lacks stays.

        Args:
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition))

    def when_matched_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that a row of the source matches.

        Args:
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.DELETE, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row of the table.

        Args:
            values: The values by column; others get their default, what their expression makes, or null.
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition, values))

    def when_not_matched_insert_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row, with all their columns.

        Args:
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition))

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Update rows of the table that no row of the source matches.

        Args:
            assignments: The new values by the paths of their columns; they see the row of the table only.
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.UPDATE, condition, assignments))

    def when_not_matched_by_source_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that no row of the source matches.

        Args:
            condition: Which of them.
        """
        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.DELETE, condition))

    def execute(self) -> _T:
        """Merge in one commit, and return the table at its new version; if no row changes there is no commit.

        Raises:
            MergeWithoutClause: no clause was given.
            UnreachableClause: a clause comes after one of its kind that takes every row.
            AmbiguousMerge: several rows of the source match one row of the table; nothing is visible.
            AppendOnlyTable: rows would be updated or deleted, and the table promises never to lose one.
            SchemaMismatch: a value does not fit its column, or the source lacks a column.
            ColumnRefused: a column is not there, or cannot be added or widen.
            ChangeRefused: a condition or an assignment cannot be used.
            RowRefused: a row would be one that the table may not hold; nothing is visible.
            FeatureRequired: a new type needs a feature that the table does not have.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might match, or changed what was read; nothing is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.
        """
        return self.run(self.clauses)

    def _with(self, clause: MergeClause) -> MergeBuilder[_T]:
        return replace(self, clauses=(*self.clauses, clause))
