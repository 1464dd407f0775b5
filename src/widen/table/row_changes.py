"""The rows of a table that are there already: overwrite, delete, update, merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from widen.errors import AppendOnlyTable, InvalidOption
from widen.log.write.commit import StagedFiles, commit
from widen.model.argument_types import check_arguments
from widen.model.schema_json import from_json
from widen.planning.alter.identity_columns import advance_identities
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
from widen.table.results import TableChange
from widen.table.table_version import Self, TableVersion

STATIC, DYNAMIC = "static", "dynamic"
PARTITIONS = (STATIC, DYNAMIC)
"""Whether an overwrite replaces everything, or only what is in the same partitions as the new rows."""


class RowChangesMixin(TableVersion):
    """A table whose rows are changed."""

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
        """Write rows in place of others in one commit, and return the table at its new version.

        All rows are replaced, or those that a condition is true for, or those in the partitions that the data have rows
        for. Data fit as in `append`.

        Args:
            frame: The rows.
            where: Which rows are replaced, in Spark SQL or as a column; every new row must fulfil it too.
            partitions: ``static``, or ``dynamic`` to replace only what is in the same partitions as the new rows.
            overwrite_schema: Whether the table gets the schema of the data in place of its own.
            merge_schema: Whether the table gets new columns and, where type widening is enabled, wider types; by
                default what `spark.databricks.delta.schema.autoMerge.enabled` says.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; by default what
                `spark.databricks.delta.typeWidening.allowAutomaticWidening` says.
            cast: Whether values are cast where that can fail; one that is out of range fails the overwrite.

        Raises:
            AppendOnlyTable: the table promises never to lose a row.
            OverwriteRefused: two options contradict each other.
            InvalidOption: ``partitions`` or ``widening`` is none of its values.
            SchemaMismatch: the data do not fit; the error names the columns with both types, and what they need.
            ReplaceWhereMismatch: a new row does not fulfil the condition; nothing is visible.
            RowRefused: a row is one that the table may not hold, or a value is out of range; nothing is visible.
            IdentityColumnGiven: the data have values for a column whose values only the table makes.
            ColumnRefused: a column is not there, cannot be, or has a rule of its own and would change.
            ChangeRefused: the condition cannot be used.
            FeatureRequired: a type needs a feature that the table does not have.
            IcebergIncompatible: the table would no longer be one that Iceberg can read.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that would be replaced, or changed what was read; nothing is visible.
            CorruptFile: a file cannot be read.
            JobFailed: Spark could not finish a job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: Delta Lake's overwrite, overwriteSchema, replaceWhere and dynamic partition overwrite
        """
        if partitions not in PARTITIONS:
            raise InvalidOption(option="partitions", value=partitions, expected=f"It is {' or '.join(PARTITIONS)}.")
        is_dynamic = partitions == DYNAMIC
        ensure_consistent(has_where=where is not None, has_new_schema=overwrite_schema, is_dynamic=is_dynamic)
        self._ensure_changeable("WRITE")
        state, snapshot, incoming = self._state, self._snapshot, from_spark(frame.schema)
        if overwrite_schema:
            metadata = with_new_schema(state, incoming)
        else:
            merges, mode = schema_evolution_settings(frame.sparkSession, merge_schema, widening)
            leeway = schema_change_options(state, merge_schema=merges, widening=mode, cast=cast)
            metadata = grow_schema(state, incoming, leeway).metadata
        if where is not None:
            outcome = overwrite_where(snapshot, frame, metadata, where)
        else:
            is_split = is_dynamic and bool(metadata.partition_columns)
            outcome = (overwrite_partitions if is_split else overwrite_all)(snapshot, frame, metadata)
        made = [field.name for field in missing_identities(frame, from_json(metadata.schema_string))]
        metadata = advance_identities(
            metadata, made, mapping_mode(metadata.configuration, state.protocol), outcome.added
        )
        parameters: dict[str, object] = {"mode": "Overwrite", "partitionBy": list(metadata.partition_columns)}
        parameters |= {} if where is None else {"predicate": to_text(where)}
        parameters |= {"isDynamicPartitionOverwrite": True} if is_dynamic else {}
        parameters |= {"canOverwriteSchema": True} if overwrite_schema else {}
        return self._commit_change(outcome, "WRITE", parameters, overwrite_metrics, metadata)

    @check_arguments
    def delete(self, where: Expression | None = None, *, spark: SparkSession | None = None) -> TableChange[Self]:
        """Delete rows in one commit, and return the table at its new version; if no row matches there is no commit.

        Whole files go where the condition looks at partition columns only. Otherwise the rows are marked in deletion
        vectors where the table has enabled them, and their files are written anew where it has not.

        Args:
            where: The condition on the rows to delete, in Spark SQL or as a column; without it all rows are deleted. A
                string also skips files by their statistics, and does not conflict with writers who add other rows.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            AppendOnlyTable: the table promises never to lose a row.
            NotDeterministic: the condition may say something else the next time.
            InvalidCondition: the condition cannot be used.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might match, or removed what was read; nothing is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: Delta Lake's DELETE; PROTOCOL.md#deletion-vectors
        """
        self._ensure_changeable("DELETE")
        outcome = update_delete.delete(find_session(spark), self._snapshot, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
        return self._commit_change(outcome, "DELETE", parameters, delete_metrics)

    @check_arguments
    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
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
            InvalidCondition: the condition or a value cannot be used.
            RowRefused: a row would be one that the table may not hold; nothing is visible.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody added rows that might match, or removed what was read; nothing is visible.
            CorruptFile: a data file or a deletion vector cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: Delta Lake's UPDATE
        """
        self._ensure_changeable("UPDATE")
        outcome = update_delete.update(find_session(spark), self._snapshot, assignments, where)
        parameters = {"predicate": [] if where is None else [to_text(where)]}
        return self._commit_change(outcome, "UPDATE", parameters, update_metrics)

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
        """Begin a merge of rows into the table; say what to do with them by its clauses, then call ``execute``.

        Args:
            source: The rows.
            on: When one of them matches a row of the table, in Spark SQL or as a column.
            source_alias: What the source is called in expressions.
            target_alias: What the table is called there.
            merge_schema: Whether the table gets the columns of the source that a clause assigns something to and, where
                type widening is enabled, their wider types; by default what
                `spark.databricks.delta.schema.autoMerge.enabled` says. Other values are cast, and fail if they do not
                fit.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; by default what
                `spark.databricks.delta.typeWidening.allowAutomaticWidening` says.

        Raises:
            InvalidOption: ``widening`` is none of the three.

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
        leeway = schema_change_options(self._state, merge_schema=merges, widening=mode, cast=True)
        merge, growth = resolve_merge(self._state, sides, numbered, leeway)
        outcome = merge_rows(self._snapshot, growth, merge)
        told = {side: [clause.to_value() for clause in numbered if clause.side is side] for side in MergeSide}
        parameters = {
            "predicate": [to_text(sides.on)],
            "matchedPredicates": told[MergeSide.MATCHED],
            "notMatchedPredicates": told[MergeSide.NOT_MATCHED],
            "notMatchedBySourcePredicates": told[MergeSide.NOT_MATCHED_BY_SOURCE],
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
        outcome: ChangeResult,
        operation: str,
        parameters: Mapping[str, object],
        metrics: Callable[[ChangeResult], dict[str, int]],
        metadata: Metadata | None = None,
    ) -> TableChange[Self]:
        """Commit a change, with the metadata that it is made for if they are new; what was written goes if it fails."""
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
