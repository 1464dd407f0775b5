"""Whether an operation is allowed on a table: a table of checks, one for each kind; nothing is changed.

Source: Delta Lake's ALTER TABLE: the checks, their order and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from widen.planning.alter.column_checks import (
    ensure_column_addable,
    ensure_comment_allowed,
    ensure_default,
    ensure_identity_column,
    ensure_movable,
    ensure_not_identity_column,
    ensure_nullability,
)
from widen.planning.alter.column_names import ensure_renamable
from widen.planning.alter.constraint_checks import ensure_constraint_exists, ensure_new_constraint
from widen.planning.alter.drop_checks import ensure_droppable
from widen.planning.alter.replace_checks import ensure_replaceable
from widen.planning.alter.type_checks import ensure_looser_text, ensure_type_change
from widen.planning.table.operation import (
    AddColumn,
    AddConstraint,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    LoosenText,
    MoveColumn,
    Operation,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetDefault,
    SetNotNull,
    SyncIdentity,
    WidenType,
)
from widen.planning.table.table_state import TableState


def ensure_operation_allowed(state: TableState, operation: Operation) -> None:
    """Check that a table may be changed by an operation; that its rows allow it is for the caller to see.

    Args:
        state: The table just before.
        operation: Its paths are spelled as in the schema.

    Raises:
        ColumnRefused: one of its kinds: the reason is in the error.
        ConstraintRefused: likewise.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.
    """
    CHECKS[type(operation)](state, operation)


def _ensure_type(state: TableState, operation: WidenType) -> None:
    ensure_not_identity_column(state, operation.path)
    ensure_type_change(state, operation.path, operation.old, operation.new)


CHECKS: Mapping[type[Operation], Callable[[TableState, Any], None]] = {
    AddColumn: ensure_column_addable,
    AddConstraint: ensure_new_constraint,
    DropColumn: ensure_droppable,
    DropConstraint: ensure_constraint_exists,
    DropDefault: ensure_default,
    DropNotNull: ensure_nullability,
    LoosenText: ensure_looser_text,
    MoveColumn: ensure_movable,
    RenameColumn: ensure_renamable,
    ReplaceColumns: ensure_replaceable,
    SetComment: ensure_comment_allowed,
    SetDefault: ensure_default,
    SetNotNull: ensure_nullability,
    SyncIdentity: ensure_identity_column,
    WidenType: _ensure_type,
}
"""What each kind of operation is judged by."""
