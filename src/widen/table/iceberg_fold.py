"""FOLD COLUMN in Iceberg tables; for Delta tables see `widen.table.fold`."""

from __future__ import annotations

from widen.errors import FoldLosesValues
from widen.iceberg.catalog import TableName
from widen.log.write.commit import retry_conflicts
from widen.log.write.commit_outcome import Conflicted
from widen.model.argument_types import check_arguments
from widen.model.column_path import format_path
from widen.planning.alter.alter_request import AnyPath, to_path
from widen.planning.unify.fold_plan import FoldResult, Rest
from widen.spark.iceberg.fold import open_fold
from widen.spark.session import find_session
from widen.spark.spark_types import SparkSession
from widen.table.fold import FOLD, parse_rest
from widen.table.results import TableChange
from widen.table.table_version import Self


class IcebergFoldMixin:
    """Methods that merge added columns back into their original columns."""

    _name: TableName

    def refresh(self) -> Self:
        """Load the newest version, and return the table."""
        raise NotImplementedError

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
            CorruptFile: a file cannot be read.
            JobFailed: the Spark job failed.
            StorageError: the catalog or the store returned an error.

        Source: docs/evolution-rules.md#u3
        """
        other = None if into is None else to_path(into)
        return open_fold(self._name, to_path(column), other, find_session(spark)).preview

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

        Only files with a value in the column are written again. The same commit drops the column, unless a value stays
        in it or the table needs it.

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
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            UnsupportedIcebergVersion: PyIceberg does not write the format version of the table.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            CorruptFile: a file cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.

        Source: docs/evolution-rules.md#u3
        """
        wanted, other = parse_rest(rest), None if into is None else to_path(into)
        session, metrics = find_session(spark), {}

        def attempt(_: Conflicted | None) -> int | Conflicted:
            found = open_fold(self._name, to_path(column), other, session)
            preview = found.preview
            if preview.lost and wanted is Rest.REFUSE:
                name = format_path(found.plan.column)
                into_type = found.plan.into_type.sql
                raise FoldLosesValues(column=name, lost=preview.lost, values=preview.values, type=into_type)
            metrics["numUpdatedRows"] = found.moved_values(wanted)
            return found.commit(wanted)

        version = retry_conflicts(attempt)
        return TableChange(self.refresh(), FOLD, version, metrics)
