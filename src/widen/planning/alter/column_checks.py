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
from widen.model.types import VOID, Field, StructType, is_atomic
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

_KEPT_NAMES = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
"""What the change data feed keeps for itself."""


def ensure_column_addable(state: TableState, operation: AddColumn) -> None:
    """Check that a column may be added.

    Raises:
        ColumnNotFound: it would be in no struct.
        ItemRenameRefused: it would be an element, a key or a value.
        ColumnAlreadyExists: there is a column of that name.
        NewColumnNotNull: it, or something in it, must not be null.
        NewColumnDefaultRefused: it has a default.
        InvalidColumnName: a name cannot be used.
    """
    path, field = operation.path, operation.field
    _, parent = resolve(state.schema, operation.parent)
    if not isinstance(parent, StructType):
        resolve(state.schema, path)
        raise ItemRenameRefused(column=format_path(path), verb="added")
    known = parent.find(field.name)
    if known is not None:
        raise ColumnAlreadyExists(column=format_path((*operation.parent, known.name)))
    ensure_field_addable(operation.parent, field)
    ensure_names_allowed([field], state.properties, operation.parent)


def ensure_field_addable(parent: Path, field: Field) -> None:
    """Check that rows that were there before can do without a field, and without all that is in it.

    Raises:
        NewColumnNotNull: it, or something in it, must not be null.
        NewColumnDefaultRefused: it, or something in it, has a default.
    """
    for path, item in fields(StructType((field,))):
        if not item.nullable:
            raise NewColumnNotNull(column=format_path((*parent, *path)))
        if DEFAULT in item.metadata:
            raise NewColumnDefaultRefused(column=format_path((*parent, *path)))


def ensure_names_allowed(new: Iterable[Field], properties: Mapping[str, str], parent: Path = ()) -> None:
    """Check that columns may be called so, with all that is in them, and that no struct has a name twice.

    Args:
        new: The columns.
        properties: Of the table.
        parent: Where they are to be; empty for the table itself.

    Raises:
        InvalidColumnName: a name is empty, is kept for something else, or has a character that files cannot have.
        ColumnAlreadyExists: a name is there twice.

    Source: Delta Spark: DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES.
    """
    taken: set[Path] = set()
    for path, field in fields(StructType(tuple(new))):
        folded = (*path[:-1], field.name.casefold())
        if folded in taken:
            raise ColumnAlreadyExists(column=format_path((*parent, *path)))
        taken.add(folded)
        _ensure_name((*parent, *path), properties)


def _ensure_name(path: Path, properties: Mapping[str, str]) -> None:
    name = path[-1]
    if not name:
        raise InvalidColumnName(name=name, reason="it is empty", fix="Choose a name.")
    if properties.get(MODE, NONE) == NONE and any(char in FORBIDDEN for char in name):
        fix = f"Choose another name, or let the table map its columns: set_properties({{{MODE!r}: 'name'}})."
        raise InvalidColumnName(name=name, reason=f"files have none of {FORBIDDEN!r} in names", fix=fix)
    reserved = len(path) == 1 and name.lower() in _KEPT_NAMES
    if reserved and is_on(properties, ENABLE_CHANGE_DATA_FEED):
        raise InvalidColumnName(name=name, reason="the change data feed keeps it", fix="Choose another name.")


def ensure_renamable(state: TableState, operation: RenameColumn) -> None:
    """Check that a column may get another name. Only another case of its letters is another name too.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        ColumnAlreadyExists: there is a column of that name beside it.
        ConstraintDependsOnColumn: a CHECK constraint looks at it.
        GeneratedColumnDependsOnColumn: a generated column is made of it.
        RenameRefused: the table does not map its columns.
        InvalidColumnName: the name cannot be used.

    Source: Delta Lake's RENAME COLUMN, which does not even allow another case.
    """
    path, name = operation.path, operation.name
    _, parent = resolve(state.schema, path[:-1])
    field = find_field(state.schema, path)
    if not isinstance(parent, StructType) or field is None:
        raise ItemRenameRefused(column=format_path(path), verb="renamed")
    found = parent.find(name)
    if found is not None and found is not field:
        raise ColumnAlreadyExists(column=format_path((*path[:-1], found.name)))
    ensure_independent(state, path)
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise RenameRefused(column=format_path(path))
    _ensure_name(operation.new_path, state.properties)


def ensure_droppable(state: TableState, operation: DropColumn) -> None:
    """Check that a column may be dropped.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        DropRefused: the table does not map its columns.
        LastColumnDropRefused: nothing would be left beside it.
        PartitionColumnDropRefused: the files are split by it.
        ClusteringColumnDropRefused: the rows are clustered by it, or by something in it.
        ConstraintDependsOnColumn: a CHECK constraint looks at it.
        GeneratedColumnDependsOnColumn: a generated column is made of it.
    """
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="dropped")
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise DropRefused(column=format_path(path))
    ensure_not_structural(state, path)
    left = {field.name for field in parent} - {path[-1]}
    if len(path) == 1:
        left -= set(state.metadata.partition_columns)
    if not left:
        place = format_path(path[:-1]) or "the files"
        raise LastColumnDropRefused(column=format_path(path), place=place)
    ensure_independent(state, path)


def ensure_not_structural(state: TableState, path: Path) -> None:
    """Check that the files are neither split nor clustered by a column.

    Raises:
        PartitionColumnDropRefused: the files are split by it.
        ClusteringColumnDropRefused: the rows are clustered by it, or by something in it.

    Source: Delta Lake, which sees only the column itself and not what is in it.
    """
    if len(path) == 1 and path[0] in state.metadata.partition_columns:
        raise PartitionColumnDropRefused(column=format_path(path))
    physical = to_physical_path(state.schema, path, mapping_mode(state.properties, state.protocol))
    if any(clustering[: len(physical)] == physical for clustering in state.clustered_by):
        raise ClusteringColumnDropRefused(column=format_path(path))


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
