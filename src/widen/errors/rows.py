"""Rows that a table may not take: what does not fit its columns, and what its rules forbid.

Source: Delta Lake and Spark: their error classes for writes.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class SchemaMismatch(RequestError):
    """The data do not fit the table and the call does not allow what would make them fit."""

    code = "DELTA_METADATA_MISMATCH"
    template = "The data do not fit the table: {reason}."
    hint = "{fix} What they need:\n{plan}"


class IncompatibleTypes(SchemaMismatch):
    """A column of the data has a type that cannot become the one of the table, not even by a cast."""

    code = "DELTA_MERGE_INCOMPATIBLE_DATATYPE"


class ConstraintTypeMismatch(SchemaMismatch):
    """A column would become wider by itself, and a CHECK constraint refers to it."""

    code = "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"
    template = "Column {column} cannot widen from {old} to {new} by itself, for constraints refer to it:\n{constraints}"
    hint = "Cast the data to {old}, or drop the constraints first and add them again afterwards."


class GeneratedColumnTypeMismatch(SchemaMismatch):
    """A column would become wider by itself, and a generated column is made of it."""

    code = "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH"
    template = "Column {column} cannot widen from {old} to {new} by itself, for generated columns use it:\n{columns}"
    hint = "Cast the data to {old}, or write them to a new column."


class IdentityColumnGiven(RequestError):
    """The data have values for a column whose values only the table makes."""

    code = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
    template = "Column {column} is GENERATED ALWAYS AS IDENTITY; no values can be given for it."
    hint = "Leave it out: frame.drop({column!r})."


class IdentityExhausted(RequestError):
    """An identity column has no further values."""

    code = "DELTA_IDENTITY_COLUMNS_OVERFLOW"
    template = "Column {column} has no identity values left: the next ones would be beyond bigint."
    hint = "Write the rows to a new table, whose numbers begin anew. Nothing was written."


class RowRefused(RequestError):
    """A row of the data is one that the table may not hold; nothing was written."""


class NotNullViolated(RowRefused):
    """A column that must not be null is null."""

    code = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    template = "Column {column} must not be null, and a row has null in it."
    hint = "Fill the column, or let it be null: alter_column(..., nullable=True). Nothing was written."


class CheckViolated(RowRefused):
    """A row does not fulfil a constraint, an invariant or the expression of a generated column."""

    code = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    template = "{name} ({expression}) is not true for a row with {values}."
    hint = "Repair or leave out such rows; null does not fulfil a condition. Nothing was written."


class TextTooLong(RowRefused):
    """A text is longer than its column allows."""

    code = "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
    template = "The text {value!r} is too long for column {column}, which is {limit}."
    hint = "Shorten it, or let the column be longer: alter_column({column!r}, type='string'). Nothing was written."


class CastOverflow(RowRefused):
    """A value is beyond the range of the column that it was to be cast to."""

    code = "CAST_OVERFLOW_IN_TABLE_INSERT"
    template = "The value {value} ({old}) is out of range for column {column}, which is {new}."
    hint = "Let the column widen, or use try_cast on the data to make null of such values. Nothing was written."


class IcebergIncompatible(RequestError):
    """The table would no longer be one that Iceberg can read."""

    code = "DELTA_ICEBERG_COMPAT_VIOLATION"
    template = "IcebergCompatV{version} forbids it ({kind}): {reason}."
    hint = "{fix}"
