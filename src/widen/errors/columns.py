"""A change of columns is not allowed by the protocol or by the table.

Source: the error classes of Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

from widen.errors.family import RequestError

_MAPPING = (
    "Enable column mapping first: set_properties({{'delta.columnMapping.mode': 'name'}}) in Python, `widen properties "
    "TABLE --set delta.columnMapping.mode=name` on the command line."
)


class ColumnRefused(RequestError):
    """A column cannot be added, changed, renamed or dropped as requested."""


class ColumnNotFound(ColumnRefused):
    """The schema does not have a column of that name."""

    code = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
    template = "Column {column} is not in the schema."
    hint = "Available at that level: {available}."


class ArrayStepNotFound(ColumnNotFound):
    """A path goes into an array without the step ``element``."""

    code = "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME"


class MapStepNotFound(ColumnNotFound):
    """A path goes into a map without the step ``key`` or ``value``."""

    code = "DELTA_FOUND_MAP_TYPE_COLUMN"


class PathNotNested(ColumnNotFound):
    """A path leads below a column that has no nested fields."""

    code = "DELTA_COLUMN_PATH_NOT_NESTED"
    hint = "The column above it is not a struct, an array or a map, so it has no fields."


class ColumnAlreadyExists(ColumnRefused):
    """The table already has a column of that name; names are compared without case."""

    code = "FIELD_ALREADY_EXISTS"
    template = "Column {column} already exists."
    hint = "Choose another name."


class InvalidColumnName(ColumnRefused):
    """The name cannot be used for a column of the table."""

    code = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    template = "Invalid column name {name!r}: {reason}."
    hint = "{fix}"


class TypeChangeRefused(ColumnRefused):
    """The change is not a type widening of the protocol, or type widening is not enabled."""

    code = "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"
    template = "Column {column} cannot be changed from {old} to {new}: {reason}."
    hint = "{fix}"


class NestedTypeChangeRefused(TypeChangeRefused):
    """A struct, an array or a map cannot change its type as a whole."""

    code = "CANNOT_UPDATE_FIELD"
    hint = "Change its leaves: {fix}"


class GeneratedColumnTypeFixed(TypeChangeRefused):
    """A generated column must have the type of its expression."""

    code = "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH"


class ConstraintDependsOnColumn(ColumnRefused):
    """A CHECK constraint uses the column, one of its fields or the struct that contains it."""

    code = "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
    template = "Column {column} cannot be changed, because CHECK constraints use it: {constraints}."
    hint = "Drop the constraints first, and add them again afterwards."


class GeneratedColumnDependsOnColumn(ColumnRefused):
    """A generated column is computed from the column, one of its fields or the struct that contains it."""

    code = "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"
    template = "Column {column} cannot be changed, because generated columns are computed from it: {columns}."
    hint = "Write the values to a new column instead."


class IdentityColumnFixed(ColumnRefused):
    """An identity column allows changes of its name, comment, position and high-water mark only."""

    code = "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"
    template = "Column {column} is an identity column, which does not support this change."
    hint = "You can rename, move or comment it, and update its high-water mark: sync_identity({column!r})."


class NotAnIdentityColumn(ColumnRefused):
    """Only an identity column has a high-water mark."""

    code = "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN"
    template = "Column {column} is not an identity column."
    hint = "Name a column that was created with GENERATED … AS IDENTITY."


class IdentityReplaceRefused(ColumnRefused):
    """REPLACE COLUMNS does not support tables with an identity column."""

    code = "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    template = "The columns cannot be replaced, because {column} is an identity column."
    hint = "Add, change, rename and drop columns one by one."


class ItemCommentRefused(ColumnRefused):
    """Array elements, map keys and map values cannot have a comment."""

    code = "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY"
    template = "{column} cannot have a comment, because it is an array element, a map key or a map value."
    hint = "Put the comment on the column that contains it."


class ItemRenameRefused(ColumnRefused):
    """Array elements, map keys and map values cannot be added, renamed, moved or dropped."""

    code = "INVALID_FIELD_NAME"
    template = "{column} cannot be {verb}, because it is not a field of a struct."
    hint = "Name the column that contains it, or a field in it."


class RenameRefused(ColumnRefused):
    """Columns cannot be renamed without column mapping."""

    code = "DELTA_UNSUPPORTED_RENAME_COLUMN"
    template = "Column {column} cannot be renamed, because the table does not use column mapping."
    hint = _MAPPING


class DropRefused(ColumnRefused):
    """Columns cannot be dropped without column mapping: a new column of the same name would show the old values."""

    code = "DELTA_UNSUPPORTED_DROP_COLUMN"
    template = "Column {column} cannot be dropped, because the table does not use column mapping."
    hint = _MAPPING


class PartitionColumnDropRefused(ColumnRefused):
    """A partition column cannot be dropped."""

    code = "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"
    template = "Column {column} cannot be dropped, because it is a partition column."
    hint = "Write the rows to a new table with other partition columns."


class ClusteringColumnDropRefused(ColumnRefused):
    """A clustering column cannot be dropped."""

    code = "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"
    template = "Column {column} cannot be dropped, because it is a clustering column."
    hint = "Cluster the table by other columns first, with Delta Lake's ALTER TABLE … CLUSTER BY."


class LastColumnDropRefused(ColumnRefused):
    """A struct must keep at least one field, and a table at least one column that is stored in its files."""

    code = "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"
    template = "Column {column} cannot be dropped, because {place} would have no columns left."
    hint = "Add another column first."


class NewColumnNotNull(ColumnRefused):
    """A new column must be nullable, because existing rows have null in it."""

    code = "DELTA_OPERATION_NOT_ALLOWED"
    template = "Column {column} cannot be added as NOT NULL, because existing rows have null in it."
    hint = "Add it without NOT NULL, fill it, then call alter_column({column!r}, nullable=False)."


class NestedNotNull(ColumnRefused):
    """A nested field can be NOT NULL only if its parents are, and not inside an array or a map."""

    code = "DELTA_NOT_NULL_NESTED_FIELD"
    template = "{column} cannot be NOT NULL: {reason}."
    hint = "If the column that contains it is a struct, make that one NOT NULL first."


class NullsInColumn(ColumnRefused):
    """A column cannot become NOT NULL while rows have null in it."""

    code = "DELTA_NEW_NOT_NULL_VIOLATION"
    template = "Column {column} cannot be made NOT NULL, because {rows} rows have null in it."
    hint = "Fill or delete these rows first."


class DefaultsNotEnabled(ColumnRefused):
    """The table does not support column defaults."""

    code = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    template = "Column {column} cannot have a default: the table does not support the feature allowColumnDefaults."
    hint = "Call add_feature('allowColumnDefaults') first; other clients must then support it too."


class InvalidDefault(ColumnRefused):
    """A default must be a constant of a type that fits the column."""

    code = "INVALID_DEFAULT_VALUE"
    template = "Column {column} cannot have the default {expression!r}: {reason}."
    hint = "Must be an SQL expression without columns, e.g. 0, 'none' or current_date()."


class IcebergDefaultRefused(ColumnRefused):
    """A default of an Iceberg column must be a literal of its type: the table stores the value, not the expression."""

    code = "ICEBERG_INVALID_DEFAULT"
    template = "Column {column} cannot have the default {expression!r}: it is not a literal of the type {type}."
    hint = "Give a value, e.g. 0, 'none', DATE '2024-12-31', TIMESTAMP '2024-12-31 12:00:00Z' or X'00FF'."


class IcebergDefaultsNotSupported(ColumnRefused):
    """Columns of Iceberg tables have defaults as of format version 3."""

    code = "ICEBERG_DEFAULTS_NOT_SUPPORTED"
    template = "Column {column} cannot have a default: the table has format version {version}."
    hint = (
        "Raise it with ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '3'). It cannot be lowered again, and "
        "clients without support for version 3 cannot read the table then."
    )


class InvalidGeneration(ColumnRefused):
    """The expression cannot be used for a generated column."""

    code = "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN"
    template = "Column {column} cannot be generated as {expression!r}: {reason}."
    hint = "Must be an expression of the type of the column that uses no generated columns."


class NewColumnDefaultRefused(ColumnRefused):
    """A new column cannot have a default, because it would not apply to existing rows."""

    code = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
    template = "Column {column} cannot be added with a default, because existing rows would have null in it."
    hint = "Add it without a default, then call alter_column({column!r}, default=…)."


class ReplaceColumnsRefused(ColumnRefused):
    """The columns of the table cannot be replaced by the given ones."""

    code = "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
    template = "The columns cannot be replaced: {reason}.\nCurrent columns: {old}\nRequested columns: {new}"
    hint = "{fix}"


class AmbiguousReplacement(ColumnRefused):
    """Dropping some fields of a struct and adding others might mean a rename."""

    code = "DELTA_AMBIGUOUS_DATA_TYPE_CHANGE"
    template = "The columns cannot be replaced: in {place}, dropping {dropped} and adding {added} might mean a rename."
    hint = "Rename, drop and add columns one by one."


# A CHECK constraint cannot be added or dropped.
#
# Source: the error classes of Delta Lake's ALTER TABLE.


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
