"""Changes of columns of an Iceberg table: checked by our rules, then made by PyIceberg in one commit.

PyIceberg accepts changes that Iceberg forbids, e.g. of the scale of a decimal, or from string to binary. So every
operation is checked here before PyIceberg gets it.

Source: Iceberg's table specification, "Schema Evolution"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from widen.errors import (
    ColumnAlreadyExists,
    ColumnInUse,
    IcebergDefaultsNotSupported,
    InvalidColumnName,
    InvalidOption,
    ItemCommentRefused,
    ItemRenameRefused,
    LastColumnDropRefused,
    NestedTypeChangeRefused,
    PartitionColumnDropRefused,
    TypeChangeRefused,
)
from widen.iceberg.column_defaults import parse_default
from widen.iceberg.metadata_files import ROW_IDS
from widen.iceberg.properties import SOURCES, doc_with_source, encode_sources
from widen.iceberg.schema_conversion import from_model_type
from widen.model.column_path import KEY, Path, fields, find_field, format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import VOID, DataType, Field, MapType, StructType, is_atomic
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.column_metadata import DEFAULT, TEXT_LIMIT
from widen.schema.alter import apply_operation
from widen.schema.checks import ensure_field_addable, ensure_sources
from widen.schema.operations import (
    AddColumn,
    AfterField,
    DropColumn,
    DropDefault,
    DropNotNull,
    FieldPosition,
    MoveColumn,
    Operation,
    RenameColumn,
    SetComment,
    SetDefault,
    SetSources,
    StructEnd,
    WidenType,
    find_anchor,
)
from widen.schema.source_metadata import COMMENT, TableFormat, can_widen

if TYPE_CHECKING:
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import MappedField, NameMapping
    from pyiceberg.table.update.schema import UpdateSchema
    from pyiceberg.types import IcebergType, NestedField

ice_mapping = import_lazily("pyiceberg.table.name_mapping")
ice_schema = import_lazily("pyiceberg.schema")
ice_update = import_lazily("pyiceberg.table.update.schema")
table_update = import_lazily("pyiceberg.table.update")

NAME_MAPPING = "schema.name-mapping.default"
"""Table property: which column each name is, in files without field ids."""


@dataclass(frozen=True)
class ColumnState:
    """What the checks need to know of a table.

    Args:
        partition_ids: The ids of the columns that the partitions are made of.
        other_ids: What else needs a column, by its id: the sort order, or the rows' identity.
    """

    schema: StructType
    partition_ids: frozenset[int]
    other_ids: Mapping[int, str]
    format_version: int


def to_column_state(metadata: TableMetadata, schema: StructType) -> ColumnState:
    """Return the state of a table for the checks."""
    orders = [order for order in metadata.sort_orders if order.order_id == metadata.default_sort_order_id]
    sorted_by = {field.source_id: "the table is sorted by it" for order in orders for field in order.fields}
    identity = dict.fromkeys(metadata.schema().identifier_field_ids, "it identifies the rows of the table")
    used = frozenset(field.source_id for field in metadata.spec().fields if str(field.transform) != "void")
    return ColumnState(schema, used, {**sorted_by, **identity}, metadata.format_version)


def change_columns(transaction: Transaction, state: ColumnState, operations: Iterable[Operation]) -> StructType:
    """Check operations and make them in an open transaction, in their order; the caller commits it.

    Returns:
        The schema after them, where new columns have no ids.

    Raises:
        InvalidOption: Iceberg does not have such an operation.
    """
    schema, mapping, sets_sources = state.schema, transaction.table_metadata.name_mapping(), False
    spelled = SpelledNames(schema)
    for group in _split_independent(operations):
        with transaction.update_schema() as update:
            for operation in group:
                if isinstance(operation, SetSources):
                    ensure_sources(schema, transaction.table_metadata.properties, operation)
                    schema, sets_sources = apply_operation(schema, operation), True
                    continue
                make = _CHANGES.get(type(operation))
                if make is None:
                    raise InvalidOption(option="the change", value=str(operation), expected=_POSSIBLE)
                spelled.apply(schema, operation)
                make(update, replace(state, schema=schema), operation)
                schema = apply_operation(schema, _in_place(schema, operation))
    if mapping is not None:
        _keep_names(transaction, mapping)
    if sets_sources:
        # A load that adds columns meanwhile also records their sources: its schema is another one.
        base = table_update.AssertCurrentSchemaId(current_schema_id=transaction._table.metadata.current_schema_id)
        sources = table_update.SetPropertiesUpdate(updates={SOURCES: encode_sources(schema)})
        transaction._apply((sources,), (base,))
    return schema


def _keep_names(transaction: Transaction, before: NameMapping) -> None:
    """Give the names that a name mapping had before the changes back to their columns.

    PyIceberg moves the name of a dropped column to a new column of that name. In files without field ids, the dropped
    values would reappear in the new column, or make the table unreadable if the types differ.
    """
    after = transaction.table_metadata.name_mapping()
    assert after is not None
    kept = _merge_names(before.root, after.root)
    if kept != after.root:
        transaction.set_properties({NAME_MAPPING: ice_mapping.NameMapping(kept).model_dump_json()})


def _merge_names(before: Sequence[MappedField], after: Sequence[MappedField]) -> list[MappedField]:
    owners = {name: each.field_id for each in before for name in each.names}
    earlier = {each.field_id: each for each in before}
    merged = []
    for each in after:
        names = [name for name in each.names if owners.get(name, each.field_id) == each.field_id]
        old = earlier.pop(each.field_id, None)
        if old is not None:
            names = [*old.names, *(name for name in names if name not in old.names)]
        fields = each.fields if old is None else _merge_names(old.fields, each.fields)
        if names:
            merged.append(ice_mapping.MappedField(field_id=each.field_id, names=names, fields=fields))
    return [*merged, *earlier.values()]


def _in_place(schema: StructType, operation: Operation) -> Operation:
    """Return an operation; for a new column that exists with the type unknown, the change of its type."""
    if isinstance(operation, AddColumn) and _has_no_type(schema, operation):
        return WidenType(operation.path, VOID, operation.field.type)
    return operation


def _has_no_type(schema: StructType, operation: AddColumn) -> bool:
    """Return whether a new column is one that has the type unknown until its first value comes."""
    _, parent = resolve(schema, operation.parent)
    known = parent.find(operation.field.name) if isinstance(parent, StructType) else None
    is_same = known is not None and known.name == operation.field.name and known.type == VOID
    return is_same and DEFAULT not in operation.field.metadata


_POSSIBLE = (
    "Iceberg tables can add, widen, rename, move, comment and drop columns, allow null in them, give them defaults, "
    "and fill them from other fields."
)


def _split_independent(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield operations in groups; an update of PyIceberg knows columns only by their names before it."""
    group: list[Operation] = []
    changed: set[Path] = set()
    for operation in operations:
        path = getattr(operation, "path", ())
        if any(path[: len(each)] == each for each in changed):
            yield group
            group, changed = [], set()
        group.append(operation)
        if isinstance(operation, (AddColumn, DropColumn)):
            changed.add(path)
        if isinstance(operation, RenameColumn):
            changed |= {path, operation.new_path}
    if group:
        yield group


def _add(update: UpdateSchema, state: ColumnState, operation: AddColumn) -> None:
    path, field = operation.path, operation.field
    _, parent = resolve(state.schema, operation.parent)
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="added")
    _ensure_outside_keys(state.schema, path)
    if _has_no_type(state.schema, operation):
        _give_type(update, path, field.type, field.metadata.get(COMMENT))
        return
    _ensure_free(parent, path)
    data_type, default = from_model_type(field.type, path, state.format_version), None
    if DEFAULT in field.metadata:
        default = _read_default(state, path, field.metadata[DEFAULT], data_type)
    # With a value for old rows, the column may also forbid null.
    is_required = default is not None and not field.nullable
    plain = field.without_metadata(DEFAULT)
    ensure_field_addable(operation.parent, replace(plain, nullable=True) if is_required else plain)
    for at, item in fields(StructType((field,))):
        if TEXT_LIMIT in item.metadata:
            expected = "Iceberg has strings without a limit only."
            raise InvalidOption(option=format_path(at), value=item.metadata[TEXT_LIMIT], expected=expected)
    update.add_column(path, data_type, doc=field.metadata.get(COMMENT))
    if default is not None:
        # PyIceberg would keep days and microseconds, which differ from the dates and times that it reads again.
        added = update._adds[ice_update.TABLE_ROOT_ID]
        values = {"initial_default": default, "write_default": default, "required": is_required}
        added[-1] = added[-1].model_copy(update=values)
    _place(update, parent, path, operation.place)


def _read_default(state: ColumnState, path: Path, text: str, data_type: IcebergType) -> Any:
    """Return the value of a default, which only columns of a table of format version 3 have.

    Raises:
        ItemRenameRefused: it is a field of a struct.
        IcebergDefaultsNotSupported: the table has an older format version.
    """
    if len(path) > 1:
        raise ItemRenameRefused(column=format_path(path), verb="given a default")
    if state.format_version < ROW_IDS:
        raise IcebergDefaultsNotSupported(column=format_path(path), version=state.format_version)
    return parse_default(text, data_type, path)


def _give_type(update: UpdateSchema, path: Path, data_type: DataType, doc: str | None = None) -> None:
    """Give a column of the type unknown, which no file has, a type. PyIceberg allows those without fields only.

    Source: Iceberg's table specification, "Schema Evolution"
    """
    known = update._schema.find_field(".".join(path))
    changed = update._updates.get(known.field_id, known)
    given = ice_schema.assign_fresh_schema_ids(from_model_type(data_type, path, ROW_IDS), update.assign_new_column_id)
    values = {"field_type": given, "doc": changed.doc if doc is None else doc}
    update._updates[known.field_id] = changed.model_copy(update=values)


def _set_default(update: UpdateSchema, state: ColumnState, operation: SetDefault) -> None:
    known = update._schema.find_field(".".join(operation.path))
    default = _read_default(state, operation.path, operation.expression, known.field_type)
    _replace_default(update, known, default)


def _drop_default(update: UpdateSchema, state: ColumnState, operation: DropDefault) -> None:
    _replace_default(update, update._schema.find_field(".".join(operation.path)), None)


def _replace_default(update: UpdateSchema, known: NestedField, default: Any) -> None:
    """Set the value of new rows. The value of old rows cannot change."""
    changed = update._updates.get(known.field_id, known)
    update._updates[known.field_id] = changed.model_copy(update={"write_default": default})


def _ensure_free(parent: StructType, path: Path, field: Field | None = None) -> None:
    existing = parent.find(path[-1])
    if existing is not None and existing is not field:
        raise ColumnAlreadyExists(column=format_path((*path[:-1], existing.name)))
    if not path[-1]:
        raise InvalidColumnName(name=path[-1], reason="it is empty", fix="Choose a name.")


class SpelledNames:
    """The columns by their names with dots, as PyIceberg spells the fields of structs.

    Each operation changes only the names of its own columns, so that many operations take linear time.
    """

    def __init__(self, schema: StructType) -> None:
        self._paths = {".".join(path): path for path, _ in fields(schema)}

    def apply(self, schema: StructType, operation: Operation) -> None:
        """Follow an operation."""
        match operation:
            case AddColumn():
                parent, _ = resolve(schema, operation.parent)
                self._add((*parent, *path) for path, _ in fields(StructType((operation.field,))))
            case RenameColumn():
                below = list(self._remove(schema, operation.path))
                self._add((*operation.new_path, *path) for path in below)
            case DropColumn():
                for _ in self._remove(schema, operation.path):
                    pass

    def _add(self, paths: Iterable[Path]) -> None:
        for path in paths:
            other = self._paths.setdefault(".".join(path), path)
            if other != path:
                reason = f"Iceberg spells it like {format_path(other)}"
                raise InvalidColumnName(name=format_path(path), reason=reason, fix="Choose a name without dots.")

    def _remove(self, schema: StructType, path: Path) -> Iterator[Path]:
        """Yield the paths of a dropped column, beginning with its own, which is empty."""
        actual, data_type = resolve(schema, path)
        for below in ((), *(inner for inner, _ in fields(data_type))):
            self._paths.pop(".".join((*actual, *below)), None)
            yield below


def _ensure_outside_keys(schema: StructType, path: Path) -> None:
    """Check that no map key would change: rows with equal keys would then differ.

    Source: Iceberg's table specification, "Schema Evolution"
    """
    above: DataType = schema
    for at in range(len(path)):
        if isinstance(above, MapType) and path[at] == KEY:
            key = format_path(path[: at + 1])
            raise ColumnInUse(column=format_path(path), verb="changed", reason=f"{key} is the key of a map")
        if at + 1 < len(path):
            above = resolve(schema, path[: at + 1])[1]


def _widen(update: UpdateSchema, state: ColumnState, operation: WidenType) -> None:
    path, old, new = operation.path, operation.old, operation.new
    if old == VOID:
        _ensure_outside_keys(state.schema, path)
        _give_type(update, path, new)
        return
    column, before, after = format_path(path), old.sql.upper(), new.sql.upper()
    if not is_atomic(old) or not is_atomic(new):
        fix = "name the fields, the element, the key or the value in it."
        raise NestedTypeChangeRefused(column=column, old=before, new=after, reason="it is a nested type", fix=fix)
    if not can_widen(TableFormat.ICEBERG_V2, old, new):
        reason = f"Iceberg does not allow this change in format version {state.format_version}"
        if state.format_version >= ROW_IDS and can_widen(TableFormat.ICEBERG_V3, old, new):
            reason = _MISREAD
        fix = "It allows int to bigint, float to double, and more digits of a decimal. Write to a new column instead."
        raise TypeChangeRefused(column=column, old=before, new=after, reason=reason, fix=fix)
    _ensure_outside_keys(state.schema, path)
    update.update_column(path, from_model_type(new, path))


_MISREAD = (
    "Iceberg allows this change in format version 3, but Iceberg for Spark 1.12 then loses rows of old files, and "
    "PyIceberg 0.12 cannot read them"
)


def _rename(update: UpdateSchema, state: ColumnState, operation: RenameColumn) -> None:
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="renamed")
    _ensure_outside_keys(state.schema, path)
    _ensure_free(parent, operation.new_path, parent.find(path[-1]))
    update.rename_column(path, operation.name)


def _drop(update: UpdateSchema, state: ColumnState, operation: DropColumn) -> None:
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="dropped")
    _ensure_outside_keys(state.schema, path)
    if len(parent) == 1:
        raise LastColumnDropRefused(column=format_path(path), place=format_path(path[:-1]) or "the table")
    for at, field in fields(state.schema):
        if at[: len(path)] != path or COLUMN_ID not in field.metadata:
            continue
        if field.metadata[COLUMN_ID] in state.partition_ids:
            raise PartitionColumnDropRefused(column=format_path(at))
        if field.metadata[COLUMN_ID] in state.other_ids:
            reason = state.other_ids[field.metadata[COLUMN_ID]]
            raise ColumnInUse(column=format_path(at), verb="dropped", reason=reason)
    update.delete_column(path)


def _comment(update: UpdateSchema, state: ColumnState, operation: SetComment) -> None:
    field = find_field(state.schema, operation.path)
    if field is None:
        raise ItemCommentRefused(column=format_path(operation.path))
    update.update_column(operation.path, doc=doc_with_source(operation.comment, field) or "")


def _allow_null(update: UpdateSchema, state: ColumnState, operation: DropNotNull) -> None:
    field = find_field(state.schema, operation.path)
    if field is not None and field.metadata.get(COLUMN_ID) in state.other_ids:
        reason = state.other_ids[field.metadata[COLUMN_ID]]
        raise ColumnInUse(column=format_path(operation.path), verb="made nullable", reason=reason)
    update.make_column_optional(operation.path)


def _move(update: UpdateSchema, state: ColumnState, operation: MoveColumn) -> None:
    _, parent = resolve(state.schema, operation.path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(operation.path), verb="moved")
    _place(update, parent, operation.path, operation.place)


def _place(update: UpdateSchema, parent: StructType, path: Path, place: FieldPosition) -> None:
    if isinstance(place, AfterField):
        anchor = find_anchor(parent, place).name
        if anchor != path[-1]:  # PyIceberg refuses to move a column behind itself
            update.move_after(path, (*path[:-1], anchor))
    elif place is StructEnd.FIRST:
        update.move_first(path)


_CHANGES: Mapping[type[Any], Callable[[UpdateSchema, ColumnState, Any], None]] = {
    AddColumn: _add,
    WidenType: _widen,
    RenameColumn: _rename,
    DropColumn: _drop,
    SetComment: _comment,
    DropNotNull: _allow_null,
    MoveColumn: _move,
    SetDefault: _set_default,
    DropDefault: _drop_default,
}
"""For each kind of operation, its checks and the change of PyIceberg."""
