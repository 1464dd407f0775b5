"""Overwrite, delete, update and merge rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from widen.errors import AppendOnlyTable, InvalidOption
from widen.log.write.commit import StagedFiles, commit
from widen.model.argument_types import check_arguments
from widen.model.schema_json import from_json
from widen.planning.alter.identity_columns import advance_identities, with_used_values
from widen.planning.evolution.format_capability import AutomaticWidening
from widen.planning.write.overwrite_schema import ensure_consistent, with_new_schema
from widen.planning.write.schema_growth import grow_schema, schema_change_options
from widen.protocol.actions import Metadata
from widen.protocol.column_mapping import mapping_mode
from widen.protocol.table_features import ensure_writable, is_enabled
from widen.spark.delta_settings import schema_evolution_settings
from widen.spark.dml import update_delete
from widen.spark.dml.change_context import ChangeResult
from widen.spark.dml.merge import merge_rows
from widen.spark.dml.merge_clause import MergeClause, MergeSide, order_clauses
from widen.spark.dml.merge_resolution import MergeSides, resolve_merge
from widen.spark.dml.operation_metrics import delete_metrics, merge_metrics, overwrite_metrics, update_metrics
from widen.spark.dml.overwrite import overwrite_all, overwrite_partitions, overwrite_where
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression, to_text
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession, from_spark
from widen.spark.write.missing_columns import missing_identities
from widen.table.merge_builder import MergeBuilder
from widen.table.open_table import Self
from widen.table.results import TableChange
from widen.table.table_version import TableVersion

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
            where: The condition on the rows to replace, in Spark SQL or as a column; every new row must match it too.
            partitions: ``static``, or ``dynamic`` to replace only the partitions of the new rows.
            overwrite_schema: Whether to replace the schema of the table with that of the data.
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
        identities = [field.name for field in missing_identities(frame, from_json(metadata.schema_string))]
        metadata = advance_identities(
            metadata, identities, mapping_mode(metadata.configuration, state.protocol), result.added
        )
        parameters: dict[str, object] = {"mode": "Overwrite", "partitionBy": list(metadata.partition_columns)}
        parameters |= {} if where is None else {"predicate": to_text(where)}
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
            spark: The session, classic or Connect; by default the active one, else a local one.

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
        self._ensure_changeable("DELETE")
        result = update_delete.delete(find_session(spark), self._snapshot, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
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
            spark: The session.
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
        self._ensure_changeable("UPDATE")
        result = update_delete.update(find_session(spark), self._snapshot, assignments, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
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
        merges, mode = schema_evolution_settings(source.sparkSession, merge_schema, widening)
        sides = MergeSides(source, on, source_alias, target_alias)
        return MergeBuilder(partial(self._merge, sides, merges=merges, mode=mode))

    def _merge(
        self, sides: MergeSides, clauses: tuple[MergeClause, ...], *, merges: bool, mode: AutomaticWidening
    ) -> TableChange[Self]:
        numbered = order_clauses(clauses)
        self._ensure_changeable("MERGE", loses_rows=any(clause.kind is not ChangeKind.INSERT for clause in numbered))
        options = schema_change_options(self._state, merge_schema=merges, widening=mode, cast=True)
        merge, growth = resolve_merge(self._state, sides, numbered, options)
        result = merge_rows(self._snapshot, growth, merge)
        metadata = with_used_values(growth.metadata, result.totals)
        predicates = {side: [clause.to_value() for clause in numbered if clause.side is side] for side in MergeSide}
        parameters = {
            "predicate": [to_text(sides.on)],
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
        if loses_rows and is_enabled(state.protocol, state.properties, "appendOnly"):
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
        grown = [] if metadata is None or metadata == self.metadata else [metadata]
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
