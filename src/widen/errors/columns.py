"""The caller asked for a change of columns that the protocol or the table forbids.

Source: Delta Lake's ALTER TABLE: its error classes.
"""

from __future__ import annotations

from widen.errors.family import RequestError

_MAPPING = "Let the table map its columns first: set_properties({{'delta.columnMapping.mode': 'name'}})."


class ColumnRefused(RequestError):
    """A column cannot be added, changed, renamed or dropped as was asked."""


class ColumnNotFound(ColumnRefused):
    """No column of that name is in the schema."""

    code = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
    template = "Column {column} is not in the schema."
    hint = "At that level there are: {available}."


class ArrayStepNotFound(ColumnNotFound):
    """A path names what is in an array without saying element."""

    code = "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME"


class MapStepNotFound(ColumnNotFound):
    """A path names what is in a map without saying key or value."""

    code = "DELTA_FOUND_MAP_TYPE_COLUMN"


class PathNotNested(ColumnNotFound):
    """A path goes on where a column has no parts."""

    code = "DELTA_COLUMN_PATH_NOT_NESTED"


class ColumnAlreadyExists(ColumnRefused):
    """There is a column of that name; two names that differ in case only are one."""

    code = "FIELD_ALREADY_EXISTS"
    template = "There is a column {column} already."
    hint = "Choose another name."


class InvalidColumnName(ColumnRefused):
    """A name cannot stand in files."""

    code = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    template = "No column can be called {name!r}: {reason}."
    hint = "{fix}"


class TypeChangeRefused(ColumnRefused):
    """The protocol knows no such widening, it is not enabled, or old rows may have null."""

    code = "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"
    template = "Column {column} cannot be changed from {old} to {new}: {reason}."
    hint = "{fix}"


class NestedTypeChangeRefused(TypeChangeRefused):
    """A struct, an array or a map cannot change its type as a whole."""

    code = "CANNOT_UPDATE_FIELD"
    hint = "Change its leaves: {fix}"


class GeneratedColumnTypeFixed(TypeChangeRefused):
    """A generated column has the type of its expression."""

    code = "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"


class ConstraintDependsOnColumn(ColumnRefused):
    """A CHECK constraint refers to the column, to something in it or to what it is in."""

    code = "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
    template = "Column {column} cannot be changed, for constraints refer to it: {constraints}."
    hint = "Drop them first, and add them again afterwards."


class GeneratedColumnDependsOnColumn(ColumnRefused):
    """A generated column is made of the column, of something in it or of what it is in."""

    code = "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"
    template = "Column {column} cannot be changed, for generated columns are made of it: {columns}."
    hint = "Write the values to a new column instead."


class IdentityColumnFixed(ColumnRefused):
    """Of an identity column only the name, the comment, the place and the high-water mark can change."""

    code = "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
    template = "Column {column} is an identity column; it cannot be changed so."
    hint = "It can be renamed, moved, commented on and synchronised: sync_identity({column!r})."


class NoIdentityColumn(ColumnRefused):
    """Only an identity column has a high-water mark."""

    code = "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN"
    template = "Column {column} is no identity column."
    hint = "Name a column that was made with GENERATED … AS IDENTITY."


class IdentityReplaceRefused(ColumnRefused):
    """The columns of a table with an identity column are not replaced as a whole."""

    code = "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    template = "The columns cannot be replaced, for {column} is an identity column."
    hint = "Add, change, rename and drop columns one by one."


class ItemCommentRefused(ColumnRefused):
    """Elements, keys and values have no comment."""

    code = "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY"
    template = "{column} can have no comment: elements, keys and values have none of their own."
    hint = "Put the comment on the column that holds it."


class ItemRenameRefused(ColumnRefused):
    """Elements, keys and values have no name and no place, and are neither added nor dropped."""

    code = "INVALID_FIELD_NAME"
    template = "{column} is no field of a struct, so it cannot be {verb}."
    hint = "Name the column that holds it, or a field in it."


class RenameRefused(ColumnRefused):
    """Without column mapping a column has the name that it has in files."""

    code = "DELTA_UNSUPPORTED_RENAME_COLUMN"
    template = "Column {column} cannot be renamed: files know it by its name."
    hint = _MAPPING


class DropRefused(ColumnRefused):
    """Without column mapping a dropped column would come back with the next one of its name."""

    code = "DELTA_UNSUPPORTED_DROP_COLUMN"
    template = "Column {column} cannot be dropped: files know it by its name."
    hint = _MAPPING


class PartitionColumnDropRefused(ColumnRefused):
    """A column by which the files are split stays."""

    code = "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"
    template = "Column {column} cannot be dropped: the files are split by it."
    hint = "Write the rows to a new table that is split otherwise."


class ClusteringColumnDropRefused(ColumnRefused):
    """A column by which the rows are clustered stays."""

    code = "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"
    template = "Column {column} cannot be dropped: the rows are clustered by it."
    hint = "Cluster the table by other columns first: ALTER TABLE … CLUSTER BY, in Delta Lake."


class LastColumnDropRefused(ColumnRefused):
    """A struct keeps one field at least, and a table one column that is in its files."""

    code = "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"
    template = "Column {column} cannot be dropped: nothing would be left in {place}."
    hint = "Add another column first."


class NewColumnNotNull(ColumnRefused):
    """A new column may be null, for the rows before it are."""

    code = "DELTA_OPERATION_NOT_ALLOWED"
    template = "Column {column} cannot be added as one that must not be null: the rows before it have null there."
    hint = "Add it without NOT NULL, fill it, and then forbid null: alter_column({column!r}, nullable=False)."


class NestedNotNull(ColumnRefused):
    """Null is forbidden only where no parent may be null, and in no array and no map."""

    code = "DELTA_NOT_NULL_NESTED_FIELD"
    template = "{column} cannot be forbidden to be null: {reason}."
    hint = "Forbid it for the column that holds it first, where that is a struct."


class NullsInColumn(ColumnRefused):
    """There are rows that a column that must not be null forbids."""

    code = "DELTA_NEW_NOT_NULL_VIOLATION"
    template = "Column {column} cannot be forbidden to be null: in {rows} rows it is."
    hint = "Fill or delete these rows first."


class DefaultsNotEnabled(ColumnRefused):
    """The table does not support defaults."""

    code = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    template = "Column {column} cannot have a default: the table has not the feature allowColumnDefaults."
    hint = "Enable it with add_feature('allowColumnDefaults') first; other clients must know it then."


class InvalidDefault(ColumnRefused):
    """A default is no constant, or of a type that the column cannot take."""

    code = "INVALID_DEFAULT_VALUE"
    template = "Column {column} cannot have the default {expression!r}: {reason}."
    hint = "Give an expression in SQL without columns, e.g. 0, 'none' or current_date()."


class InvalidGeneration(ColumnRefused):
    """A column cannot be generated so."""

    code = "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"
    template = "Column {column} cannot be generated as {expression!r}: {reason}."
    hint = "Give an expression of columns that are not generated, which has the type of the column."


class NewColumnDefaultRefused(ColumnRefused):
    """The rows before a new column have null in it, and no default can change that."""

    code = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
    template = "Column {column} cannot be added with a default."
    hint = "Add it without one, then set it: alter_column({column!r}, default=…)."


class ReplaceColumnsRefused(ColumnRefused):
    """A table cannot have the columns that were given for all of its own."""

    code = "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
    template = "The columns cannot be replaced: {reason}.\nThey are: {old}\nThey would be: {new}"
    hint = "{fix}"


class AmbiguousReplacement(ColumnRefused):
    """Of a struct fields would go and others come, which might be a change of names."""

    code = "DELTA_AMBIGUOUS_DATA_TYPE_CHANGE"
    template = "The columns cannot be replaced: in {place} {dropped} would go and {added} would come, or be renamed."
    hint = "Say which: rename, drop and add columns one by one."
