"""Whether an operation is allowed on a table: a table of checks, one for each kind; nothing is changed.

Source: Delta Lake's ALTER TABLE: the checks, their order and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from widen.planning.constraint import ensure_known_constraint, ensure_new_constraint
from widen.planning.detail import (
    ensure_comment,
    ensure_default,
    ensure_identity,
    ensure_movable,
    ensure_new,
    ensure_no_identity,
    ensure_nullability,
)
from widen.planning.naming import ensure_renamable
from widen.planning.operation import (
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
from widen.planning.removal import ensure_droppable
from widen.planning.replacement import ensure_replaceable
from widen.planning.retype import ensure_looser_text, ensure_type_change
from widen.planning.state import State


def ensure_allowed(state: State, operation: Operation) -> None:
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


def _ensure_type(state: State, operation: WidenType) -> None:
    ensure_no_identity(state, operation.path)
    ensure_type_change(state, operation.path, operation.old, operation.new)


CHECKS: Mapping[type[Operation], Callable[[State, Any], None]] = {
    AddColumn: ensure_new,
    AddConstraint: ensure_new_constraint,
    DropColumn: ensure_droppable,
    DropConstraint: ensure_known_constraint,
    DropDefault: ensure_default,
    DropNotNull: ensure_nullability,
    LoosenText: ensure_looser_text,
    MoveColumn: ensure_movable,
    RenameColumn: ensure_renamable,
    ReplaceColumns: ensure_replaceable,
    SetComment: ensure_comment,
    SetDefault: ensure_default,
    SetNotNull: ensure_nullability,
    SyncIdentity: ensure_identity,
    WidenType: _ensure_type,
}
"""What each kind of operation is judged by."""
