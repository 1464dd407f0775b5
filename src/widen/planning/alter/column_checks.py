"""Whether columns may be added, renamed, dropped or replaced, and which names they may have.

Source: Delta Lake's ADD COLUMNS, RENAME COLUMN, DROP COLUMNS and REPLACE COLUMNS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from widen.errors import (
    ClusteringColumnDropRefused,
    ColumnAlreadyExists,
    DropRefused,
    IdentityReplaceRefused,
    InvalidColumnName,
    ItemRenameRefused,
    LastColumnDropRefused,
    NewColumnDefaultRefused,
    NewColumnNotNull,
    PartitionColumnDropRefused,
    RenameRefused,
    ReplaceColumnsRefused,
)
from widen.model.column_path import Path, fields, find_field, format_path, resolve
from widen.model.types import VOID, Field, StructType, is_atomic, name_key, name_keys
from widen.planning.alter.type_checks import ensure_type_change, type_change_objections
from widen.planning.evolution.source_metadata import FORBIDDEN
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import (
    AddColumn,
    DropColumn,
    RenameColumn,
    ReplaceColumns,
    SetNotNull,
    WidenType,
)
from widen.planning.table.replace_columns import Difference, schema_differences
from widen.planning.table.table_state import TableState
from widen.protocol.change_data_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from widen.protocol.column_mapping import MODE, NONE, mapping_mode, to_physical_path
from widen.protocol.column_metadata import DEFAULT, find_identity
from widen.protocol.table_properties import ENABLE_CHANGE_DATA_FEED, is_on

_RESERVED_NAMES = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
"""The columns that the change data feed adds to rows."""


def ensure_column_addable(state: TableState, operation: AddColumn) -> None:
    """Check that a column may be added.

    Raises:
        ColumnNotFound: its parent is not a struct.
        ItemRenameRefused: it would be an element, a key or a value.
        ColumnAlreadyExists: the struct has a column of that name.
        NewColumnNotNull: it is NOT NULL, or a field in it is.
        NewColumnDefaultRefused: it has a default.
        InvalidColumnName: a name is not allowed.
    """
    path, field = operation.path, operation.field
    _, parent = resolve(state.schema, operation.parent)
    if not isinstance(parent, StructType):
        resolve(state.schema, path)
        raise ItemRenameRefused(column=format_path(path), verb="added")
    existing = parent.find(field.name)
    if existing is not None:
        raise ColumnAlreadyExists(column=format_path((*operation.parent, existing.name)))
    ensure_field_addable(operation.parent, field)
    ensure_names_allowed([field], state.properties, operation.parent)


def ensure_field_addable(parent: Path, field: Field) -> None:
    """Check that existing rows, in which a new field is null, remain valid.

    Raises:
        NewColumnNotNull: the field is NOT NULL, or one in it is.
        NewColumnDefaultRefused: the field has a default, or one in it has.
    """
    for path, item in fields(StructType((field,))):
        if not item.nullable:
            raise NewColumnNotNull(column=format_path((*parent, *path)))
        if DEFAULT in item.metadata:
            raise NewColumnDefaultRefused(column=format_path((*parent, *path)))


def ensure_names_allowed(new: Iterable[Field], properties: Mapping[str, str], parent: Path = ()) -> None:
    """Check the names of columns and of all fields in them, and that no struct has a name twice.

    Args:
        parent: The path of the struct they are in; empty for the table itself.

    Raises:
        InvalidColumnName: a name is empty, is reserved, or has a character that is not allowed in files.
        ColumnAlreadyExists: a name occurs twice.

    Source: Delta Spark: DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES.
    """
    folded_names: set[Path] = set()
    for path, field in fields(StructType(tuple(new))):
        folded = {(*path[:-1], key) for key in name_keys(field.name)}
        if folded_names & folded:
            raise ColumnAlreadyExists(column=format_path((*parent, *path)))
        folded_names |= folded
        _ensure_name((*parent, *path), properties)


def _ensure_name(path: Path, properties: Mapping[str, str]) -> None:
    name = path[-1]
    if not name:
        raise InvalidColumnName(name=name, reason="it is empty", fix="Choose a name.")
    if properties.get(MODE, NONE) == NONE and any(char in FORBIDDEN for char in name):
        fix = f"Choose another name, or enable column mapping: set_properties({{{MODE!r}: 'name'}})."
        raise InvalidColumnName(name=name, reason=f"column names in files cannot contain any of {FORBIDDEN!r}", fix=fix)
    reserved = len(path) == 1 and name.lower() in _RESERVED_NAMES
    if reserved and is_on(properties, ENABLE_CHANGE_DATA_FEED):
        raise InvalidColumnName(name=name, reason="the change data feed reserves it", fix="Choose another name.")


def ensure_renamable(state: TableState, operation: RenameColumn) -> None:
    """Check that a column may be renamed. A rename may change only the case of letters.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        ColumnAlreadyExists: another column of the struct has that name.
        ConstraintDependsOnColumn: a CHECK constraint references it.
        GeneratedColumnDependsOnColumn: a generated column references it.
        RenameRefused: column mapping is not enabled.
        InvalidColumnName: the name is not allowed.

    Source: Delta Lake's RENAME COLUMN. Differs: Delta Lake refuses a rename that changes only the case.
    """
    path, name = operation.path, operation.name
    _, parent = resolve(state.schema, path[:-1])
    field = find_field(state.schema, path)
    if not isinstance(parent, StructType) or field is None:
        raise ItemRenameRefused(column=format_path(path), verb="renamed")
    existing = parent.find(name)
    if existing is not None and existing is not field:
        raise ColumnAlreadyExists(column=format_path((*path[:-1], existing.name)))
    ensure_independent(state, path)
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise RenameRefused(column=format_path(path))
    _ensure_name(operation.new_path, state.properties)


def ensure_droppable(state: TableState, operation: DropColumn) -> None:
    """Check that a column may be dropped.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        DropRefused: column mapping is not enabled.
        LastColumnDropRefused: it is the last column of its struct, or the last one that is stored in files.
        PartitionColumnDropRefused: it is a partition column.
        ClusteringColumnDropRefused: it is a clustering column, or contains one.
        ConstraintDependsOnColumn: a CHECK constraint references it.
        GeneratedColumnDependsOnColumn: a generated column references it.
    """
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="dropped")
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise DropRefused(column=format_path(path))
    ensure_not_structural(state, path)
    remaining = {*parent.names} - {path[-1]}
    if len(path) == 1:
        remaining -= set(state.metadata.partition_columns)
    if not remaining:
        place = format_path(path[:-1]) or "the files"
        raise LastColumnDropRefused(column=format_path(path), place=place)
    ensure_independent(state, path)


def ensure_not_structural(state: TableState, path: Path) -> None:
    """Check that a column is neither a partition column nor a clustering column.

    Raises:
        PartitionColumnDropRefused: it is a partition column.
        ClusteringColumnDropRefused: it is a clustering column, or contains one.

    Source: Delta Lake's DROP COLUMNS. Differs: Delta Lake does not check fields inside the column.
    """
    if len(path) == 1 and path[0] in state.metadata.partition_columns:
        raise PartitionColumnDropRefused(column=format_path(path))
    physical = to_physical_path(state.schema, path, mapping_mode(state.properties, state.protocol))
    if any(clustering[: len(physical)] == physical for clustering in state.clustered_by):
        raise ClusteringColumnDropRefused(column=format_path(path))


def ensure_replaceable(state: TableState, operation: ReplaceColumns) -> None:
    """Check that the columns of a table may be replaced.

    Raises:
        IdentityReplaceRefused: the table has an identity column.
        AmbiguousReplacement: fields of one struct would be added and others dropped.
        ReplaceColumnsRefused: a column would be dropped without column mapping, change its type, or become NOT NULL.
        NewColumnNotNull: a new column is NOT NULL, or a field in it is.
        NewColumnDefaultRefused: a new column has a default.
        PartitionColumnDropRefused: a partition column would be dropped.
        ClusteringColumnDropRefused: a clustering column would be dropped.
        ConstraintDependsOnColumn: a CHECK constraint references a column that would be dropped or retyped.
        GeneratedColumnDependsOnColumn: a generated column references such a column.
        InvalidColumnName: a name is not allowed.
        ColumnAlreadyExists: a name occurs twice.
        LastColumnDropRefused: no column would be left in the files.

    Source: Delta Lake's REPLACE COLUMNS. Differs: Delta Lake does not check dependent expressions here.
    """
    new = operation.schema
    for field in state.schema:
        if find_identity(field) is not None:
            raise IdentityReplaceRefused(column=field.name)
    ensure_names_allowed(new, state.properties)
    for difference in tuple(schema_differences(state.schema, new)):
        _ensure_difference(state, new, difference)
    if {name_key(field.name) for field in new} <= {name_key(name) for name in state.metadata.partition_columns}:
        raise LastColumnDropRefused(column=", ".join(state.schema.names), place="the files")


def _ensure_difference(state: TableState, new: StructType, difference: Difference) -> None:
    path = difference.path
    column = format_path(path)
    match difference:
        case AddColumn(parent, field):
            ensure_field_addable(parent, field)
        case SetNotNull():
            fix = "Make it NOT NULL in a separate commit: alter_column(…, nullable=False)."
            raise _refusal(state, new, f"{column} would become NOT NULL", fix)
        case DropColumn():
            if mapping_mode(state.properties, state.protocol) == NONE:
                raise _refusal(state, new, f"{column} would be dropped, which needs column mapping", "Keep it.")
            ensure_not_structural(state, path)
            ensure_independent(state, path)
        case WidenType():
            _ensure_type(state, new, difference)


def _ensure_type(state: TableState, new: StructType, difference: WidenType) -> None:
    old, new_type, path = difference.old, difference.new, difference.path
    change = f"{format_path(path)} would change from {old.sql.upper()} to {new_type.sql.upper()}"
    if old != VOID and not (is_atomic(old) and is_atomic(new_type)):
        raise _refusal(state, new, change, "Keep its type.")
    for reason, fix in type_change_objections(state, old, new_type):
        raise _refusal(state, new, f"{change}, and {reason}", fix)
    ensure_type_change(state, path, old, new_type)


def _refusal(state: TableState, new: StructType, reason: str, fix: str) -> ReplaceColumnsRefused:
    return ReplaceColumnsRefused(reason=reason, old=state.schema.sql, new=new.sql, fix=fix)
