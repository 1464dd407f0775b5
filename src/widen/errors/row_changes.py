"""An overwrite, update, delete or merge cannot be executed.

Source: Delta Lake's error classes for UPDATE, DELETE, MERGE and partial overwrites.
"""

from __future__ import annotations

from widen.errors.family import RequestError
from widen.errors.rows import CastOverflow, RowRefused, SchemaMismatch


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
