"""Change, rename, add, drop and replace columns; add and drop constraints.

These changes do not rewrite files. Where every row must allow a change, the rows are read first, and the commit fails
if a concurrent commit added files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from widen.log.write.commit import ReadSet, commit
from widen.model.argument_types import check_arguments
from widen.model.column_path import resolve
from widen.model.types import DataType
from widen.planning.alter import alter_request
from widen.planning.alter.alter_request import AnyPath, ByPath, ColumnChanges
from widen.planning.alter.alter_table import plan_alter
from widen.planning.alter.attribute_checks import identity_at
from widen.planning.alter.identity_columns import synchronize_high_water_mark
from widen.planning.table.dependent_expressions import find_constraint
from widen.planning.table.operation import (
    AddConstraint,
    DropConstraint,
    Operation,
    SyncIdentity,
)
from widen.planning.table.operation_requirements import depends_on_rows, needs_spark
from widen.table import lazy_spark
from widen.table.open_table import ColumnMethodsMixin, Self
from widen.table.table_version import TableVersion

if TYPE_CHECKING:
    from widen.spark.spark_types import SchemaLike, SparkSession
else:
    # Type hints must resolve where Spark is not installed.
    SchemaLike = SparkSession = Any


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
        given_changes = {key: value for key, value in given.items() if value is not None}
        changes = ColumnChanges(**given_changes, first=first, drop_default=drop_default)  # type: ignore[typeddict-item]
        return self.alter_columns({column: changes}, spark=spark)

    @check_arguments
    def alter_columns(self, changes: ByPath[ColumnChanges], *, spark: SparkSession | None = None) -> Self:
        """Change several columns in one commit, all of them or none, and return the table at its new version.

        Args:
            changes: The changes by column path, e.g. ``{"a": {"type": "bigint"}, "s.b": {"first": True}}``;
                they are applied in this order.
            spark: As for `alter_column`.

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
        return self.change_columns(
            alter_request.parse_column_changes(self.refresh()._snapshot.schema, changes), spark=spark
        )

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
        return self.change_columns(alter_request.parse_replacement(lazy_spark.to_schema(schema)))

    @check_arguments
    def sync_identity(self, column: AnyPath, *, spark: SparkSession | None = None) -> Self:
        """Set the high-water mark of an identity column past all its values, in one commit; reads all rows.

        Args:
            column: The column.
            spark: The session that reads rows; by default the active one, else a local one.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or it is not an identity column.
            InvalidPath: the path cannot be read.
            ContentionError: a concurrent commit changed the table.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.
        """
        path, _ = resolve(self.refresh()._snapshot.schema, alter_request.to_path(column))
        identity = identity_at(self._snapshot.schema, path)
        session = lazy_spark.find_session(spark)
        last = lazy_spark.column_bound(session, self._store, self._snapshot, path, is_lowest=identity.step < 0)
        mark = synchronize_high_water_mark(identity, last)
        return self if mark is None else self.change_columns([SyncIdentity(path, mark)], spark=session)

    @check_arguments
    def add_constraint(self, name: str, condition: str, *, spark: SparkSession | None = None) -> Self:
        """Add a CHECK constraint in one commit, and return the table; all rows are checked first.

        Args:
            name: The name of the constraint; not case-sensitive.
            condition: The condition in SQL, e.g. ``"total >= 0"``; rows where it is null violate it.
            spark: The session that reads rows; by default the active one, else a local one.

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
        """Apply operations in one commit, all of them or none, and return the table at its new version.

        Args:
            operations: As for `plan_columns`.
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
            session = lazy_spark.find_session(spark)
            metrics = lazy_spark.check_operations(session, self._store, self._snapshot, operations)
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
