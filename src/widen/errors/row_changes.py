"""Changes of rows that cannot be: what overwrite, update, delete and merge refuse.

Source: Delta Lake: its error classes for UPDATE, DELETE, MERGE and partial overwrites.
"""

from __future__ import annotations

from widen.errors.family import RequestError
from widen.errors.rows import CastOverflow, RowRefused, SchemaMismatch


class ChangeRefused(RequestError):
    """What is asked of the rows is not clear, or cannot be done."""


class AssignmentConflict(ChangeRefused):
    """Two assignments of one clause go to the same column, or to a column and a field in it."""

    code = "DELTA_CONFLICT_SET_COLUMN"
    template = "The assignments to {columns} contradict each other."
    hint = "Assign the whole column, or each of its fields once."


class ItemAssignmentRefused(ChangeRefused):
    """What is inside an array or a map cannot be assigned by its path."""

    code = "DELTA_UNSUPPORTED_FIELD_UPDATE_NON_STRUCT"
    template = "{column} cannot be assigned by itself: {parent} is {type}, and only fields of structs can be."
    hint = "Assign {parent} as a whole, e.g. with transform, map_concat or another function."


class OverwriteRefused(ChangeRefused):
    """Two options of an overwrite contradict each other."""

    code = "WIDEN_OVERWRITE_OPTIONS"
    template = "{one} and {other} cannot go together: {reason}."
    hint = "Leave one of them out."


class ReplaceWhereInPartitions(OverwriteRefused):
    """A condition and the partitions of the data both say what is overwritten."""

    code = "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE"


class NewSchemaInPartitions(OverwriteRefused):
    """A new schema is for all rows, and some partitions stay as they are."""

    code = "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"


class NotDeterministic(ChangeRefused):
    """A condition may say something else the next time that it is asked about the same row."""

    code = "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"
    template = "The condition {condition} is not deterministic: of one row it may be true once and then false."
    hint = "Write the value into a column first, and compare that column."


class ConditionRefused(ChangeRefused):
    """Spark cannot use a condition or an expression for the rows of the table."""

    code = "WIDEN_CONDITION_UNUSABLE"
    template = "{condition} cannot be used: {reason}."
    hint = "Columns are named as in the schema, in a merge with the alias of their side, e.g. t.id = s.id."


class MergeWithoutClause(ChangeRefused):
    """A merge does not say what is to be done."""

    code = "DELTA_MERGE_MISSING_WHEN"
    template = "The merge has no clause, so it would change nothing."
    hint = "Say what to do, e.g. .when_matched_update_all().when_not_matched_insert_all() before .execute()."


class UnreachableClause(ChangeRefused):
    """A clause of a merge comes after one of its kind that has no condition, so it would never apply."""

    code = "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"
    template = "Only the last {kind} clause of a merge may have no condition; the one before {clause} has none."
    hint = "Give the earlier clause a condition, or leave the later one out."


class AmbiguousMerge(ChangeRefused):
    """Several rows of the source match one row of the table."""

    code = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    template = "{count} rows of the table are matched by more than one row of the source."
    hint = "Leave one row for each key in the source, e.g. source.dropDuplicates([...]). Nothing was written."


class ColumnMissingInSource(SchemaMismatch):
    """The source of a merge lacks a column that ``*`` would take from it."""

    code = "DELTA_MERGE_UNRESOLVED_EXPRESSION"


class AssignedOverflow(CastOverflow):
    """A value that is assigned cannot be cast to the type of its column."""

    code = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"
    template = "The value {value} ({old}) does not fit column {column}, which is {new}."
    hint = "Let the column widen first, or use try_cast to make null of such values. Nothing was written."


class OutsideReplaceWhere(RowRefused):
    """A row is not one of those that the overwrite is limited to."""

    code = "DELTA_REPLACE_WHERE_MISMATCH"
    template = "The overwrite is limited to rows with {where}, and a row of the data is not one of them."
    hint = "Leave such rows out, e.g. frame.where({where!r}), or widen the condition. Nothing was written."


class FoldRefused(ChangeRefused):
    """A column that evolved cannot go back into another one at all."""

    code = "WIDEN_FOLD_REFUSED"
    template = "{column} cannot be folded into {into}: {reason}."
    hint = "Name a column that evolved, and one of the same field that holds single values or arrays of them."


class FoldLoses(ChangeRefused):
    """Values of a column that evolved would be lost if it went back into another one."""

    code = "WIDEN_FOLD_LOSES"
    template = "{lost} of {values} values of {column} do not convert exactly to {type}, or stand beside another value."
    hint = "Repair them, or say rest='keep' to bring back only the others, or rest='lose' to give them up."
