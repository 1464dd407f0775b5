"""Overwrite, delete, update and merge rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from widen.errors import AppendOnlyTable, ColumnRefused, FoldLosesValues, InvalidOption
from widen.evolution.unify import FoldResult, Rest, plan_fold
from widen.log.commit import StagedFiles, commit
from widen.log.commit_outcome import several_commits
from widen.model.argument_types import check_arguments
from widen.model.column_path import Path, format_path
from widen.model.value_classes import dataclass
from widen.protocol.actions import Metadata
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable
from widen.schema.alter import AnyPath, changed_configuration, parse_drops, to_path
from widen.schema.growth import ensure_consistent, grow_schema, schema_change_options, with_new_schema
from widen.schema.source_metadata import AutomaticWidening
from widen.schema.table_definition import advance_identities, with_used_values
from widen.table.column_operations import ColumnChangesMixin
from widen.table.open_table import Self, TableVersion
from widen.table.results import TableChange

if TYPE_CHECKING:
    from widen.changes.change_context import ChangeResult
    from widen.changes.merge import MergeClause, MergeSides
    from widen.spark.engine import Session
    from widen.spark.expression import Expression
    from widen.spark.spark_types import DataFrame, SparkSession

STATIC, DYNAMIC = "static", "dynamic"
PARTITIONS = (STATIC, DYNAMIC)
"""An overwrite replaces all rows, or only the partitions of the new rows."""


class RowChangesMixin(TableVersion):
    """Methods that overwrite, delete, update and merge rows."""

    @check_arguments
    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Expression | None = None,
        partitions: str = "static",
        overwrite_schema: bool = False,
        merge_schema: bool | None = None,
        widening: str | None = None,
        cast: bool = False,
    ) -> TableChange[Self]:
        """Replace rows in one commit, and return the `TableChange`.

        Replaces all rows, or those that match a condition, or those in the partitions that the new rows belong to.
        Columns are matched and cast as in `append`.

        Args:
            frame: The rows.
            where: The condition on the rows to replace, in Spark SQL or as a column; every new row must match it as
                well.
            partitions: ``static``, or ``dynamic`` to replace only the partitions of the new rows.
            overwrite_schema: Whether to replace the schema of the table with the schema of the data.
            merge_schema: Whether to add new columns and, where type widening is enabled, widen types; the default is
                `spark.databricks.delta.schema.autoMerge.enabled`.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; the default is
                `spark.databricks.delta.typeWidening.allowAutomaticWidening`.
            cast: Whether to cast to other types too; a value that does not fit fails the overwrite.

        Raises:
            AppendOnlyTable: the table is append-only.
            OverwriteRefused: two options contradict each other.
            InvalidOption: ``partitions`` or ``widening`` is not one of its values.
            SchemaMismatch: the data do not fit; the error names the columns, both types, and what would make them fit.
            ReplaceWhereMismatch: a new row does not match the condition; nothing is visible.
            RowRefused: a row violates a column rule or a constraint, or a value is out of range; nothing is visible.
            IdentityColumnGiven: the data have values for a GENERATED ALWAYS AS IDENTITY column.
            ColumnRefused: a column does not exist, cannot be added, or would change although an expression or
                constraint uses it.
            ChangeRefused: the condition cannot be used.
            FeatureRequired: a type requires a feature that the table does not support.
            IcebergIncompatible: Iceberg could no longer read the table.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: a concurrent commit added rows that would be replaced, or changed files that were read;
                nothing is visible.
            CorruptFile: a file cannot be read.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the storage returned an error; nothing is visible.

        Source: Delta Lake's overwrite, overwriteSchema, replaceWhere and dynamic partition overwrite
        """
        from widen.changes.merge import overwrite_metrics
        from widen.changes.update_delete import overwrite_all, overwrite_partitions, overwrite_where
        from widen.frames.physical_layout import missing_identities
        from widen.spark.expression import expression_text
        from widen.spark.session import schema_evolution_settings
        from widen.spark.spark_types import from_spark

        if partitions not in PARTITIONS:
            raise InvalidOption(option="partitions", value=partitions, expected=f"Must be {' or '.join(PARTITIONS)}.")
        is_dynamic = partitions == DYNAMIC
        ensure_consistent(has_where=where is not None, has_new_schema=overwrite_schema, is_dynamic=is_dynamic)
        self._ensure_changeable("WRITE")
        state, snapshot, incoming = self._state, self._snapshot, from_spark(frame.schema)
        if overwrite_schema:
            metadata = with_new_schema(state, incoming)
        else:
            merges, mode = schema_evolution_settings(frame.sparkSession, merge_schema, widening)
            options = schema_change_options(state, merge_schema=merges, widening=mode, cast=cast)
            metadata = grow_schema(state, incoming, options).metadata
        if where is not None:
            result = overwrite_where(snapshot, frame, metadata, where)
        else:
            is_split = is_dynamic and bool(metadata.partition_columns)
            result = (overwrite_partitions if is_split else overwrite_all)(snapshot, frame, metadata)
        table = TableConfiguration(state.protocol, metadata)
        identities = [field.name for field in missing_identities(frame, table.schema)]
        metadata = advance_identities(table, identities, result.added)
        parameters: dict[str, object] = {"mode": "Overwrite", "partitionBy": list(metadata.partition_columns)}
        parameters |= {} if where is None else {"predicate": expression_text(where)}
        parameters |= {"isDynamicPartitionOverwrite": True} if is_dynamic else {}
        parameters |= {"canOverwriteSchema": True} if overwrite_schema else {}
        return self._commit_change(result, "WRITE", parameters, overwrite_metrics, metadata)

    @check_arguments
    def delete(self, where: Expression | None = None, *, spark: SparkSession | None = None) -> TableChange[Self]:
        """Delete rows in one commit, and return the `TableChange`; if no row matches there is no commit.

        If the condition refers to partition columns only, whole files are removed. Otherwise the rows are marked in
        deletion vectors if the table has enabled them, and their files are rewritten if it has not.

        Args:
            where: The condition on the rows to delete, in Spark SQL or as a column; without it all rows are deleted. A
                string also skips files by their statistics, and does not conflict with commits that add other rows.
            spark: The session, classic or Connect; by default the active one, else a local one, which starts only if
                Arrow does not evaluate the condition, or read or write the table, exactly.

        Raises:
            AppendOnlyTable: the table is append-only.
            NotDeterministic: the condition may give different results for the same row.
            InvalidCondition: the condition cannot be used.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: a concurrent commit added rows that might match, or removed files that were read; nothing
                is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the storage returned an error; nothing is visible.

        Source: Delta Lake's DELETE; PROTOCOL.md#deletion-vectors
        """
        from widen.changes import update_delete
        from widen.changes.merge import delete_metrics
        from widen.spark.engine import open_session
        from widen.spark.expression import expression_text

        self._ensure_changeable("DELETE")
        result = update_delete.delete(open_session(spark), self._snapshot, where)
        parameters = {"predicate": [] if where is None else [expression_text(where)]}
        return self._commit_change(result, "DELETE", parameters, delete_metrics)

    @check_arguments
    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Update rows in one commit, and return the `TableChange`; if no row matches there is no commit.

        Column types do not change: a value that is out of range for its column fails the update.

        Args:
            spark: The session; as in `delete`.
            assignments: The new values, in Spark SQL or as columns, by column path, e.g.
                ``{"amount": "amount * 2", "address.zip": "'9000'"}``. All of them refer to the row before the update.
            where: The condition on the rows to update; without it all rows are updated.

        Raises:
            AppendOnlyTable: the table is append-only.
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            AssignmentConflict: two assignments go to the same column.
            ItemAssignmentRefused: a path leads into an array or a map.
            SchemaMismatch: a value does not fit its column.
            NotDeterministic: the condition may give different results for the same row.
            InvalidCondition: the condition or a value cannot be used.
            RowRefused: a row violates a column rule or a constraint; nothing is visible.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: a concurrent commit added rows that might match, or removed files that were read; nothing
                is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the storage returned an error; nothing is visible.

        Source: Delta Lake's UPDATE
        """
        from widen.changes import update_delete
        from widen.changes.merge import update_metrics
        from widen.spark.engine import open_session
        from widen.spark.expression import expression_text

        self._ensure_changeable("UPDATE")
        result = update_delete.update(open_session(spark), self._snapshot, assignments, where)
        parameters = {"predicate": [] if where is None else [expression_text(where)]}
        return self._commit_change(result, "UPDATE", parameters, update_metrics)

    @check_arguments
    def merge(
        self,
        source: DataFrame,
        on: Expression,
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        merge_schema: bool | None = None,
        widening: str | None = None,
    ) -> MergeBuilder[TableChange[Self]]:
        """Return a builder for a merge of a source into the table; add clauses to it, then call ``execute``.

        Args:
            source: The source rows.
            on: The join condition, in Spark SQL or as a column.
            source_alias: The alias of the source in expressions.
            target_alias: The alias of the table in expressions.
            merge_schema: Whether to add source columns that a clause assigns and, where type widening is enabled, widen
                to their types; the default is `spark.databricks.delta.schema.autoMerge.enabled`. Other values are cast;
                a value that is out of range fails the merge.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; the default is
                `spark.databricks.delta.typeWidening.allowAutomaticWidening`.

        Raises:
            InvalidOption: ``widening`` is not one of the three values.

        Source: Delta Lake's MERGE

        Example:
            table.merge(changes, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
        """
        from widen.changes.merge import MergeSides
        from widen.spark.session import schema_evolution_settings

        merges, mode = schema_evolution_settings(source.sparkSession, merge_schema, widening)
        sides = MergeSides(source, on, source_alias, target_alias)
        return MergeBuilder(partial(self._merge, sides, merges=merges, mode=mode))

    def _merge(
        self, sides: MergeSides, clauses: tuple[MergeClause, ...], *, merges: bool, mode: AutomaticWidening
    ) -> TableChange[Self]:
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeSide, merge_metrics, merge_rows, order_clauses, resolve_merge
        from widen.spark.expression import expression_text

        numbered = order_clauses(clauses)
        self._ensure_changeable("MERGE", loses_rows=any(clause.kind is not ChangeKind.INSERT for clause in numbered))
        options = schema_change_options(self._state, merge_schema=merges, widening=mode, cast=True)
        merge, growth = resolve_merge(self._state, sides, numbered, options)
        result = merge_rows(self._snapshot, growth, merge)
        metadata = with_used_values(TableConfiguration(self._state.protocol, growth.metadata), result.totals)
        predicates = {side: [clause.to_value() for clause in numbered if clause.side is side] for side in MergeSide}
        parameters = {
            "predicate": [expression_text(sides.on)],
            "matchedPredicates": predicates[MergeSide.MATCHED],
            "notMatchedPredicates": predicates[MergeSide.NOT_MATCHED],
            "notMatchedBySourcePredicates": predicates[MergeSide.NOT_MATCHED_BY_SOURCE],
        }
        metrics = partial(merge_metrics, clauses=numbered)
        return self._commit_change(result, "MERGE", parameters, metrics, metadata)

    def _ensure_changeable(self, operation: str, *, loses_rows: bool = True) -> None:
        """Refresh, and check before any job runs that the rows may be changed."""
        state = self.refresh()._state
        ensure_writable(state.protocol, self.location)
        if loses_rows and state.enables("appendOnly"):
            raise AppendOnlyTable(location=self.location, operation=operation)

    def _commit_change(
        self,
        outcome: ChangeResult,
        operation: str,
        parameters: Mapping[str, object],
        metrics: Callable[[ChangeResult], dict[str, int]],
        metadata: Metadata | None = None,
    ) -> TableChange[Self]:
        """Commit a change, with its metadata if that changed; delete the written files if the commit fails."""
        grown = [] if metadata is None else changed_configuration(self._state, metadata)
        if outcome.is_empty and not grown:
            return TableChange(self, operation, self.version, {})
        store, actions = self._store, [*grown, *outcome.actions]
        numbers, reads = metrics(outcome), outcome.reads
        with StagedFiles() as staged:
            staged.add_folders(store, outcome.folders)
            committed = commit(
                store, self._snapshot, actions, operation, parameters, reads=reads, metrics=numbers, staged=staged
            )
        self._at(committed)
        return TableChange(self, operation, self.version, numbers)


# The builder for MERGE.


_T = TypeVar("_T")


@dataclass(frozen=True)
class MergeBuilder(Generic[_T]):
    """A merge that collects clauses one by one; nothing runs before `execute`.

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
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition, assignments))

    def when_matched_update_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Update matched rows from all columns of the source; columns that it lacks stay as they are."""
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, condition))

    def when_matched_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that a row of the source matches."""
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.MATCHED, ChangeKind.DELETE, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row of the table.

        Args:
            values: The values by column; other columns get their default, their generated value, or null.
        """
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition, values))

    def when_not_matched_insert_all(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Insert rows of the source that match no row of the table, with all their columns."""
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.NOT_MATCHED, ChangeKind.INSERT, condition))

    def when_not_matched_by_source_update(
        self, assignments: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> MergeBuilder[_T]:
        """Update rows of the table that no row of the source matches.

        Args:
            assignments: The new values by column path; they can refer to the table only.
        """
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.UPDATE, condition, assignments))

    def when_not_matched_by_source_delete(self, *, condition: Expression | None = None) -> MergeBuilder[_T]:
        """Delete rows of the table that no row of the source matches."""
        from widen.changes.assignment import ChangeKind
        from widen.changes.merge import MergeClause, MergeSide

        return self._with(MergeClause(MergeSide.NOT_MATCHED_BY_SOURCE, ChangeKind.DELETE, condition))

    def execute(self) -> _T:
        """Merge in one commit, and return the `TableChange`; if no row changes there is no commit."""
        return self.run(self.clauses)

    def _with(self, clause: MergeClause) -> MergeBuilder[_T]:
        return replace(self, clauses=(*self.clauses, clause))


# FOLD COLUMN: merge a column that evolution added back into the original column of its field.


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
            spark: The session; as in `delete`.

        Raises:
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            FoldRefused: the columns do not belong to the same source field, or the values cannot be converted one by
                one.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: the Spark job failed.
            StorageError: the catalog or the store returned an error.

        Source: docs/evolution-rules.md#u3
        """
        from widen.spark.engine import open_session

        return self._preview_fold(to_path(column), None if into is None else to_path(into), open_session(spark))

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
            spark: The session; as in `delete`.

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
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.

        Source: docs/evolution-rules.md#u3
        """
        from widen.spark.engine import open_session

        path, target = to_path(column), None if into is None else to_path(into)
        return self._fold(path, target, parse_rest(rest), open_session(spark))

    @abstractmethod
    def _preview_fold(self, column: Path, into: Path | None, spark: Session) -> FoldResult:
        """Return what a fold would do."""

    @abstractmethod
    def _fold(self, column: Path, into: Path | None, rest: Rest, spark: Session) -> TableChange[Self]:
        """Fold a column."""


class DeltaFoldMixin(FoldMixin, RowChangesMixin, ColumnChangesMixin):
    """Folds in Delta tables."""

    def _preview_fold(self, column: Path, into: Path | None, spark: Session) -> FoldResult:
        from widen.changes.fold_column import preview_fold

        fold = plan_fold(self._snapshot.schema, column, into)
        preview = preview_fold(spark, self._snapshot, fold)
        try:
            self.plan_columns(parse_drops(self._snapshot.schema, [fold.column], if_exists=False))
        except ColumnRefused:
            return preview
        return replace(preview, is_dropped=True)

    def _fold(self, column: Path, into: Path | None, rest: Rest, spark: Session) -> TableChange[Self]:
        from widen.changes.fold_column import fold_rows
        from widen.changes.merge import update_metrics

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
