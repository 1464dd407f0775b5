"""The columns of a table: change, rename, add, drop, replace; and the conditions on them.

No file is rewritten. Where all rows must allow a change, they are looked at first, and the commit fails if files have
come since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from widen.log.write.commit import ReadSet, commit
from widen.model.argument_types import check_arguments
from widen.model.column_path import resolve
from widen.model.types import DataType
from widen.planning.alter import alter_request
from widen.planning.alter.alter_request import AnyPath, ByPath, ColumnChanges, NewColumn
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
from widen.table.table_version import Self, TableVersion

if TYPE_CHECKING:
    from widen.spark.spark_types import SchemaLike, SparkSession
else:
    # Type hints must resolve where Spark is not installed.
    SchemaLike = SparkSession = Any


class ColumnChangesMixin(TableVersion):
    """A table whose columns are changed; no file is rewritten."""

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
        """Change a column in one commit, and return the table at its new version; what is None stays as it is.

        Args:
            column: The column, e.g. ``amount``, ``address.zip``, ``tags.element``, ``prices.value``.
            type: The wider type, e.g. ``"bigint"``; widening must be enabled. For texts also ``"varchar(20)"``.
            comment: The new comment; the empty text is one too.
            nullable: Whether it may be null. To forbid it, all rows are looked at: none may have null in it.
            first: Whether it becomes the first of its struct.
            after: The name of the column that it is to follow.
            default: What rows have in it that say nothing of it, in SQL; ``allowColumnDefaults`` must be supported.
            drop_default: Whether such rows have null in it.
            spark: The session to look at rows and at defaults in; by default the active one, else a local one. It is
                needed for nothing else.

        Raises:
            ColumnRefused: one of its kinds: there is no such column, or it cannot be changed so.
            InvalidPath: the path cannot be read.
            InvalidType: the type cannot be read.
            FeatureRequired: the new type needs a feature that the table does not have.
            InvalidOption: the default is no constant, or two wishes contradict each other.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER COLUMN.
        """
        given = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
        wanted = {key: value for key, value in given.items() if value is not None}
        changes = ColumnChanges(**wanted, first=first, drop_default=drop_default)  # type: ignore[typeddict-item]
        return self.alter_columns({column: changes}, spark=spark)

    @check_arguments
    def alter_columns(self, changes: ByPath[ColumnChanges], *, spark: SparkSession | None = None) -> Self:
        """Change several columns in one commit, all of them or none, and return the table at its new version.

        Args:
            changes: What is to become of each, by its path, e.g. ``{"a": {"type": "bigint"}, "s.b": {"first": True}}``;
                they are made in their order.
            spark: As for `alter_column`.

        Raises:
            ColumnRefused: one of its kinds: there is no such column, or it cannot be changed so.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            FeatureRequired: a new type needs a feature that the table does not have.
            InvalidOption: a default is no constant, or two wishes contradict each other.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: Delta Lake's ALTER COLUMN.
        """
        return self.change_columns(
            alter_request.parse_column_changes(self.refresh()._snapshot.schema, changes), spark=spark
        )

    @check_arguments
    def rename_column(self, column: AnyPath, name: str) -> Self:
        """Give a column another name in one commit; the table must map its columns.

        Args:
            column: The column.
            name: Its new name alone, without what it is in.

        Raises:
            ColumnRefused: one of its kinds: there is no such column, the name is taken, or something depends on it.
            InvalidPath: the path cannot be read.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#column-mapping; Delta Lake's RENAME COLUMN.
        """
        return self.change_columns(alter_request.parse_rename(self.refresh()._snapshot.schema, column, name))

    @check_arguments
    def add_columns(self, columns: ByPath[DataType | str | NewColumn]) -> Self:
        """Add columns or nested fields in one commit; rows written before have null in them.

        Args:
            columns: Each by its path: the type, or more, e.g. ``{"items.element.price": "decimal(10,2)",
                "note": {"type": "string", "comment": "by hand", "after": "id"}}``.

        Raises:
            ColumnRefused: one of its kinds: there is such a column, it would be in no struct, or cannot be so.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            FeatureRequired: a type needs a feature that the table does not have.
            InvalidOption: two wishes contradict each other.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#change-metadata; Delta Lake's ADD COLUMNS.
        """
        return self.change_columns(alter_request.parse_new_columns(self.refresh()._snapshot.schema, columns))

    @check_arguments
    def drop_columns(self, *columns: AnyPath, if_exists: bool = False) -> Self:
        """Take columns or nested fields away in one commit; the table must map its columns.

        Args:
            columns: The columns, each with everything inside it.
            if_exists: Whether one that is not there is none to complain of.

        Raises:
            ColumnRefused: one of its kinds: there is no such column, or something depends on it.
            InvalidPath: a path cannot be read.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#column-mapping; Delta Lake's DROP COLUMNS.
        """
        return self.change_columns(
            alter_request.parse_drops(self.refresh()._snapshot.schema, columns, if_exists=if_exists)
        )

    @check_arguments
    def replace_columns(self, schema: SchemaLike) -> Self:
        """Let the columns be those given, in that order, in one commit; those that stay keep what is known of them.

        Args:
            schema: All columns. They may be wider; new ones may come, or, where columns are mapped, others go.

        Raises:
            ColumnRefused: one of its kinds: a column cannot change so, or something depends on it.
            InvalidType: the text of the schema cannot be read.
            FeatureRequired: a type needs a feature that the table does not have.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: Delta Lake's REPLACE COLUMNS.
        """
        self.refresh()
        return self.change_columns(alter_request.parse_replacement(lazy_spark.to_schema(schema)))

    @check_arguments
    def sync_identity(self, column: AnyPath, *, spark: SparkSession | None = None) -> Self:
        """Let an identity column go on behind all its values, in one commit; all rows are looked at.

        Args:
            column: The column.
            spark: The session to look at rows in; by default the active one, else a local one.

        Raises:
            ColumnRefused: one of its kinds: there is no such column, or it is no identity column.
            InvalidPath: the path cannot be read.
            ContentionError: somebody changed the table meanwhile.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.
        """
        found, _ = resolve(self.refresh()._snapshot.schema, alter_request.to_path(column))
        identity = identity_at(self._snapshot.schema, found)
        session = lazy_spark.find_session(spark)
        last = lazy_spark.column_bound(session, self._store, self._snapshot, found, is_lowest=identity.step < 0)
        mark = synchronize_high_water_mark(identity, last)
        return self if mark is None else self.change_columns([SyncIdentity(found, mark)], spark=session)

    @check_arguments
    def add_constraint(self, name: str, condition: str, *, spark: SparkSession | None = None) -> Self:
        """Forbid rows that do not fulfil a condition, in one commit; all rows are looked at first.

        Args:
            name: What it is called; case does not count.
            condition: The condition in SQL, e.g. ``"total >= 0"``; null does not fulfil it.
            spark: The session to look at rows in; by default the active one, else a local one.

        Raises:
            ConstraintRefused: one of its kinds: the name or the condition cannot be used, or rows do not fulfil it.
            ContentionError: somebody changed the table meanwhile.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#check-constraints; Delta Lake's ADD CONSTRAINT.
        """
        self.refresh()
        return self.change_columns([AddConstraint(name, condition)], spark=spark)

    @check_arguments
    def drop_constraint(self, name: str, *, if_exists: bool = False) -> Self:
        """Allow what a constraint forbade, in one commit.

        Args:
            name: What it is called; case does not count.
            if_exists: Whether one that is not there is none to complain of.

        Raises:
            ConstraintNotFound: there is none of that name.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: Delta Lake's DROP CONSTRAINT.
        """
        is_there = find_constraint(self.refresh()._state, name) is not None
        return self.change_columns([DropConstraint(name)] if is_there or not if_exists else [])

    @check_arguments
    def plan_columns(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return what operations would change, in their order; nothing is committed, and no row is looked at.

        Args:
            operations: For the version that this object shows, and of one kind: additions, removals, changes of columns
                that stay, or one of any other kind.

        Raises:
            ColumnRefused: one of its kinds: the reason is in the error.
            ConstraintRefused: likewise.
            FeatureRequired: a type needs a feature that the table does not have.
        """
        change = plan_alter(self._state, operations)
        return change.operations if change else ()

    @check_arguments
    def change_columns(self, operations: Sequence[Operation], *, spark: SparkSession | None = None) -> Self:
        """Apply operations in one commit, all of them or none, and return the table at its new version.

        Args:
            operations: As for `plan_columns`.
            spark: The session to look at rows in, where they have to allow it; by default the active one, else a
                local one. The commit then fails if rows have come since.

        Raises:
            ColumnRefused: one of its kinds: the reason is in the error.
            ConstraintRefused: likewise.
            FeatureRequired: a type needs a feature that the table does not have.
            ContentionError: somebody changed the schema or the properties meanwhile, or rows that were looked at.
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
