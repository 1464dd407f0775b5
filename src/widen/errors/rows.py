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
    """The type of a column in the data can neither be widened nor cast to the table's type."""

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


class IdentityColumnUpdate(RequestError):
    """An UPDATE assigns a value to an identity column."""

    code = "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED"
    template = "Column {column} is an identity column, whose values cannot be updated."
    hint = "Leave it out, or insert the rows again with the values that you want."


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
    template = "The string {value} is too long for column {column}, which is {limit}."
    hint = "Nothing was written. Shorten it, or remove the limit: alter_column({column!r}, type='string')."


class WrongLength(RowRefused):
    """A value has another number of bytes than all values of its uuid or fixed column must have."""

    code = "WIDEN_WRONG_LENGTH"
    template = "A value for column {column} has the wrong length: expected {size} bytes."
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


# An overwrite, update, delete or merge cannot be executed.
#
# Source: Delta Lake's error classes for UPDATE, DELETE, MERGE and partial overwrites.


class ChangeRefused(RequestError):
    """A change of rows is ambiguous or not supported."""


class AssignmentConflict(ChangeRefused):
    """Two assignments of one clause set the same column, or a column and one of its fields."""

    code = "DELTA_CONFLICT_SET_COLUMN"
    template = "The assignments to {columns} conflict."
    hint = "Assign the whole column, or each of its fields once."


class ItemAssignmentRefused(ChangeRefused):
    """Values inside an array or a map cannot be assigned by path."""

    code = "DELTA_UNSUPPORTED_FIELD_UPDATE_NON_STRUCT"
    template = "{column} cannot be assigned by path, because {parent} is {type}, not a struct."
    hint = "Assign {parent} as a whole, e.g. with transform or map_concat."


class OverwriteRefused(ChangeRefused):
    """Two options of an overwrite contradict each other."""

    code = "WIDEN_OVERWRITE_OPTIONS"
    template = "{option} and {other_option} cannot be used together: {reason}."
    hint = "Omit one of them."


class ReplaceWhereInPartitions(OverwriteRefused):
    """A condition and dynamic partition overwrite both define the rows to replace."""

    code = "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"


class NewSchemaInPartitions(OverwriteRefused):
    """A new schema applies to all rows, but dynamic partition overwrite keeps some partitions."""

    code = "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"


class NotDeterministic(ChangeRefused):
    """A condition may give different results for the same row."""

    code = "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"
    template = "The condition {condition} is not deterministic: it may give different results for the same row."
    hint = "Write the value to a column first, and compare that column."


class InvalidCondition(ChangeRefused):
    """Spark cannot resolve or evaluate a condition or an expression on the rows of the table."""

    code = "WIDEN_CONDITION_UNUSABLE"
    template = "{condition} cannot be used: {reason}."
    hint = "Use the column names of the schema; in a merge, with the alias of their side, e.g. t.id = s.id."


class MergeWithoutClause(ChangeRefused):
    """A merge has no WHEN clause."""

    code = "DELTA_MERGE_MISSING_WHEN"
    template = "The merge has no clauses, so it would not change anything."
    hint = "Add clauses, e.g. .when_matched_update_all().when_not_matched_insert_all() before .execute()."


class UnreachableClause(ChangeRefused):
    """A merge clause follows a clause of its kind without a condition, so it would never apply."""

    code = "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"
    template = "Only the last {kind} clause of a merge can omit its condition, but one before {clause} does."
    hint = "Add a condition to the earlier clause, or remove the later one."


class AmbiguousMerge(ChangeRefused):
    """Several source rows match the same row of the table."""

    code = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    template = "{count} rows of the table match more than one row of the source."
    hint = "Nothing was written. Keep one source row for each key, e.g. source.dropDuplicates([...])."


class ColumnMissingInSource(SchemaMismatch):
    """The source of a merge does not have a column that ``*`` requires."""

    code = "DELTA_MERGE_UNRESOLVED_EXPRESSION"


class AssignedOverflow(CastOverflow):
    """An assigned value cannot be cast to the type of its column."""

    code = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"
    template = "The value {value} ({old}) does not fit column {column}, which is {new}."
    hint = "Nothing was written. Widen the column first, or use try_cast, which replaces such values by null."


class ReplaceWhereMismatch(RowRefused):
    """A row does not match the condition of a partial overwrite."""

    code = "DELTA_REPLACE_WHERE_MISMATCH"
    template = "The overwrite is limited to rows where {where}, but the data contain other rows."
    hint = "Nothing was written. Filter the data, e.g. frame.where({where!r}), or relax the condition."


class FoldRefused(ChangeRefused):
    """A sibling column cannot be folded into the given column."""

    code = "WIDEN_FOLD_REFUSED"
    template = "{column} cannot be folded into {into}: {reason}."
    hint = "Name a sibling column, and a column of the same field with single values or arrays of them."


class FoldLosesValues(ChangeRefused):
    """Folding a sibling column would lose values."""

    code = "WIDEN_FOLD_LOSES"
    template = (
        "{lost} of {values} values of {column} cannot be converted exactly to {type}, or their rows have another value "
        "there."
    )
    hint = "Correct them, or pass rest='keep' (--rest keep) to fold only the others, or rest='lose' to discard these."


# Reading the changes between two versions failed.
#
# Source: the error classes of Delta Spark's change data feed.


class ChangeFeedRefused(RequestError):
    """The changes between two versions cannot be read, or not with the requested columns."""

    template = "Cannot read the changes from version {first} to {last}: {reason}."
    hint = "{fix}"


class ChangeFeedNotRecorded(ChangeFeedRefused):
    """The change data feed was disabled in one of the versions."""

    code = "DELTA_MISSING_CHANGE_DATA"
    template = "Cannot read the changes from version {first} to {last}: version {version} did not record its changes."
    hint = (
        "Start after version {version}. To record changes from now on, call "
        "set_properties({{'delta.enableChangeDataFeed': 'true'}})."
    )


class ChangeFeedSchemaMismatch(ChangeFeedRefused):
    """The first version of the range has other columns or types than the opened version of the table."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    template = (
        "Cannot read the changes from version {first} to {last} with the columns of version {shown}, {schema}: "
        "version {version} has other columns or types."
    )
    hint = (
        "Read them with the columns of one of these versions: "
        'spark.read.format("widen").option("readChangeFeed", "true").option("startingVersion", {first})'
        '.option("endingVersion", {last}).option("versionAsOf", {last})'
    )


class ChangeFeedSchemaChanged(ChangeFeedRefused):
    """The columns or their types changed within the range of versions."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
    template = (
        "Cannot read the changes from version {first} to {last} with the columns of version {shown}, {schema}: "
        "version {version} changed the columns."
    )
    hint = "Read the changes before version {version} and those from version {version} on separately."
