"""Whether the columns of a table may be replaced by others.

Source: Delta Lake's REPLACE COLUMNS, and its check of dependent expressions, which it forgets here.
"""

from __future__ import annotations

from widen.errors import IdentityReplaceRefused, LastColumnDropRefused, ReplaceColumnsRefused
from widen.model.column_path import format_path
from widen.model.types import VOID, StructType, is_atomic
from widen.planning.alter.column_checks import ensure_field_addable
from widen.planning.alter.column_names import ensure_names_allowed
from widen.planning.alter.drop_checks import ensure_not_structural
from widen.planning.alter.type_checks import ensure_type_change, type_change_objections
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import AddColumn, DropColumn, ReplaceColumns, SetNotNull, WidenType
from widen.planning.table.replace_columns import Difference, schema_differences
from widen.planning.table.table_state import TableState
from widen.protocol.column_mapping import NONE, mapping_mode
from widen.protocol.column_metadata import find_identity


def ensure_replaceable(state: TableState, operation: ReplaceColumns) -> None:
    """Check that the columns of a table may be replaced.

    Raises:
        IdentityReplaceRefused: one of them is an identity column.
        AmbiguousReplacement: in one struct fields would come and others go.
        ReplaceColumnsRefused: a column would go without column mapping, get another type, or not be null any more.
        NewColumnNotNull: a new column, or something in it, must not be null.
        NewColumnDefaultRefused: a new column has a default.
        PartitionColumnDropRefused: a column would go by which the files are split.
        ClusteringColumnDropRefused: a column would go by which the rows are clustered.
        ConstraintDependsOnColumn: a CHECK constraint looks at a column that would change its type or go.
        GeneratedColumnDependsOnColumn: a generated column is made of one.
        InvalidColumnName: a name cannot be used.
        ColumnAlreadyExists: a name is there twice.
        LastColumnDropRefused: nothing would be left in the files.
    """
    new = operation.schema
    for field in state.schema:
        if find_identity(field) is not None:
            raise IdentityReplaceRefused(column=field.name)
    ensure_names_allowed(new, state.properties)
    for difference in tuple(schema_differences(state.schema, new)):
        _ensure_difference(state, new, difference)
    if {field.name.casefold() for field in new} <= {name.casefold() for name in state.metadata.partition_columns}:
        raise LastColumnDropRefused(column=", ".join(state.schema.names), place="the files")


def _ensure_difference(state: TableState, new: StructType, difference: Difference) -> None:
    path = difference.path
    column = format_path(path)
    match difference:
        case AddColumn(parent, field):
            ensure_field_addable(parent, field)
        case SetNotNull():
            fix = "Forbid null in it by itself: alter_column(…, nullable=False)."
            raise _refused(state, new, f"{column} could not be null any more", fix)
        case DropColumn():
            if mapping_mode(state.properties, state.protocol) == NONE:
                raise _refused(state, new, f"{column} would go, and files know it by its name", "Keep it.")
            ensure_not_structural(state, path)
            ensure_independent(state, path)
        case WidenType():
            _ensure_type(state, new, difference)


def _ensure_type(state: TableState, new: StructType, difference: WidenType) -> None:
    old, wanted, path = difference.old, difference.new, difference.path
    change = f"{format_path(path)} would change from {old.sql.upper()} to {wanted.sql.upper()}"
    if old != VOID and not (is_atomic(old) and is_atomic(wanted)):
        raise _refused(state, new, change, "Keep its type.")
    for reason, fix in type_change_objections(state, old, wanted):
        raise _refused(state, new, f"{change}, and {reason}", fix)
    ensure_type_change(state, path, old, wanted)


def _refused(state: TableState, new: StructType, reason: str, fix: str) -> ReplaceColumnsRefused:
    return ReplaceColumnsRefused(reason=reason, old=state.schema.sql, new=new.sql, fix=fix)
