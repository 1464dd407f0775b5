"""Whether an operation is allowed on a table: a table with one check for each kind of operation.

Source: Delta Lake's ALTER TABLE and ADD CONSTRAINT: the checks, their order and their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from widen.errors import (
    ClusteringColumnDropRefused,
    ColumnAlreadyExists,
    ConstraintAlreadyExists,
    ConstraintNotFound,
    DefaultsNotEnabled,
    DropRefused,
    EnabledWithoutFeature,
    GeneratedColumnTypeFixed,
    IdentityColumnFixed,
    IdentityReplaceRefused,
    InvalidColumnName,
    InvalidConstraintName,
    InvalidDefault,
    InvalidOption,
    ItemCommentRefused,
    ItemRenameRefused,
    LastColumnDropRefused,
    NestedNotNull,
    NestedTypeChangeRefused,
    NewColumnDefaultRefused,
    NewColumnNotNull,
    NotAnIdentityColumn,
    PartitionColumnDropRefused,
    RenameRefused,
    ReplaceColumnsRefused,
    TypeChangeRefused,
)
from widen.model.column_path import Path, fields, find_field, fold_path, format_path, nearest_field, parse_path, resolve
from widen.model.schema_json import parse_type
from widen.model.types import (
    STRING,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    is_atomic,
    name_key,
    name_keys,
)
from widen.protocol import iceberg_compat
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, MODE, NONE, to_physical_path
from widen.protocol.column_metadata import (
    DEFAULT,
    Identity,
    declared_schema,
    find_generation,
    find_identity,
    text_limit,
)
from widen.protocol.file_statistics import HIDDEN_FIELDS, NO_STATS, split_paths
from widen.protocol.iceberg_compat import type_change_compat
from widen.protocol.table_features import TYPE_WIDENING, TYPE_WIDENING_PREVIEW
from widen.protocol.table_properties import (
    CONSTRAINT_PREFIX,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_TYPE_WIDENING,
    is_on,
    widens_when_needed,
)
from widen.protocol.type_widening import is_iceberg_compatible, is_widening
from widen.schema import operations as op
from widen.schema.operations import (
    AddColumn,
    Difference,
    DropColumn,
    DropDefault,
    DropNotNull,
    MoveColumn,
    RelaxLength,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetDefault,
    SetNotNull,
    SyncIdentity,
    WidenType,
    schema_differences,
)
from widen.schema.source_metadata import FORBIDDEN, TableFormat, role_of, source_key, source_keys, source_path
from widen.schema.table_state import TableState, check_constraints, ensure_independent, find_constraint, is_constant

# Whether columns may be added, renamed, dropped or replaced, and which names they may have.
#
# Source: Delta Lake's ADD COLUMNS, RENAME COLUMN, DROP COLUMNS and REPLACE COLUMNS.


_RESERVED_NAMES = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
"""The columns that the change data feed adds to rows."""


def ensure_column_addable(state: TableState, operation: AddColumn) -> None:
    """Check that a column may be added.

    Raises:
        ItemRenameRefused: it would be an element, a key or a value.
        ColumnAlreadyExists: the struct has a column of that name.
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
    """Check that existing rows remain valid; a new field is null in them.

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
        RenameRefused: column mapping is not enabled.

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
    if state.mapping == NONE:
        raise RenameRefused(column=format_path(path))
    _ensure_name(operation.new_path, state.properties)


_NAMED = "The property {} of the table names {}: a field that records no longer have could not be found."
KEYS = "widen.keys"
"""Table property: how its rows change by key, as JSON."""


def ensure_sources(schema: StructType, properties: Mapping[str, str], operation: op.SetSources) -> None:
    """Check that a column may be filled from other fields of records.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        InvalidOption: a name is empty or a path, another column holds the field, or the table names the field that is
            to fill the column no longer.
    """
    path, names = operation.path, operation.names
    field, parent = find_field(schema, path), resolve(schema, path[:-1])[1]
    if field is None or not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="given another source field")
    if len(path) == 1 and role_of(field) is not None:
        raise InvalidOption(option="source", value=names[-1], expected=f"No field of a record fills {field.name}.")
    above = format_path(path[:-1])
    for name in names:
        if not name or (above and name.startswith(f"{above}.")):
            raise InvalidOption(
                option="source", value=name, expected=f"Must be a name beside {path[-1]!r}, not a path."
            )
    new = {name_key(name) for name in names if name not in source_keys(field)}
    own = None if names[0] == source_key(field) else names[0]
    for other in parent:
        keys = source_keys(other)
        is_other = keys[0] != source_key(field) and (len(path) > 1 or role_of(other) is None)
        taken = next((key for key in keys if name_key(key) in new or key == own == keys[0]), None)
        if is_other and taken is not None:
            column, place = format_path((*path[:-1], other.name)), format_path(path)
            expected = (
                f"Column {column} holds this field. First move its values to {place} with an UPDATE, and drop it."
            )
            raise InvalidOption(option="source", value=taken, expected=expected)
    if names[0] != source_key(field):
        _ensure_unnamed(source_path(schema, path), properties)


def _ensure_unnamed(source: Path, properties: Mapping[str, str]) -> None:
    """Check that no property says something of a field, or of one in it, that gets another name."""
    named = {key: split_paths(properties.get(key, "")) for key in (HIDDEN_FIELDS, NO_STATS)}
    try:
        rules: Any = msgspec.json.decode(properties.get(KEYS, "{}"))
        order = rules.get("sequenceBy") or ()
        named[KEYS] = tuple(map(parse_path, (*rules.get("key", ()), *([order] if isinstance(order, str) else order))))
    except (msgspec.DecodeError, AttributeError, TypeError):
        named[KEYS] = ()
    for key, paths in named.items():
        if any(fold_path(path)[: len(source)] == fold_path(source) for path in paths):
            expected = _NAMED.format(key, format_path(source))
            raise InvalidOption(option="drop_source", value=source[-1], expected=expected)


def _ensure_sources(state: TableState, operation: op.SetSources) -> None:
    ensure_sources(state.schema, state.properties, operation)


def ensure_droppable(state: TableState, operation: DropColumn) -> None:
    """Check that a column may be dropped.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        DropRefused: column mapping is not enabled.
        LastColumnDropRefused: it is the last column of its struct, or the last one that is stored in files.
    """
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="dropped")
    if state.mapping == NONE:
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
    physical = to_physical_path(state.schema, path, state.mapping)
    if any(clustering[: len(physical)] == physical for clustering in state.clustered_by):
        raise ClusteringColumnDropRefused(column=format_path(path))


def ensure_replaceable(state: TableState, operation: ReplaceColumns) -> None:
    """Check that the columns of a table may be replaced.

    Raises:
        IdentityReplaceRefused: the table has an identity column.
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
            if state.mapping == NONE:
                raise _refusal(state, new, f"{column} would be dropped, which needs column mapping", "Keep it.")
            ensure_not_structural(state, path)
            ensure_independent(state, path)
        case WidenType():
            _ensure_replaced_type(state, new, difference)


def _ensure_replaced_type(state: TableState, new: StructType, difference: WidenType) -> None:
    old, new_type, path = difference.old, difference.new, difference.path
    change = f"{format_path(path)} would change from {old.sql.upper()} to {new_type.sql.upper()}"
    if old != VOID and not (is_atomic(old) and is_atomic(new_type)):
        raise _refusal(state, new, change, "Keep its type.")
    for reason, fix in type_change_objections(state, old, new_type):
        raise _refusal(state, new, f"{change}, and {reason}", fix)
    ensure_type_change(state, path, old, new_type)


def _refusal(state: TableState, new: StructType, reason: str, fix: str) -> ReplaceColumnsRefused:
    return ReplaceColumnsRefused(reason=reason, old=state.schema.sql, new=new.sql, fix=fix)


# Whether a column may get another comment, position, nullability, default or high-water mark.
#
# Source: Delta Lake's ALTER TABLE.


def ensure_comment_allowed(state: TableState, operation: SetComment) -> None:
    """Check that a comment may be set.

    Raises:
        ItemCommentRefused: the column is an element, a key or a value.
    """
    if find_field(state.schema, operation.path) is None:
        raise ItemCommentRefused(column=format_path(operation.path))


def ensure_movable(state: TableState, operation: MoveColumn) -> None:
    """Check that a column may be moved.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
    """
    if find_field(state.schema, operation.path) is None:
        raise ItemRenameRefused(column=format_path(operation.path), verb="moved")


def ensure_nullability(state: TableState, operation: SetNotNull | DropNotNull) -> None:
    """Check that the nullability of a column may change. Rows are not read here.

    Raises:
        TypeChangeRefused: it is an element, a key or a value.
        NestedNotNull: it would become NOT NULL in an array, in a map, or in a nullable struct.

    Source: Delta Lake's invariants. Differs: Delta Lake accepts NOT NULL only in new tables.
    """
    path, schema = operation.path, state.schema
    field = find_field(schema, path)
    if field is None:
        sql = resolve(schema, path)[1].sql.upper()
        old, new = (sql, f"{sql} NOT NULL")[:: 1 if isinstance(operation, SetNotNull) else -1]
        reason = "the nullability of elements, keys and values is fixed"
        fix = "Write the values to a new column instead."
        raise TypeChangeRefused(column=format_path(path), old=old, new=new, reason=reason, fix=fix)
    ensure_not_identity_column(state, path)
    if isinstance(operation, DropNotNull):
        return
    for end in range(1, len(path)):
        parent = find_field(schema, path[:end])
        if parent is None or not isinstance(parent.type, StructType):
            raise NestedNotNull(column=format_path(path), reason="it is in an array or a map")
        if parent.nullable:
            raise NestedNotNull(column=format_path(path), reason=f"{format_path(path[:end])} is nullable")


def ensure_default(state: TableState, operation: SetDefault | DropDefault) -> None:
    """Check that the default of a column may be set or dropped. Spark checks the expression later.

    Raises:
        ItemRenameRefused: the column is in a struct, an array or a map.
        DefaultsNotEnabled: the table does not support defaults.
        InvalidDefault: the default cannot be parsed, or references columns or tables.

    Source: PROTOCOL.md#default-columns; Spark for what a default may be.
    """
    path = operation.path
    if len(path) > 1:
        raise ItemRenameRefused(column=format_path(path), verb="given a default")
    ensure_not_identity_column(state, path)
    if isinstance(operation, DropDefault):
        return
    if not state.supports("allowColumnDefaults"):
        raise DefaultsNotEnabled(column=format_path(path))
    if not is_constant(operation.expression):
        reason = "it is not an expression, or it references columns or tables"
        raise InvalidDefault(column=format_path(path), expression=operation.expression, reason=reason)


def ensure_not_identity_column(state: TableState, path: Path) -> None:
    """Check that a column is not an identity column.

    Raises:
        IdentityColumnFixed: it is one.
    """
    if find_identity(nearest_field(state.schema, path)) is not None:
        raise IdentityColumnFixed(column=format_path(path))


def ensure_identity_column(state: TableState, operation: SyncIdentity) -> None:
    """Check that a column is an identity column."""
    identity_at(state.schema, operation.path)


def identity_at(schema: StructType, path: Path) -> Identity:
    """Return the sequence of an identity column.

    Raises:
        NotAnIdentityColumn: it is not one.
    """
    field = find_field(schema, path)
    identity = find_identity(field) if field else None
    if identity is None:
        raise NotAnIdentityColumn(column=format_path(path))
    return identity


# Whether the type of a column may change.
#
# Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER TABLE for the order of the checks.


_ENABLE_WIDENING = (
    f"Enable it: `widen properties TABLE --set {ENABLE_TYPE_WIDENING}=true`, in Python "
    f"set_properties({{{ENABLE_TYPE_WIDENING!r}: 'true'}}). Clients that do not support it then refuse the table."
)
_NEW_COLUMN = "Write the values to a new column instead."


def allows_type_widening(state: TableState) -> bool:
    """Return whether types may widen: type widening is enabled, or the first type change enables it.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    ensure_type_widening_supported(state)
    return is_on(state.properties, ENABLE_TYPE_WIDENING) or widens_when_needed(state.properties)


def ensure_type_widening_supported(state: TableState) -> None:
    """Check that a table whose property enables type widening supports the feature, or its preview.

    Raises:
        EnabledWithoutFeature: it supports neither.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    is_there = any(state.supports(name) for name in (TYPE_WIDENING, TYPE_WIDENING_PREVIEW))
    if is_on(state.properties, ENABLE_TYPE_WIDENING) and not is_there:
        raise EnabledWithoutFeature(property=ENABLE_TYPE_WIDENING, feature=TYPE_WIDENING)


def table_format_of(state: TableState) -> TableFormat:
    """Return the format that decides which types of a table can widen.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if not allows_type_widening(state):
        return TableFormat.DELTA_FIXED
    is_guarded = iceberg_compat.type_change_compat(state) is not None
    return TableFormat.DELTA_ICEBERG_COMPAT if is_guarded else TableFormat.DELTA


def ensure_type_change(state: TableState, path: Path, old: DataType, new: DataType) -> None:
    """Check that the type of a column may change.

    Raises:
        NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
        TypeChangeRefused: the change is not a widening, or the table does not support it.
        GeneratedColumnTypeFixed: it is a generated column, which has the type of its expression.

    Source: Delta Lake's ALTER COLUMN. Differs: a void column may also get a nested type, which Spark refuses.
    """
    column, before, after = format_path(path), old.sql.upper(), new.sql.upper()
    if not is_atomic(old) or (old != VOID and not is_atomic(new)):
        fix = ", ".join(f"alter_column({format_path((*path, step))!r}, …)" for step in _child_steps(old)) or _NEW_COLUMN
        raise NestedTypeChangeRefused(column=column, old=before, new=after, reason="it is a nested type", fix=fix)
    for reason, fix in type_change_objections(state, old, new):
        raise TypeChangeRefused(column=column, old=before, new=after, reason=reason, fix=fix)
    ensure_independent(state, path)
    if find_generation(nearest_field(state.schema, path)) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=before, new=after, reason=reason, fix=_NEW_COLUMN)


def _child_steps(data_type: DataType) -> tuple[str, ...]:
    match data_type:
        case StructType():
            return data_type.names[:2]
        case ArrayType():
            return ("element",)
        case MapType():
            return ("key", "value")
    return ()


def type_change_objections(state: TableState, old: DataType, new: DataType) -> Iterator[tuple[str, str]]:
    """Yield why a leaf may not change from one type to another, and what to do, in the order of the checks.

    A void column may get any type, which is not type widening.
    """
    if old == VOID:
        return
    if not is_widening(old, new):
        yield "type widening does not support this change", _NEW_COLUMN
    if not allows_type_widening(state):
        yield "type widening is not enabled for this table", _ENABLE_WIDENING
    compat = type_change_compat(state)
    if compat is not None and not is_iceberg_compatible(old, new):
        yield f"Iceberg does not support it, and the table has {compat.feature}", _NEW_COLUMN


def ensure_looser_text(state: TableState, operation: RelaxLength) -> None:
    """Check that the limit of a string column does not shrink: char and varchar may become a longer varchar, or string.

    Raises:
        TypeChangeRefused: the limit would shrink, or the column is not a string column.

    Source: Spark's ALTER TABLE for char and varchar; this is not type widening.
    """
    path, new = operation.path, parse_type(operation.limit, allow_limits=True)
    current = resolve(declared_schema(state.schema), path)[1]
    old_limit, new_limit = text_limit(current), text_limit(new)
    is_longer = old_limit and new_limit and new_limit[0] == "varchar" and old_limit[1] <= new_limit[1]
    if not (new == current or is_longer or (old_limit and new == STRING)):
        raise TypeChangeRefused(
            column=format_path(path),
            old=current.sql.upper(),
            new=operation.limit.upper(),
            reason="the limit would shrink" if old_limit or current == STRING else "it is not a string column",
            fix="char(n) and varchar(n) can change to a longer varchar or to string.",
        )


RESERVED = "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"
"""The name that Delta Spark gives to its check of varchar lengths."""


def ensure_operation_allowed(state: TableState, operation: op.Operation) -> None:
    """Check that the metadata of a table allows an operation. Rows are not read here."""
    CHECKS[type(operation)](state, operation)


def _ensure_type(state: TableState, operation: op.WidenType) -> None:
    ensure_not_identity_column(state, operation.path)
    ensure_type_change(state, operation.path, operation.old, operation.new)


def ensure_new_constraint(state: TableState, operation: op.AddConstraint) -> None:
    """Check that the name of a new constraint is allowed.

    Raises:
        InvalidConstraintName: the name is empty or reserved.
        ConstraintAlreadyExists: a constraint of that name exists.
    """
    if not operation.name.strip() or operation.name == RESERVED:
        raise InvalidConstraintName(name=operation.name)
    key = find_constraint(state, operation.name)
    if key is not None:
        raise ConstraintAlreadyExists(name=operation.name, expression=state.properties[key])


def ensure_constraint_exists(state: TableState, operation: op.DropConstraint) -> None:
    """Check that the constraint to drop exists.

    Raises:
        ConstraintNotFound: it does not exist.
    """
    if find_constraint(state, operation.name) is None:
        names = sorted(key[len(CONSTRAINT_PREFIX) :] for key in check_constraints(state.properties))
        raise ConstraintNotFound(name=operation.name, available=", ".join(names) or "none")


CHECKS: Mapping[type[op.Operation], Callable[[TableState, Any], None]] = {
    op.AddColumn: ensure_column_addable,
    op.AddConstraint: ensure_new_constraint,
    op.DropColumn: ensure_droppable,
    op.DropConstraint: ensure_constraint_exists,
    op.DropDefault: ensure_default,
    op.DropNotNull: ensure_nullability,
    op.RelaxLength: ensure_looser_text,
    op.MoveColumn: ensure_movable,
    op.RenameColumn: ensure_renamable,
    op.ReplaceColumns: ensure_replaceable,
    op.SetComment: ensure_comment_allowed,
    op.SetDefault: ensure_default,
    op.SetNotNull: ensure_nullability,
    op.SetSources: _ensure_sources,
    op.SyncIdentity: ensure_identity_column,
    op.WidenType: _ensure_type,
}
"""The check for each kind of operation."""
