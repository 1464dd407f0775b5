"""Whether an operation is allowed on a table: a table with one check for each kind of operation.

Source: Delta Lake's ALTER TABLE and ADD CONSTRAINT: the checks, their order and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from widen.errors import ConstraintAlreadyExists, ConstraintNotFound, InvalidConstraintName
from widen.planning.alter.attribute_checks import (
    ensure_comment_allowed,
    ensure_default,
    ensure_identity_column,
    ensure_movable,
    ensure_not_identity_column,
    ensure_nullability,
)
from widen.planning.alter.column_checks import (
    ensure_column_addable,
    ensure_droppable,
    ensure_renamable,
    ensure_replaceable,
)
from widen.planning.alter.type_checks import ensure_looser_text, ensure_type_change
from widen.planning.table import operation as op
from widen.planning.table.dependent_expressions import check_constraints, find_constraint
from widen.planning.table.table_state import TableState
from widen.protocol.table_properties import CONSTRAINT_PREFIX

RESERVED = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"
"""The name that Delta Spark gives to its check of varchar lengths."""


def ensure_operation_allowed(state: TableState, operation: op.Operation) -> None:
    """Check that the metadata of a table allows an operation. Rows are not read here.

    Args:
        operation: The operation, with paths spelled as in the schema.

    Raises:
        ColumnRefused: an operation on a column is not allowed; a subclass says why.
        ConstraintRefused: an operation on a constraint is not allowed; a subclass says why.
        EnabledWithoutFeature: type widening is enabled, but the protocol does not list the feature.
    """
    CHECKS[type(operation)](state, operation)


def _ensure_type(state: TableState, operation: op.WidenType) -> None:
    ensure_not_identity_column(state, operation.path)
    ensure_type_change(state, operation.path, operation.old, operation.new)


def ensure_new_constraint(state: TableState, operation: op.AddConstraint) -> None:
    """Check that the name of a new constraint is allowed.

    Raises:
        InvalidConstraintName: the name is empty or reserved.
        ConstraintAlreadyExists: a constraint of that name exists.
    """
    if not operation.name.strip() or operation.name == RESERVED:
        raise InvalidConstraintName(name=operation.name)
    key = find_constraint(state, operation.name)
    if key is not None:
        raise ConstraintAlreadyExists(name=operation.name, expression=state.properties[key])


def ensure_constraint_exists(state: TableState, operation: op.DropConstraint) -> None:
    """Check that the constraint to drop exists.

    Raises:
        ConstraintNotFound: it does not exist.
    """
    if find_constraint(state, operation.name) is None:
        names = sorted(key[len(CONSTRAINT_PREFIX) :] for key in check_constraints(state.properties))
        raise ConstraintNotFound(name=operation.name, available=", ".join(names) or "none")


CHECKS: Mapping[type[op.Operation], Callable[[TableState, Any], None]] = {
    op.AddColumn: ensure_column_addable,
    op.AddConstraint: ensure_new_constraint,
    op.DropColumn: ensure_droppable,
    op.DropConstraint: ensure_constraint_exists,
    op.DropDefault: ensure_default,
    op.DropNotNull: ensure_nullability,
    op.LoosenText: ensure_looser_text,
    op.MoveColumn: ensure_movable,
    op.RenameColumn: ensure_renamable,
    op.ReplaceColumns: ensure_replaceable,
    op.SetComment: ensure_comment_allowed,
    op.SetDefault: ensure_default,
    op.SetNotNull: ensure_nullability,
    op.SyncIdentity: ensure_identity_column,
    op.WidenType: _ensure_type,
}
"""The check for each kind of operation."""
