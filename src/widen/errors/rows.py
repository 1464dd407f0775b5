"""The data do not fit the columns or the constraints of the table.

Source: the error classes of Delta Lake and Spark for writes.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class SchemaMismatch(RequestError):
    """The schema of the data does not fit the table, and the call does not allow the schema changes it needs."""

    code = "DELTA_METADATA_MISMATCH"
    template = "The data do not fit the table: {reason}."
    hint = "{fix} The data need:\n{plan}"


class IncompatibleTypes(SchemaMismatch):
    """The type of a column in the data can neither be widened nor cast to that of the table."""

    code = "DELTA_MERGE_INCOMPATIBLE_DATATYPE"


class ConstraintTypeMismatch(SchemaMismatch):
    """Automatic widening does not apply to a column that a CHECK constraint uses."""

    code = "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"
    template = (
        "Column {column} cannot be widened from {old} to {new} automatically, because CHECK constraints use it:\n"
        "{constraints}"
    )
    hint = "Cast the data to {old}, or drop the constraints first and add them again afterwards."


class GeneratedColumnTypeMismatch(SchemaMismatch):
    """Automatic widening does not apply to a column that a generated column is computed from."""

    code = "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH"
    template = (
        "Column {column} cannot be widened from {old} to {new} automatically, because generated columns use it:\n"
        "{columns}"
    )
    hint = "Cast the data to {old}, or write them to a new column."


class IdentityColumnGiven(RequestError):
    """The data contain values for a GENERATED ALWAYS AS IDENTITY column."""

    code = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
    template = "Column {column} is GENERATED ALWAYS AS IDENTITY, so the data must not contain it."
    hint = "Remove it: frame.drop({column!r})."


class IdentityExhausted(RequestError):
    """An identity column has no values left."""

    code = "DELTA_IDENTITY_COLUMNS_OVERFLOW"
    template = "Column {column} has no identity values left: the next value would be out of range for bigint."
    hint = "Nothing was written. Write the rows to a new table, whose identity values start again."


class RowRefused(RequestError):
    """A row of the data violates a rule of the table; nothing was written."""


class NotNullViolated(RowRefused):
    """A row has null in a NOT NULL column."""

    code = "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    template = "Column {column} is NOT NULL, but a row has null in it."
    hint = "Nothing was written. Fill the column, or allow null: alter_column(..., nullable=True)."


class CheckViolated(RowRefused):
    """A row violates a CHECK constraint, an invariant or the expression of a generated column."""

    code = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    template = "{name} ({expression}) is not true for a row with {values}."
    hint = "Nothing was written. Correct or remove such rows. A row for which the condition is null violates it."


class StringTooLong(RowRefused):
    """A string is longer than its column allows."""

    code = "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
    template = "The string {value!r} is too long for column {column}, which is {limit}."
    hint = "Nothing was written. Shorten it, or remove the limit: alter_column({column!r}, type='string')."


class WrongLength(RowRefused):
    """A value has another number of bytes than all values of its uuid or fixed column must have."""

    code = "WIDEN_WRONG_LENGTH"
    template = "A value for column {column} has a wrong length: it must have {size} bytes."
    hint = "Nothing was written. Correct or remove such rows."


class CastOverflow(RowRefused):
    """A value cannot be cast to the type of its column."""

    code = "CAST_OVERFLOW_IN_TABLE_INSERT"
    template = "The value {value} ({old}) does not fit column {column}, which is {new}."
    hint = "Nothing was written. Widen the column, or use try_cast, which replaces such values by null."


class IcebergIncompatible(RequestError):
    """The change violates a rule of the table's Iceberg compatibility."""

    code = "DELTA_ICEBERG_COMPAT_VIOLATION"
    template = "IcebergCompatV{version} does not allow this ({kind}): {reason}."
    hint = "{fix}"
