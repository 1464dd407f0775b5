"""Change, rename, add, drop and replace columns; add and drop constraints.

These changes do not rewrite files. Where every row must allow a change, the rows are read first, and the commit fails
if a concurrent commit added files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.log.commit import Committed, Conflicted, ReadSet, StagedFiles, commit
from widen.log.commit_outcome import several_commits
from widen.log.file_list import to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.argument_types import check_arguments
from widen.model.column_path import resolve
from widen.model.types import DataType
from widen.protocol import column_mapping
from widen.protocol.actions import Add
from widen.protocol.table_properties import canonical_keys
from widen.schema import alter
from widen.schema.alter import AnyPath, ByPath, ColumnChanges, plan_alter, to_path
from widen.schema.checks import identity_at
from widen.schema.feature_removal import plan_mapping_removal
from widen.schema.operations import AddConstraint, DropConstraint, Operation, SyncIdentity, depends_on_rows, needs_spark
from widen.schema.table_definition import (
    check_properties,
    needs_backfill,
    plan_add_feature,
    plan_cluster_by,
    plan_set_properties,
    plan_unset_properties,
    synchronize_high_water_mark,
)
from widen.schema.table_state import find_constraint, to_table_state
from widen.table.open_table import ColumnMethodsMixin, Self, TableVersion, to_table_schema

if TYPE_CHECKING:
    from widen.spark.engine import Session
    from widen.spark.spark_types import SchemaLike, SparkSession


class ColumnChangesMixin(ColumnMethodsMixin, TableVersion):
    """Methods that change columns and constraints without rewriting files."""

    @check_arguments
    def alter_column(
        self,
        column: AnyPath,
        *,
        type: DataType | str | None = None,
        comment: str | None = None,
        nullable: bool | None = None,
        first: bool = False,
        after: str | None = None,
        default: str | None = None,
        drop_default: bool = False,
        source: str | None = None,
        drop_source: str | None = None,
        spark: SparkSession | None = None,
    ) -> Self:
        """Change a column in one commit, and return the table at its new version; None leaves a setting unchanged.

        Args:
            column: The column, e.g. ``amount``, ``address.zip``, ``tags.element``, ``prices.value``.
            type: The wider type, e.g. ``"bigint"``; widening must be enabled. For strings also ``"varchar(20)"``.
            comment: The new comment; may be empty.
            nullable: Whether the column may be null. False reads all rows: none may be null.
            first: Whether to move it to the first position in its struct.
            after: The name of the column to move it behind.
            default: The value of rows that omit the column, in SQL; the table must support ``allowColumnDefaults``.
            drop_default: Whether to remove the default, so that such rows get null.
            source: The name of another field of records that fills the column, beside the one that does so already,
                e.g. after the source has renamed the field.
            drop_source: The name of a field that no longer fills it.
            spark: The session that reads rows and evaluates defaults; by default the active one, else a local one. It
                is not used otherwise.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or the change is not allowed.
            InvalidPath: the path cannot be read.
            InvalidType: the type cannot be read.
            FeatureRequired: the new type requires a feature that the table does not support.
            InvalidOption: the default is not a constant, or two options contradict each other.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER COLUMN.
        """
        given = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
        given |= {"source": source, "drop_source": drop_source}
        given_changes = {key: value for key, value in given.items() if value is not None}
        changes = ColumnChanges(**given_changes, first=first, drop_default=drop_default)  # type: ignore[typeddict-item]
        return self.alter_columns({column: changes}, spark=spark)

    @check_arguments
    def alter_columns(self, changes: ByPath[ColumnChanges], *, spark: SparkSession | None = None) -> Self:
        """Change several columns in one commit, all or nothing, and return the table at its new version.

        Args:
            changes: The changes by column path, e.g. ``{"a": {"type": "bigint"}, "s.b": {"first": True}}``;
                they are applied in this order.
            spark: See `alter_column`.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or the change is not allowed.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            FeatureRequired: a new type requires a feature that the table does not support.
            InvalidOption: a default is not a constant, or two options contradict each other.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: Delta Lake's ALTER COLUMN.
        """
        return self.change_columns(alter.parse_column_changes(self.refresh()._snapshot.schema, changes), spark=spark)

    @check_arguments
    def replace_columns(self, schema: SchemaLike) -> Self:
        """Replace the columns in one commit, and return the table; columns that remain keep their metadata.

        Args:
            schema: All columns, in their new order. Types may widen, and columns may be added. With column mapping,
                columns may also be dropped.

        Raises:
            ColumnRefused: a subclass: the change is not allowed, or something depends on the column.
            InvalidType: the schema string cannot be parsed.
            FeatureRequired: a type requires a feature that the table does not support.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: Delta Lake's REPLACE COLUMNS.
        """
        self.refresh()
        return self.change_columns(alter.parse_replacement(to_table_schema(schema)))

    @check_arguments
    def sync_identity(self, column: AnyPath, *, spark: SparkSession | None = None) -> Self:
        """Set the high-water mark of an identity column past all its values, in one commit; reads all rows.

        Args:
            column: The column.
            spark: The session that reads rows; by default the active one, else a local one, and only if it is needed.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or it is not an identity column.
            InvalidPath: the path cannot be read.
            ContentionError: a concurrent commit changed the table.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.
        """
        from widen.frames.row_checks import column_bound
        from widen.spark.engine import open_session

        path, _ = resolve(self.refresh()._snapshot.schema, to_path(column))
        identity = identity_at(self._snapshot.schema, path)
        last = column_bound(open_session(spark), self._snapshot, path, is_lowest=identity.step < 0)
        mark = synchronize_high_water_mark(identity, last)
        return self if mark is None else self.change_columns([SyncIdentity(path, mark)], spark=spark)

    @check_arguments
    def add_constraint(self, name: str, condition: str, *, spark: SparkSession | None = None) -> Self:
        """Add a CHECK constraint in one commit, and return the table; all rows are checked first.

        Args:
            name: The name of the constraint; not case-sensitive.
            condition: The condition in SQL, e.g. ``"total >= 0"``; rows where it is null violate it.
            spark: The session that reads rows; by default the active one, else a local one, and only if it is needed.

        Raises:
            ConstraintRefused: a subclass: the name or the condition cannot be used, or rows violate it.
            ContentionError: a concurrent commit changed the table.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#check-constraints; Delta Lake's ADD CONSTRAINT.
        """
        self.refresh()
        return self.change_columns([AddConstraint(name, condition)], spark=spark)

    @check_arguments
    def drop_constraint(self, name: str, *, if_exists: bool = False) -> Self:
        """Drop a CHECK constraint in one commit, and return the table.

        Args:
            name: The name of the constraint; not case-sensitive.
            if_exists: Whether to ignore a missing one.

        Raises:
            ConstraintNotFound: no constraint has this name.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: Delta Lake's DROP CONSTRAINT.
        """
        is_there = find_constraint(self.refresh()._state, name) is not None
        return self.change_columns([DropConstraint(name)] if is_there or not if_exists else [])

    @check_arguments
    def plan_columns(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return the operations that would be committed, in their order; reads no rows and commits nothing.

        Args:
            operations: Operations on this object's version, all of one kind: additions, drops, changes of existing
                columns, or a single operation of any other kind.

        Raises:
            ColumnRefused: a subclass that names the reason.
            ConstraintRefused: a subclass that names the reason.
            FeatureRequired: a type requires a feature that the table does not support.
        """
        change = plan_alter(self._state, operations)
        return change.operations if change else ()

    @check_arguments
    def change_columns(self, operations: Sequence[Operation], *, spark: SparkSession | None = None) -> Self:
        """Apply operations in one commit, all or nothing, and return the table at its new version.

        Args:
            operations: See `plan_columns`.
            spark: The session that reads rows where every row must allow the change; by default the active one, else a
                local one. The commit then fails if a concurrent commit added rows.

        Raises:
            ColumnRefused: a subclass that names the reason.
            ConstraintRefused: a subclass that names the reason.
            FeatureRequired: a type requires a feature that the table does not support.
            ContentionError: a concurrent commit changed the schema, the properties, or rows that were read.
            TableError: the table cannot be read or written.
        """
        change = plan_alter(self._state, operations)
        if change is None:
            return self
        operations, metrics = change.operations, {}
        if needs_spark(operations):
            from widen.frames.row_checks import check_operations
            from widen.spark.engine import open_session

            metrics = check_operations(open_session(spark), self._snapshot, operations)
        return self._at(
            commit(
                self._store,
                self._snapshot,
                change.actions,
                change.operation,
                change.parameters,
                reads=ReadSet.EVERYTHING if depends_on_rows(operations) else ReadSet.NOTHING,
                metrics=metrics,
            )
        )


# Set and unset properties; add features.
#
# Source: PROTOCOL.md#table-features


class PropertyChangesMixin(TableVersion):
    """Methods that change properties and add features."""

    @check_arguments
    def set_properties(self, properties: Mapping[str, str], *, spark: SparkSession | None = None) -> Self:
        """Set properties in one commit, with the table features that they require, and return the table.

        Enabling row tracking takes more commits first: every file must have row ids before it is enabled. Setting
        ``delta.columnMapping.mode`` to ``none`` first rewrites every file with the names of the columns, in one commit.

        Args:
            properties: Values by key, e.g. ``{"delta.enableTypeWidening": "true"}``. Keys that Delta Lake defines are
                not case-sensitive. Other properties stay as they are.
            spark: The session, if files are rewritten; by default the active one, else a local one.

        Raises:
            InvalidOption: a value cannot be used.
            InvalidColumnName: column mapping ends, and the name of a column is not possible without it.
            FeatureStillNeeded: column mapping ends, and Iceberg compatibility needs it.
            IcebergIncompatible: a property enables Iceberg compatibility, and the table is not compatible.
            UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#table-features
        """
        properties = check_properties(properties)
        with several_commits():
            if self._is_mapped() and properties.get(column_mapping.MODE) == column_mapping.NONE:
                others = {key: text for key, text in properties.items() if key != column_mapping.MODE}
                plan_set_properties(self._state, others)
                self._remove_column_mapping(spark, explicit=True)
                properties = others
            if needs_backfill(self._state, properties):
                self.add_feature(column_mapping.ROW_TRACKING)
                self._snapshot = backfill_row_ids(self._store)
            return self._change(plan_set_properties(self._state, properties))

    def _is_mapped(self) -> bool:
        return self.refresh().snapshot.configuration.mapping != column_mapping.NONE

    def _remove_column_mapping(self, spark: SparkSession | None, *, explicit: bool) -> None:
        plan_mapping_removal(self._state)
        remove_column_mapping(self._store, session_to_rewrite(spark), explicit=explicit)
        self.refresh()

    @check_arguments
    def unset_properties(self, keys: Iterable[str], *, spark: SparkSession | None = None) -> Self:
        """Remove properties in one commit, and return the table; the features that they required stay.

        Without ``delta.columnMapping.mode`` column mapping ends, and every file is rewritten first.

        Args:
            keys: The keys of the properties; keys that are not set are ignored.
            spark: See `set_properties`.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.
        """
        given = canonical_keys(keys)
        with several_commits():
            if self._is_mapped() and column_mapping.MODE in given:
                self._remove_column_mapping(spark, explicit=False)
            return self._change(plan_unset_properties(self._state, given))

    @check_arguments
    def cluster_by(self, *columns: AnyPath) -> Self:
        """Cluster the table by columns from now on, in one commit, and return the table; without columns, no longer.

        No file is rewritten: Delta Lake's OPTIMIZE clusters the files.

        Args:
            columns: At most four columns that have a minimum and a maximum in the statistics of files.

        Raises:
            ColumnNotFound: a column does not exist.
            InvalidOption: the table is partitioned, or cannot be clustered by these columns.
            InvalidPath: a path cannot be read.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#clustered-table; Delta Lake's ALTER TABLE CLUSTER BY.
        """
        return self._change(plan_cluster_by(self.refresh()._state, [to_path(each) for each in columns]))

    @check_arguments
    def add_feature(self, name: str) -> Self:
        """Add a feature, and the features that it requires, in one commit, and return the table.

        Args:
            name: The feature, not case-sensitive, e.g. ``typeWidening``. Clients that do not support it can no longer
                open the table.

        Raises:
            InvalidOption: this version does not know the feature.
            IcebergIncompatible: it is an Iceberg compatibility feature, and Iceberg does not support a type change of
                the table.
            UnsupportedFeatureForWrite: this version does not support it for writing.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#table-features
        """
        return self._change(plan_add_feature(self.refresh()._state, name))


# Row id backfill: assign row ids to existing files, so that row tracking can be enabled.
#
# Source: PROTOCOL.md#writer-requirements-for-row-tracking


FILES_PER_COMMIT = 100_000
ATTEMPTS = 100
_OPERATION, _REMOVAL = "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"


def backfill_row_ids(store: LogStore) -> Snapshot:
    """Commit every file without row ids again, with row ids; return a version whose files all have them.

    The table must support row tracking already, so that new files always have row ids. After a conflicting commit, the
    files are listed again: adding a file that was removed meanwhile would bring back its rows.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the provenance
    """
    return add_files_again(store, _OPERATION, _chosen(lambda files: files["base_row_id"].is_null(), lambda add: add))


def remove_row_ids(store: LogStore) -> Snapshot:
    """Commit every file with row ids again, without them; return a version whose files have no row ids.

    Row tracking must be suspended already, so that new files have no row ids.

    Source: Delta Spark's DROP FEATURE rowTracking
    """

    def without_ids(add: Add) -> Add:
        return msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)

    return add_files_again(store, _REMOVAL, _chosen(has_row_ids, without_ids))


def has_row_ids(files: pa.Table) -> pa.ChunkedArray:
    """Return for each file whether it has row ids."""
    return pc.or_(files["base_row_id"].is_valid(), files["default_row_commit_version"].is_valid())


def _chosen(
    is_chosen: Callable[[pa.Table], pa.ChunkedArray], change: Callable[[Add], Add]
) -> Callable[[Snapshot], list[Add]]:
    def choose(snapshot: Snapshot) -> list[Add]:
        files = snapshot.files()
        return list(map(change, to_adds(files.filter(is_chosen(files)).slice(0, FILES_PER_COMMIT))))

    return choose


def add_files_again(store: LogStore, operation: str, choose: Callable[[Snapshot], list[Add]]) -> Snapshot:
    """Add files again with other properties, in commits of some files, until none is left; return the last version.

    After a conflicting commit, the files are chosen again: adding a file that was removed meanwhile would bring back
    its rows.
    """
    batch, conflicts = 0, 0
    while True:
        snapshot = open_snapshot(store)
        adds = [msgspec.structs.replace(add, data_change=False) for add in choose(snapshot)]
        if not adds:
            return snapshot
        outcome = commit(store, snapshot, adds, operation, {"batchId": batch}, max_attempts=1)
        has_conflict = isinstance(outcome, Conflicted)
        batch, conflicts = (batch, conflicts + 1) if has_conflict else (batch + 1, 0)
        if not has_conflict or conflicts == ATTEMPTS:
            outcome.or_raise()


def session_to_rewrite(spark: SparkSession | None) -> Callable[[], Session]:
    """Return what returns the session to rewrite files in, always the same one; it may need no Spark."""
    from widen.spark.engine import open_session

    return cache(partial(open_session, spark))


UNMAPPING = "REMOVE COLUMN MAPPING"
"""The operation name of the commit that ends column mapping, as Delta Spark has it."""


def remove_column_mapping(
    store: LogStore, session: Callable[[], Session], *, explicit: bool = False
) -> Committed | None:
    """End column mapping in one commit; return it, or None if the table does not have column mapping.

    All files are rewritten with the logical names of the columns. If another commit comes first, all is done again: the
    files that it added have the physical names.

    Args:
        explicit: Whether to set the mode to none, instead of leaving it out.

    Source: Delta Spark's ALTER TABLE SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')
    """
    from widen.changes.rewrite_files import MOST_CONFLICTS, FileRewrite, join_rewrites, live_rows, task_groups

    for attempt in range(1, MOST_CONFLICTS + 1):
        snapshot = open_snapshot(store)
        actions = plan_mapping_removal(to_table_state(snapshot), explicit=explicit)
        if not actions:
            return None
        with StagedFiles() as staged:
            groups = task_groups(snapshot.files())
            rows = [sum(live_rows(session, snapshot, files)) for files in groups]
            rewrite = join_rewrites(FileRewrite(session, snapshot, unmapped=True).run(groups, rows, staged))
            whole = [*actions, *rewrite.actions]
            numbers = {name: rewrite.metrics[name] for name in ("numAddedFiles", "numRemovedFiles")}
            result = commit(store, snapshot, whole, UNMAPPING, {}, metrics=numbers, max_attempts=1, staged=staged)
        if not isinstance(result, Conflicted) or attempt == MOST_CONFLICTS:
            return result.or_raise()
    return None
