"""CHECK constraints: whether one may be added or dropped.

Source: Delta Lake's ADD CONSTRAINT and DROP CONSTRAINT.
"""

from __future__ import annotations

from widen.errors import ConstraintAlreadyExists, ConstraintNotFound, InvalidConstraintName
from widen.planning.table.dependent_expressions import check_constraints
from widen.planning.table.operation import AddConstraint, DropConstraint
from widen.planning.table.table_state import TableState
from widen.protocol.table_properties import CONSTRAINT_PREFIX

RESERVED = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"


def constraint_key(name: str) -> str:
    """Return the property that holds a constraint; case does not count in its name."""
    return CONSTRAINT_PREFIX + name.lower()


def ensure_new_constraint(state: TableState, operation: AddConstraint) -> None:
    """Check that a constraint may be added, as far as its name says.

    Raises:
        InvalidConstraintName: the name is empty or kept for something else.
        ConstraintAlreadyExists: there is one of that name.
    """
    if not operation.name.strip() or operation.name == RESERVED:
        raise InvalidConstraintName(name=operation.name)
    key = find_constraint(state, operation.name)
    if key is not None:
        raise ConstraintAlreadyExists(name=operation.name, expression=state.properties[key])


def ensure_constraint_exists(state: TableState, operation: DropConstraint) -> None:
    """Check that there is the constraint that is to go.

    Raises:
        ConstraintNotFound: there is none of that name.
    """
    if find_constraint(state, operation.name) is None:
        names = sorted(key[len(CONSTRAINT_PREFIX) :] for key in check_constraints(state.properties))
        raise ConstraintNotFound(name=operation.name, available=", ".join(names) or "none")


def find_constraint(state: TableState, name: str) -> str | None:
    """Return the property that holds a constraint, or None; case does not count."""
    wanted = constraint_key(name)
    return next((key for key in state.properties if key.lower() == wanted), None)
