"""FOLD COLUMN: merge a column that evolution added back into the original column of its field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from widen.errors import ColumnRefused, FoldLosesValues, InvalidOption
from widen.log.write.commit_outcome import several_commits
from widen.model.argument_types import check_arguments
from widen.model.column_path import Path, format_path
from widen.planning.alter.alter_request import AnyPath, parse_drops, to_path
from widen.planning.unify.fold_plan import FoldResult, Rest, plan_fold
from widen.spark.dml.fold_rows import fold_rows, preview_fold
from widen.spark.dml.operation_metrics import update_metrics
from widen.spark.session import find_session
from widen.spark.spark_types import SparkSession
from widen.table.column_changes import ColumnChangesMixin
from widen.table.open_table import Self
from widen.table.results import TableChange
from widen.table.row_changes import RowChangesMixin

FOLD = "FOLD COLUMN"
"""The operation name in the history."""


class FoldMixin(ABC):
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
            UnsupportedIcebergVersion: PyIceberg does not write the format version of the table.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed.
            StorageError: the catalog or the store returned an error.

        Source: docs/evolution-rules.md#u3
        """
        return self._preview_fold(to_path(column), None if into is None else to_path(into), find_session(spark))

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

        Only files with a value in the column are rewritten. The column is then dropped: in an Iceberg table by the same
        commit, in a Delta table by a second one and only with column mapping. It stays if a value stays in it or
        something depends on it.

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
            UnsupportedIcebergVersion: PyIceberg does not write the format version of the table.
            ContentionError: a concurrent commit added rows that might have such values, or removed files that were
                read.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.

        Source: docs/evolution-rules.md#u3
        """
        path, target = to_path(column), None if into is None else to_path(into)
        return self._fold(path, target, parse_rest(rest), find_session(spark))

    @abstractmethod
    def _preview_fold(self, column: Path, into: Path | None, spark: SparkSession) -> FoldResult:
        """Return what a fold would do."""

    @abstractmethod
    def _fold(self, column: Path, into: Path | None, rest: Rest, spark: SparkSession) -> TableChange[Self]:
        """Fold a column."""


class DeltaFoldMixin(FoldMixin, RowChangesMixin, ColumnChangesMixin):
    """Folds in Delta tables."""

    def _preview_fold(self, column: Path, into: Path | None, spark: SparkSession) -> FoldResult:
        fold = plan_fold(self._snapshot.schema, column, into)
        preview = preview_fold(spark, self._snapshot, fold)
        try:
            self.plan_columns(parse_drops(self._snapshot.schema, [fold.column], if_exists=False))
        except ColumnRefused:
            return preview
        return replace(preview, is_dropped=True)

    def _fold(self, column: Path, into: Path | None, rest: Rest, spark: SparkSession) -> TableChange[Self]:
        self._ensure_changeable(FOLD)
        preview = self._preview_fold(column, into, spark)
        ensure_values_kept(preview, rest)
        fold = preview.fold
        result = fold_rows(spark, self._snapshot, fold, rest)
        parameters = {"column": format_path(fold.column), "into": format_path(fold.into), "rest": rest.value}
        with several_commits():
            change = self._commit_change(result, FOLD, parameters, update_metrics)
            if preview.is_dropped and (rest is Rest.LOSE or not preview.lost):
                self.drop_columns(fold.column)
        return replace(change, version=self.version)


def ensure_values_kept(preview: FoldResult, rest: Rest) -> None:
    """Check that a fold loses no value, unless the caller has chosen what to do with such values.

    Raises:
        FoldLosesValues: it would.
    """
    if preview.lost and rest is Rest.REFUSE:
        name, fold = format_path(preview.fold.column), preview.fold
        raise FoldLosesValues(column=name, lost=preview.lost, values=preview.values, type=fold.into_type.sql)


def parse_rest(text: Rest | str) -> Rest:
    """Return what to do with values that do not convert exactly.

    Raises:
        InvalidOption: it is not one of refuse, keep or lose.
    """
    try:
        return Rest(text)
    except ValueError:
        expected = "Must be one of refuse, keep or lose."
        raise InvalidOption(option="rest", value=text, expected=expected) from None
