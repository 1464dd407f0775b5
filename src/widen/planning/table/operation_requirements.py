"""What each kind of operation requires beyond the schema: a table feature, a Spark session, a check of all rows.

Code that commits operations reads this table instead of testing for their classes.

Source: Delta Lake's ALTER TABLE; PROTOCOL.md#check-constraints, #column-invariants
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from widen.planning.table import operation as op


class RowAccess(Enum):
    """What an operation has to do with the rows of the table."""

    NONE = "none"
    """It holds for any rows."""
    READ = "read"
    """It was computed from the rows, so the commit must conflict with rows that arrive meanwhile."""
    CHECKED = "checked"
    """Every row must allow it, and so must rows that arrive meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one kind of operation requires.

    Args:
        feature: The table feature that the commit adds if the table does not support it.
        has_expression: Whether it brings an expression that Spark must accept, independent of the rows.
    """

    feature: str | None = None
    rows: RowAccess = RowAccess.NONE
    has_expression: bool = False


_NOTHING = Requirement()

REQUIREMENTS: Mapping[type[op.Operation], Requirement] = {
    op.AddColumn: _NOTHING,
    op.AddConstraint: Requirement(feature="checkConstraints", rows=RowAccess.CHECKED),
    op.CreateTable: _NOTHING,
    op.DropColumn: _NOTHING,
    op.DropConstraint: _NOTHING,
    op.DropDefault: _NOTHING,
    op.DropNotNull: _NOTHING,
    op.LoosenText: _NOTHING,
    op.MoveColumn: _NOTHING,
    op.RenameColumn: _NOTHING,
    op.ReplaceColumns: _NOTHING,
    op.SetComment: _NOTHING,
    op.SetDefault: Requirement(has_expression=True),
    op.SetNotNull: Requirement(feature="invariants", rows=RowAccess.CHECKED),
    op.SyncIdentity: Requirement(rows=RowAccess.READ),
    op.WidenType: _NOTHING,
}
"""What each kind of operation requires."""


def added_features(operations: Iterable[op.Operation]) -> set[str]:
    """Return the table features that operations add to the protocol."""
    features = (REQUIREMENTS[type(operation)].feature for operation in operations)
    return {feature for feature in features if feature is not None}


def row_checks(operations: Iterable[op.Operation]) -> list[op.Operation]:
    """Return those of the operations that every row of the table must allow."""
    return [operation for operation in operations if REQUIREMENTS[type(operation)].rows is RowAccess.CHECKED]


def needs_spark(operations: Iterable[op.Operation]) -> bool:
    """Tell whether a Spark session must check any of the operations before they are committed."""
    needs = (REQUIREMENTS[type(operation)] for operation in operations)
    return any(need.has_expression or need.rows is RowAccess.CHECKED for need in needs)


def depends_on_rows(operations: Iterable[op.Operation]) -> bool:
    """Tell whether rows that arrive before the commit may make any of the operations wrong."""
    return any(REQUIREMENTS[type(operation)].rows is not RowAccess.NONE for operation in operations)
