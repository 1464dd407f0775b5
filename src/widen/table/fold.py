"""Repairing what drifted: columns that evolved go back to where their values belong."""

from __future__ import annotations

from dataclasses import replace

from widen.errors import ColumnRefused, FoldLosesValues, InvalidOption
from widen.model.argument_types import check_arguments
from widen.model.column_path import format_path
from widen.planning.alter.alter_request import AnyPath, parse_drops, to_path
from widen.planning.unify.fold_plan import FoldResult, Rest, plan_fold
from widen.spark.dml.fold_rows import fold_rows, preview_fold
from widen.spark.dml.operation_metrics import update_metrics
from widen.spark.session import find_session
from widen.spark.spark_types import SparkSession
from widen.table.column_changes import ColumnChangesMixin
from widen.table.results import TableChange
from widen.table.row_changes import RowChangesMixin
from widen.table.table_version import Self

FOLD = "FOLD COLUMN"
"""What the history calls it."""


class FoldMixin(RowChangesMixin, ColumnChangesMixin):
    """A table whose drift can be repaired."""

    @check_arguments
    def plan_fold(
        self, column: AnyPath, into: AnyPath | None = None, *, spark: SparkSession | None = None
    ) -> FoldResult:
        """Return what it comes to if a column goes back into another one of its field; nothing is written.

        Args:
            column: The column that evolved, e.g. ``total_string``.
            into: The other one; by default the one with the plain name.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            ColumnNotFound: there is no such column.
            InvalidPath: a path cannot be read.
            FoldRefused: the two are not of one field, or their values cannot be converted one by one.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job.
            StorageError: the store refused.

        Source: docs/evolution-rules.md#u3
        """
        other = None if into is None else to_path(into)
        fold = plan_fold(self._snapshot.schema, to_path(column), other)
        found = preview_fold(find_session(spark), self._snapshot, fold)
        try:
            self.plan_columns(parse_drops(self._snapshot.schema, [fold.column], if_exists=False))
        except ColumnRefused:
            return found
        return replace(found, is_dropped=True)

    @check_arguments
    def fold(
        self,
        column: AnyPath,
        into: AnyPath | None = None,
        *,
        rest: Rest | str = Rest.REFUSE,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Bring the values of a column that evolved back into another one, and return the table at its new version.

        Only files with a value in the column are written anew. Then the column is dropped, in a commit of its own,
        where columns are mapped and nothing else needs it; else it stays, and is null in every row.

        Args:
            column: The column that evolved, e.g. ``total_string``.
            into: The other one; by default the one with the plain name.
            rest: What becomes of values that do not convert exactly, or stand beside another value: with ``refuse``
                nothing is done if there is one, with ``keep`` they stay where they are, with ``lose`` they are given
                up.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            FoldLosesValues: there are such values, and they are not to be kept or lost.
            FoldRefused: the two are not of one field, or their values cannot be converted one by one.
            InvalidOption: ``rest`` is none of the three.
            AppendOnlyTable: the table promises never to lose a row.
            ColumnNotFound: there is no such column.
            InvalidPath: a path cannot be read.
            RowRefused: a row would be one that the table may not hold; nothing is visible.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might have such values, or removed what was read.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job.
            StorageError: the store refused.

        Source: docs/evolution-rules.md#u3
        """
        wanted = _rest(rest)
        self._ensure_changeable(FOLD)
        found = self.plan_fold(column, into, spark=spark)
        fold, name = found.fold, format_path(found.fold.column)
        if found.lost and wanted is Rest.REFUSE:
            raise FoldLosesValues(column=name, lost=found.lost, values=found.values, type=fold.into_type.sql)
        outcome = fold_rows(find_session(spark), self._snapshot, fold, wanted)
        parameters = {"column": name, "into": format_path(fold.into), "rest": wanted.value}
        change = self._commit_change(outcome, FOLD, parameters, update_metrics)
        if found.is_dropped and (wanted is Rest.LOSE or not found.lost):
            self.drop_columns(fold.column)
        return replace(change, version=self.version)


def _rest(text: Rest | str) -> Rest:
    try:
        return Rest(text)
    except ValueError:
        expected = f"It is {', '.join(each.value for each in Rest)}."
        raise InvalidOption(option="rest", value=text, expected=expected) from None
