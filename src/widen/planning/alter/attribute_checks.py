"""Whether a column may get another comment, position, nullability, default or high-water mark.

Source: Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

from widen.errors import (
    DefaultsNotEnabled,
    IdentityColumnFixed,
    InvalidDefault,
    ItemCommentRefused,
    ItemRenameRefused,
    NestedNotNull,
    NotAnIdentityColumn,
    TypeChangeRefused,
)
from widen.model.column_path import Path, find_field, format_path, nearest_field, resolve
from widen.model.types import StructType
from widen.planning.table.expression_columns import is_constant
from widen.planning.table.operation import (
    DropDefault,
    DropNotNull,
    MoveColumn,
    SetComment,
    SetDefault,
    SetNotNull,
    SyncIdentity,
)
from widen.planning.table.table_state import TableState
from widen.protocol.column_metadata import Identity, find_identity
from widen.protocol.table_features import is_supported


def ensure_comment_allowed(state: TableState, operation: SetComment) -> None:
    """Check that a comment may be set.

    Raises:
        ItemCommentRefused: the column is an element, a key or a value.
    """
    if find_field(state.schema, operation.path) is None:
        raise ItemCommentRefused(column=format_path(operation.path))


def ensure_movable(state: TableState, operation: MoveColumn) -> None:
    """Check that a column may be moved.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
    """
    if find_field(state.schema, operation.path) is None:
        raise ItemRenameRefused(column=format_path(operation.path), verb="moved")


def ensure_nullability(state: TableState, operation: SetNotNull | DropNotNull) -> None:
    """Check that the nullability of a column may change. Rows are not read here.

    Raises:
        IdentityColumnFixed: it is an identity column.
        TypeChangeRefused: it is an element, a key or a value.
        NestedNotNull: it would become NOT NULL in an array, in a map, or in a nullable struct.

    Source: Delta Lake's invariants. Differs: Delta Lake accepts NOT NULL only in new tables.
    """
    path, schema = operation.path, state.schema
    field = find_field(schema, path)
    if field is None:
        sql = resolve(schema, path)[1].sql.upper()
        old, new = (sql, f"{sql} NOT NULL")[:: 1 if isinstance(operation, SetNotNull) else -1]
        reason = "the nullability of elements, keys and values is fixed"
        fix = "Write the values to a new column instead."
        raise TypeChangeRefused(column=format_path(path), old=old, new=new, reason=reason, fix=fix)
    ensure_not_identity_column(state, path)
    if isinstance(operation, DropNotNull):
        return
    for end in range(1, len(path)):
        parent = find_field(schema, path[:end])
        if parent is None or not isinstance(parent.type, StructType):
            raise NestedNotNull(column=format_path(path), reason="it is in an array or a map")
        if parent.nullable:
            raise NestedNotNull(column=format_path(path), reason=f"{format_path(path[:end])} is nullable")


def ensure_default(state: TableState, operation: SetDefault | DropDefault) -> None:
    """Check that the default of a column may be set or dropped. Spark checks the expression later.

    Raises:
        ItemRenameRefused: the column is in a struct, an array or a map.
        IdentityColumnFixed: it is an identity column.
        DefaultsNotEnabled: the table does not support defaults.
        InvalidDefault: the default cannot be parsed, or references columns or tables.

    Source: PROTOCOL.md#default-columns; Spark for what a default may be.
    """
    path = operation.path
    if len(path) > 1:
        raise ItemRenameRefused(column=format_path(path), verb="given a default")
    ensure_not_identity_column(state, path)
    if isinstance(operation, DropDefault):
        return
    if not is_supported(state.protocol, "allowColumnDefaults"):
        raise DefaultsNotEnabled(column=format_path(path))
    if not is_constant(operation.expression):
        reason = "it is not an expression, or it references columns or tables"
        raise InvalidDefault(column=format_path(path), expression=operation.expression, reason=reason)


def ensure_not_identity_column(state: TableState, path: Path) -> None:
    """Check that a column is not an identity column.

    Raises:
        IdentityColumnFixed: it is one.
    """
    if find_identity(nearest_field(state.schema, path)) is not None:
        raise IdentityColumnFixed(column=format_path(path))


def ensure_identity_column(state: TableState, operation: SyncIdentity) -> None:
    """Check that a column is an identity column.

    Raises:
        NotAnIdentityColumn: it is not one.
    """
    identity_at(state.schema, operation.path)


def identity_at(schema: StructType, path: Path) -> Identity:
    """Return the sequence of an identity column.

    Raises:
        NotAnIdentityColumn: it is not one.
    """
    field = find_field(schema, path)
    identity = find_identity(field) if field else None
    if identity is None:
        raise NotAnIdentityColumn(column=format_path(path))
    return identity
