"""FOLD COLUMN: merge a column that evolution added back into the original column of its field."""

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
"""The operation name in the history."""


class FoldMixin(RowChangesMixin, ColumnChangesMixin):
    """Methods that merge added columns back into their original columns."""

    @check_arguments
    def plan_fold(
        self, column: AnyPath, into: AnyPath | None = None, *, spark: SparkSession | None = None
    ) -> FoldResult:
        """Return what a fold of a column into another column of the same field would do; nothing is written.

        Args:
            column: The column to fold, e.g. ``total_string``.
            into: The target column; by default the one with the plain field name.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            FoldRefused: the columns do not belong to the same source field, or the values cannot be converted one by
                one.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed.
            StorageError: the storage returned an error.

        Source: docs/evolution-rules.md#u3
        """
        other = None if into is None else to_path(into)
        fold = plan_fold(self._snapshot.schema, to_path(column), other)
        preview = preview_fold(find_session(spark), self._snapshot, fold)
        try:
            self.plan_columns(parse_drops(self._snapshot.schema, [fold.column], if_exists=False))
        except ColumnRefused:
            return preview
        return replace(preview, is_dropped=True)

    @check_arguments
    def fold(
        self,
        column: AnyPath,
        into: AnyPath | None = None,
        *,
        rest: Rest | str = Rest.REFUSE,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Move the values of a column into another column of the same field, and return the `TableChange`.

        Only files with a value in the column are rewritten. Then a second commit drops the column, if column mapping is
        enabled and nothing depends on the column; otherwise the column stays, and is null in every row.

        Args:
            column: The column to fold, e.g. ``total_string``.
            into: The target column; by default the one with the plain field name.
            rest: What to do with values that do not convert exactly, or whose row has another value in the target
                column: ``refuse`` raises and changes nothing, ``keep`` leaves them where they are, ``lose`` discards
                them.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            FoldLosesValues: there are such values, and ``rest`` is ``refuse``.
            FoldRefused: the columns do not belong to the same source field, or the values cannot be converted one by
                one.
            InvalidOption: ``rest`` is not one of the three values.
            AppendOnlyTable: the table is append-only.
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            RowRefused: a row violates a column rule or a constraint; nothing is visible.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: a concurrent commit added rows that might have such values, or removed files that were
                read.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed.
            StorageError: the storage returned an error.

        Source: docs/evolution-rules.md#u3
        """
        rest_choice = parse_rest(rest)
        self._ensure_changeable(FOLD)
        preview = self.plan_fold(column, into, spark=spark)
        fold, name = preview.fold, format_path(preview.fold.column)
        if preview.lost and rest_choice is Rest.REFUSE:
            raise FoldLosesValues(column=name, lost=preview.lost, values=preview.values, type=fold.into_type.sql)
        result = fold_rows(find_session(spark), self._snapshot, fold, rest_choice)
        parameters = {"column": name, "into": format_path(fold.into), "rest": rest_choice.value}
        change = self._commit_change(result, FOLD, parameters, update_metrics)
        if preview.is_dropped and (rest_choice is Rest.LOSE or not preview.lost):
            self.drop_columns(fold.column)
        return replace(change, version=self.version)


def parse_rest(text: Rest | str) -> Rest:
    """Return what to do with values that do not convert exactly.

    Raises:
        InvalidOption: it is not one of refuse, keep and lose.
    """
    try:
        return Rest(text)
    except ValueError:
        expected = f"It is {', '.join(each.value for each in Rest)}."
        raise InvalidOption(option="rest", value=text, expected=expected) from None
