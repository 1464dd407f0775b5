"""The caller asked for a CHECK constraint that a table cannot have, or to drop one that it does not have.

Source: Delta Lake's ALTER TABLE: its error classes.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class ConstraintRefused(RequestError):
    """A constraint cannot be added or dropped as was asked."""


class InvalidConstraint(ConstraintRefused):
    """The expression of a constraint cannot be used."""

    code = "WIDEN_INVALID_CONSTRAINT"
    template = "{name} cannot be the constraint {expression!r}: {reason}."
    hint = "Give a condition on the columns of one row, of the same answer each time, e.g. 'total >= 0'."


class ConstraintNotBoolean(InvalidConstraint):
    """The expression of a constraint is no condition."""

    code = "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"


class InvalidConstraintName(ConstraintRefused):
    """The name is kept for something else."""

    code = "DELTA_INVALID_CONSTRAINT_NAME"
    template = "No constraint can be called {name!r}."
    hint = "Choose another name."


class ConstraintAlreadyExists(ConstraintRefused):
    """There is a constraint of that name; case does not count."""

    code = "DELTA_CONSTRAINT_ALREADY_EXISTS"
    template = "There is a constraint {name} already: {expression}."
    hint = "Drop it first, or choose another name."


class ConstraintNotFound(ConstraintRefused):
    """There is no constraint of that name."""

    code = "DELTA_CONSTRAINT_DOES_NOT_EXIST"
    template = "There is no constraint {name}."
    hint = "There are: {available}."


class ConstraintViolated(ConstraintRefused):
    """There are rows that the constraint forbids."""

    code = "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"
    template = "The constraint {name} cannot be added: {rows} rows are not {expression}."
    hint = "Repair or delete these rows first, or choose another condition; null does not fulfil one."
