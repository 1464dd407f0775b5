"""A CHECK constraint cannot be added or dropped.

Source: the error classes of Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class ConstraintRefused(RequestError):
    """A constraint cannot be added or dropped as requested."""


class InvalidConstraint(ConstraintRefused):
    """The expression cannot be used as a constraint."""

    code = "WIDEN_INVALID_CONSTRAINT"
    template = "Constraint {name} cannot be {expression!r}: {reason}."
    hint = "Must be a deterministic condition on the columns of one row, e.g. 'total >= 0'."


class ConstraintNotBoolean(InvalidConstraint):
    """The expression of a constraint does not return a boolean."""

    code = "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"


class InvalidConstraintName(ConstraintRefused):
    """The name is reserved."""

    code = "DELTA_INVALID_CONSTRAINT_NAME"
    template = "Invalid constraint name {name!r}."
    hint = "Choose another name."


class ConstraintAlreadyExists(ConstraintRefused):
    """The table already has a constraint of that name; names are compared without case."""

    code = "DELTA_CONSTRAINT_ALREADY_EXISTS"
    template = "Constraint {name} already exists: {expression}."
    hint = "Drop it first, or choose another name."


class ConstraintNotFound(ConstraintRefused):
    """The table does not have a constraint of that name."""

    code = "DELTA_CONSTRAINT_DOES_NOT_EXIST"
    template = "Constraint {name} does not exist."
    hint = "Available: {available}."


class ConstraintViolated(ConstraintRefused):
    """Existing rows violate the new constraint."""

    code = "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"
    template = "Constraint {name} cannot be added, because {rows} rows violate {expression}."
    hint = "Correct or delete these rows first, or choose another condition. A row for which it is null violates it."
