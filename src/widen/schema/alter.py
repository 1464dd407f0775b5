"""ALTER TABLE: plan a change of columns as one commit, from the caller's request to the metadata of the table.

The first half turns what callers ask for into operations; a request that changes nothing yields none, and names are
matched exactly first, then case-insensitively. `plan_alter` is the rest of the story: check the operations, apply them
to the schema, record the type history, assign column ids, and name the commit for the history. The evolution of a batch
keeps its own running schema; a test checks that applying its plan gives the same one.

Source: Delta Lake's ALTER TABLE: the order of the checks, the errors and the commit provenance; for the metadata
PROTOCOL.md#change-metadata
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, TypeAlias, TypedDict, TypeVar

import msgspec

from widen.errors import ColumnNotFound, InternalError, InvalidOption, ItemRenameRefused, OptionConflict
from widen.model.column_path import (
    KEY,
    Path,
    children,
    find_field,
    format_path,
    leaves,
    nearest_field,
    parse_path,
    replace_type,
    resolve,
)
from widen.model.schema_json import parse_type, to_json
from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType, is_atomic, name_key, quote_name
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_metadata import (
    DEFAULT,
    HIGH_WATER_MARK,
    declared_schema,
    find_default,
    find_identity,
    stored_schema,
    text_limit,
    to_declared,
    visible_schema,
    without_limits,
)
from widen.protocol.file_statistics import STATS_COLUMNS, named_columns
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import (
    TYPE_WIDENING_PREVIEW,
    missing_type_features,
    require_feature,
    required_features,
    supported_features,
    with_features,
)
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING, widens_when_needed, with_type_widening
from widen.protocol.type_widening import record_type_changes
from widen.schema import operations as op
from widen.schema.checks import ensure_operation_allowed, ensure_type_widening_supported
from widen.schema.operations import (
    AddConstraint,
    AfterField,
    DropColumn,
    DropConstraint,
    FieldPosition,
    Operation,
    RenameColumn,
    ReplaceColumns,
    StructEnd,
    added_features,
    insert_field,
    schema_differences,
)
from widen.schema.source_metadata import COMMENT, source_keys, source_path, with_source_keys
from widen.schema.table_state import MetadataChange, TableState, constraint_key, find_constraint, is_referenced


class ColumnChanges(TypedDict, total=False):
    """The changes of a column. Missing keys change nothing.

    Args:
        type: The wider type; for a string column also a longer ``varchar(n)``, or ``string``.
        comment: The new comment; it may be empty.
        nullable: Whether it is nullable. To make it NOT NULL, all rows are checked.
        first: Whether to move it to the beginning of its struct.
        after: The name of the column to move it after.
        default: The default for rows written without a value, an SQL expression; of an Iceberg table a literal.
        source: The name of another field of records that fills the column, beside the one that does so already.
        drop_source: The name of a field that no longer fills it.
    """

    type: DataType | str
    comment: str
    nullable: bool
    first: bool
    after: str
    default: str
    drop_default: bool
    source: str
    drop_source: str


class _TypeField(TypedDict):
    type: DataType | str


class NewColumn(_TypeField, total=False):
    """A column to add.

    Args:
        nullable: Whether it is nullable. A new column must be, unless it has a default.
        first: Whether to add it at the beginning of its struct instead of the end.
        default: The value of existing and new rows, a literal in SQL. Only Iceberg tables of format version 3 can add
            it: in others, existing rows have null in a new column.
    """

    comment: str
    nullable: bool
    first: bool
    after: str
    default: str


AnyPath: TypeAlias = str | Path
"""A column path as text, or as a tuple of steps."""

_ChangeFields = TypeVar("_ChangeFields")
ByPath: TypeAlias = Mapping[str, _ChangeFields] | Mapping[Path, _ChangeFields] | Mapping[AnyPath, _ChangeFields]
"""Changes by column path."""


def to_path(path: AnyPath) -> Path:
    """Return a path as a tuple of steps."""
    return parse_path(path) if isinstance(path, str) else tuple(path) or parse_path("")


def parse_column_changes(schema: StructType, changes: ByPath[ColumnChanges]) -> tuple[op.Operation, ...]:
    """Parse changes of existing columns, in the given order.

    Raises:
        InvalidOption: a key is unknown, two keys contradict each other, or a column occurs twice.
    """
    operations: dict[Path, tuple[op.Operation, ...]] = {}
    for name, change in changes.items():
        path, _ = resolve(schema, to_path(name))
        _ensure_known_keys(path, change, ColumnChanges)
        if path in operations:
            raise InvalidOption(
                option=format_path(path), value=name, expected="Must occur once, with all changes of the column."
            )
        operations[path] = tuple(_parse_column_change(schema, path, change))
    return tuple(chain.from_iterable(operations.values()))


def _parse_column_change(schema: StructType, path: Path, change: ColumnChanges) -> Iterator[op.Operation]:
    field = find_item(declared_schema(schema), path)
    if "comment" in change and change["comment"] != field.metadata.get(COMMENT):
        yield op.SetComment(path, change["comment"])
    if "type" in change:
        yield from _parse_type_change(path, field, change["type"])
    # An identity column refuses the change also where there is nothing to change, as in Delta Lake.
    changes_identity = change.get("nullable") is True and find_identity(field) is not None
    if "nullable" in change and (change["nullable"] != field.nullable or changes_identity):
        yield op.DropNotNull(path) if change["nullable"] else op.SetNotNull(path)
    if "default" in change and change["default"] != find_default(field):
        yield op.SetDefault(path, change["default"])
    if change.get("drop_default") and DEFAULT in field.metadata:
        yield op.DropDefault(path)
    if "source" in change or "drop_source" in change:
        yield from _parse_sources(schema, path, change.get("source"), change.get("drop_source"))
    place = _place(path, change)
    if place is not StructEnd.LAST:
        yield op.MoveColumn(path, place)


def _parse_sources(schema: StructType, path: Path, new: str | None, dropped: str | None) -> Iterator[op.Operation]:
    """Yield the operation that changes which fields fill a column, if there is something to change."""
    field = find_field(schema, path)
    if field is None:
        raise ItemRenameRefused(column=format_path(path), verb="given another source field")
    names = [*source_keys(field)]
    if new is not None and new not in names:
        names.append(new)
    if dropped is not None:
        if dropped not in names:
            raise InvalidOption(option="drop_source", value=dropped, expected=f"Must be one of: {', '.join(names)}.")
        names.remove(dropped)
    if not names:
        expected = "It is the only field that fills the column. Name the other one as source, too."
        raise InvalidOption(option="drop_source", value=dropped, expected=expected)
    if source_keys(field) != tuple(names):
        yield op.SetSources(path, tuple(names))


def _parse_type_change(path: Path, field: Field, requested: DataType | str) -> Iterator[op.Operation]:
    """Yield the change of a declared type: in the log, char and varchar are strings."""
    new = parse_type(requested, allow_limits=True) if isinstance(requested, str) else requested
    if new.sql == field.type.sql:
        return
    if text_limit(new) or (new == STRING and text_limit(field.type)):
        yield op.RelaxLength(path, new.sql)
    else:
        yield op.WidenType(path, without_limits(field.type), new)


def _place(path: Path, change: Mapping[str, Any]) -> FieldPosition:
    if change.get("first"):
        return StructEnd.FIRST
    return AfterField(change["after"]) if "after" in change else StructEnd.LAST


def _ensure_known_keys(path: Path, change: Mapping[str, Any], valid: Any) -> None:
    for key in change:
        if key not in valid.__annotations__ and key not in _TypeField.__annotations__:
            words = ", ".join(ColumnChanges.__annotations__)
            raise InvalidOption(option=format_path(path), value=key, expected=f"Valid keys are: {words}.")
    for key, other in (("first", "after"), ("default", "drop_default")):
        if change.get(key) and change.get(other):
            expected = f"Give only one of them for column {format_path(path)}."
            raise OptionConflict(option=key, other_option=other, expected=expected)


def parse_new_columns(schema: StructType, columns: ByPath[DataType | str | NewColumn]) -> tuple[op.Operation, ...]:
    """Parse columns to add, in the given order. A column may be added inside one that is added before it.

    Args:
        columns: The type or a `NewColumn`, by path.
    """
    operations: list[op.Operation] = []
    for name, column in columns.items():
        column_spec: Mapping[str, Any] = column if isinstance(column, Mapping) else {"type": column}
        *above, last = to_path(name)
        parent, struct = resolve(schema, tuple(above))
        _ensure_known_keys((*parent, last), column_spec, NewColumn)
        operation = op.AddColumn(parent, _new_field((*parent, last), column_spec), _place((*parent, last), column_spec))
        operations.append(operation)
        if isinstance(struct, StructType) and struct.find(last) is None:
            schema = apply_operations(schema, [operation])
    return tuple(operations)


def _new_field(path: Path, column_spec: Mapping[str, Any]) -> Field:
    if "type" not in column_spec:
        raise InvalidOption(option=format_path(path), value=dict(column_spec), expected="A new column needs a type.")
    given = column_spec["type"]
    data_type = parse_type(given, allow_limits=True) if isinstance(given, str) else given
    metadata = {
        key: column_spec[name] for name, key in (("comment", COMMENT), ("default", DEFAULT)) if name in column_spec
    }
    field = Field(path[-1], data_type, column_spec.get("nullable", True), metadata)
    return visible_schema(stored_schema(StructType((field,)))).fields[0]


def parse_rename(schema: StructType, path: AnyPath, name: str) -> tuple[op.Operation, ...]:
    """Parse the rename of a column."""
    resolved, _ = resolve(schema, to_path(path))
    return () if resolved[-1] == name else (op.RenameColumn(resolved, name),)


def parse_drops(schema: StructType, paths: Iterable[AnyPath], *, if_exists: bool) -> tuple[op.Operation, ...]:
    """Parse columns to drop."""
    drops: list[op.Operation] = []
    for path in map(to_path, paths):
        try:
            drops.append(op.DropColumn(resolve(schema, path)[0]))
        except ColumnNotFound:
            if not if_exists:
                raise
    return tuple(drops)


def parse_replacement(given: StructType) -> tuple[op.Operation, ...]:
    """Return the operation that replaces all columns."""
    return (op.ReplaceColumns(visible_schema(given)),)


# The commit that operations make of a table: checks, schema, type history, column ids, and the entry of the history.


def plan_alter(state: TableState, operations: Sequence[Operation]) -> MetadataChange | None:
    """Return the commit that applies all operations, or None if nothing changes.

    Each operation is checked against the state that the ones before it leave.

    Source: Delta Lake's ALTER TABLE.
    """
    now, done = state, list[Operation]()
    for group in _independent_groups(operations):
        for operations_together in _singly(now, group):
            for operation in operations_together:
                ensure_operation_allowed(now, operation)
            after = replace(now, metadata=with_operations(now, operations_together, adds_features=True))
            if not _is_same(now, after):
                done += [each for each in operations_together if _has_effect(each, now, after)]
                now = after
    if not done:
        return None
    ensure_type_widening_supported(state)
    joining = missing_type_features(state.protocol, now.schema, joining=True)
    protocol = with_features(protocol_with(state, now.metadata), added_features(done).union(joining))
    actions: tuple[Metadata | Protocol, ...] = (now.metadata,)
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (now.metadata, protocol)
    name, parameters = operation_parameters(state, done)
    return MetadataChange(actions, name, parameters, tuple(done))


DROP_COLUMNS = "DROP COLUMNS"
"""The operation of a commit that drops columns, as Delta Lake has it."""

_PARTS: Mapping[type[Operation], str] = {
    op.WidenType: "type",
    op.RelaxLength: "type",
    op.SetComment: "comment",
    op.SetDefault: "default",
    op.DropDefault: "default",
    op.SetNotNull: "nullability",
    op.DropNotNull: "nullability",
    op.MoveColumn: "position",
}
"""What an operation changes of the one field that it changes."""


def _independent_groups(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in order, in groups that can be checked against one state and applied at once.

    None of a group changes what another one changes, or a field around or below it. A schema of n columns is then
    built once for a change of all of them, not n times.
    """
    group, changed, above = list[Operation](), dict[Path, set[str]](), set[Path]()
    for operation in operations:
        kind = _PARTS.get(type(operation), "")
        path = tuple(map(name_key, getattr(operation, "path", ())))
        parents = [path[:end] for end in range(1, len(path))]
        is_apart = path not in above and not any(map(changed.__contains__, parents))
        is_new = kind not in changed[path] if path in changed else True
        if group and not (is_apart and is_new and path and _are_alike(group[0], operation)):
            yield group
            group, changed, above = [], {}, set()
        group.append(operation)
        changed.setdefault(path, set()).add(kind)
        above.update(parents)
    if group:
        yield group


def _are_alike(first: Operation, other: Operation) -> bool:
    """Return whether two operations only add columns, only drop them, or only change existing ones."""
    if type(first) in _PARTS:
        return type(other) in _PARTS
    return type(first) is type(other) and isinstance(first, (op.AddColumn, op.DropColumn))


def _singly(state: TableState, group: list[Operation]) -> Iterator[list[Operation]]:
    """Yield a group as it is; drops one by one if a struct may lose all its fields, which the last must refuse."""
    drops = Counter(each.path[:-1] for each in group if isinstance(each, op.DropColumn))
    for parent, count in drops.items():
        struct = resolve(state.schema, parent)[1]
        stored = [name for name, _ in children(struct) if parent or name not in state.metadata.partition_columns]
        if count >= len(stored):
            yield from ([each] for each in group)
            return
    yield group


def _has_effect(operation: Operation, before: TableState, after: TableState) -> bool:
    if type(operation) not in _PARTS or isinstance(operation, op.RelaxLength):  # its limit is stored in the column
        return True
    path: Path = operation.path  # type: ignore[union-attr]
    if isinstance(operation, op.MoveColumn):
        old, new = (resolve(state.schema, path[:-1])[1] for state in (before, after))
        return not (isinstance(old, StructType) and isinstance(new, StructType) and old.names == new.names)
    return nearest_field(before.schema, path) != nearest_field(after.schema, path)


def _is_same(before: TableState, after: TableState) -> bool:
    """Return whether two states are equal. Schemas are parsed first: equal ones may differ in their JSON."""
    rest = (msgspec.structs.replace(state.metadata, schema_string="") for state in (before, after))
    return before.schema == after.schema and next(rest) == next(rest)


# The metadata of a table after its columns change: type history, column ids, and what depends on the columns.
#
# Source: PROTOCOL.md#change-metadata


def with_operations(state: TableState, operations: Sequence[Operation], *, adds_features: bool = False) -> Metadata:
    """Return the metadata after operations, with type changes recorded and column ids assigned.

    If the table widens when needed, its first type change turns on type widening. `protocol_with` has the protocol.

    Args:
        adds_features: Whether the caller adds the features that join a table with a new column.

    Source: PROTOCOL.md#type-change-metadata, #writer-requirements-for-column-mapping
    """
    changed, metadata = state.schema, state.metadata
    version = state.version + 1 if state.supports(TYPE_WIDENING_PREVIEW) else None
    # Type changes are found by comparing two schemas field by field, by name. So they are recorded for each run of
    # operations that renames and drops nothing: across a rename, the old and the new field would not be compared.
    for changes_names, group in groupby(
        operations, lambda operation: isinstance(operation, (RenameColumn, DropColumn))
    ):
        before, steps = changed, tuple(group)
        for step in steps:
            metadata = _update_dependents(metadata, before, step)
        changed = apply_operations(before, steps)
        recorded = changed if changes_names else record_type_changes(before, changed, version)
        if widens_when_needed(metadata.configuration) and recorded != changed:
            metadata = _with_properties(metadata, with_type_widening(metadata.configuration))
        changed = recorded
    ensure_types(state, changed, adds_features=adds_features)
    return with_schema(replace(state, metadata=metadata), changed)


def protocol_with(before: TableConfiguration, metadata: Metadata) -> Protocol:
    """Return the protocol of a table after its metadata change: the same, or with the feature of type widening.

    Args:
        metadata: The new metadata. Only its first type change may have enabled a feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if not widens_when_needed(before.properties) or widens_when_needed(metadata.configuration):
        return before.protocol
    enabled = {key: text for key, text in metadata.configuration.items() if key == ENABLE_TYPE_WIDENING}
    return with_features(before.protocol, required_features(enabled, supported=supported_features(before.protocol)))


def changed_configuration(before: TableConfiguration, metadata: Metadata) -> list[Metadata | Protocol]:
    """Return the actions that give a table other metadata: none if they are the same, else with their protocol."""
    protocol = protocol_with(before, metadata)
    pairs = ((metadata, before.metadata), (protocol, before.protocol))
    return [new for new, old in pairs if new != old]


def with_schema(state: TableState, schema: StructType) -> Metadata:
    """Return the metadata with another schema. With column mapping, new columns get ids and physical names."""
    configuration = state.properties
    if state.mapping != column_mapping.NONE:
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
    return msgspec.structs.replace(state.metadata, schema_string=to_json(schema), configuration=configuration)


def assign_column_ids(
    schema: StructType, configuration: Mapping[str, str], name: Callable[[Field], str]
) -> tuple[StructType, dict[str, str]]:
    """Assign ids and physical names to fields without one.

    Returns:
        The schema with ids, and the properties with the highest id.
    """
    schema, last = column_mapping.assign_ids(schema, column_mapping.max_column_id(schema, configuration), name)
    if iceberg_compat.has_nested_ids(configuration):
        schema, last = column_mapping.assign_nested_ids(schema, last)
    return schema, {**configuration, column_mapping.MAX_COLUMN_ID: str(last)}


def new_physical_name(_: Field) -> str:
    """Return a physical name that no column ever had: a dropped column of that name may still be in files.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return f"col-{uuid.uuid4()}"


def ensure_types(state: TableState, schema: StructType, *, adds_features: bool = False) -> None:
    """Check that a table supports the features that new types in a schema need.

    Args:
        adds_features: Whether the caller adds those that join a table with a new column.

    Source: PROTOCOL.md#timestamp-without-timezone-timestampntz; Delta Spark, which does not add that one either
    """
    used = {str(leaf) for _, leaf in leaves(schema)} - {str(leaf) for _, leaf in leaves(state.schema)}
    joining = False if adds_features else None
    for feature in missing_type_features(state.protocol, _columns_of(used, schema), joining=joining):
        raise require_feature(state.protocol, feature)


def _columns_of(types: set[str], schema: StructType) -> StructType:
    return StructType(tuple(Field(str(leaf), leaf) for _, leaf in leaves(schema) if str(leaf) in types))


def _update_dependents(metadata: Metadata, schema: StructType, operation: Operation) -> Metadata:
    """Return the metadata after an operation, apart from the schema."""
    match operation:
        case RenameColumn(path, name):
            split = tuple(name if (column,) == path else column for column in metadata.partition_columns)
            named = named_columns(metadata.configuration) or ()
            renamed = [_rename_path(column, path, operation.new_path) for column in named]
            return _with_statistics(msgspec.structs.replace(metadata, partition_columns=split), renamed)
        case DropColumn(path):
            return _without_path(metadata, [path])
        case ReplaceColumns():
            differences = schema_differences(schema, operation.schema)
            return _without_path(metadata, [each.path for each in differences if isinstance(each, DropColumn)])
        case AddConstraint(name, expression):
            return _with_properties(metadata, {**metadata.configuration, constraint_key(name): expression})
        case DropConstraint(name):
            kept = {key: text for key, text in metadata.configuration.items() if key.lower() != constraint_key(name)}
            return _with_properties(metadata, kept)
    return metadata


def _rename_path(path: Path, old: Path, new: Path) -> Path:
    return (*new, *path[len(old) :]) if _leads_to(old, path) else path


def _without_path(metadata: Metadata, dropped: list[Path]) -> Metadata:
    named = named_columns(metadata.configuration) or ()
    return _with_statistics(metadata, [path for path in named if not any(_leads_to(each, path) for each in dropped)])


def _leads_to(path: Path, inner: Path) -> bool:
    return len(path) <= len(inner) and is_referenced(path, [inner])


def _with_statistics(metadata: Metadata, columns: list[Path]) -> Metadata:
    if STATS_COLUMNS not in metadata.configuration:
        return metadata
    listed = ",".join(map(format_path, columns))
    return _with_properties(metadata, {**metadata.configuration, STATS_COLUMNS: listed})


def _with_properties(metadata: Metadata, configuration: dict[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration=configuration)


# The schema after operations.


_Change: TypeAlias = Callable[[StructType, Field], StructType]


def apply_operations(schema: StructType | None, operations: Iterable[op.Operation]) -> StructType:
    """Return the schema after the operations. Other metadata is kept; type histories are not recorded."""
    current = None if schema is None else declared_schema(schema)
    for operation in operations:
        current = _apply(current, operation)
    return stored_schema(current or StructType())


def apply_operation(schema: StructType, operation: op.Operation) -> StructType:
    """Return a schema without char and varchar columns after one operation; see `apply_operations`.

    It takes no longer for more columns elsewhere in the schema, so that many operations take linear time.
    """
    return _apply(schema, operation)


def _apply(schema: StructType | None, operation: op.Operation) -> StructType:
    existing = schema or StructType()
    match operation:
        case op.CreateTable():
            return declared_schema(operation.schema)
        case op.ReplaceColumns():
            return replace_schema(existing, declared_schema(operation.schema))
        case op.AddColumn():
            return _with_column(existing, operation)
        case op.WidenType():
            return _with_type(existing, operation)
        case op.RelaxLength(path, limit):
            return replace_type(existing, resolve(existing, path)[0], parse_type(limit, allow_limits=True))
        case op.AddConstraint() | op.DropConstraint():
            return existing
        case op.RenameColumn(path, name):
            return _change_struct(
                existing, path, lambda struct, field: _swap_field(struct, field, replace(field, name=name))
            )
        case op.DropColumn(path):
            return _change_struct(
                existing, path, lambda struct, field: StructType(tuple([f for f in struct.fields if f is not field]))
            )
        case op.MoveColumn(path, place):
            return _change_struct(existing, path, lambda struct, field: insert_field(struct, field, place))
        case op.SetSources(path, names):
            above = source_path(existing, path[:-1])
            return _change_struct(existing, path, lambda struct, field: with_source_keys(struct, field, above, names))
    return _change_struct(
        existing, operation.path, lambda struct, field: _swap_field(struct, field, _with_detail(field, operation))
    )


_Detail: TypeAlias = op.SetComment | op.SetDefault | op.DropDefault | op.SetNotNull | op.DropNotNull | op.SyncIdentity


def _with_detail(field: Field, operation: _Detail) -> Field:
    """Return the field after an operation that changes its metadata or its nullability."""
    match operation:
        case op.SetComment(_, comment):
            return field.with_metadata(**{COMMENT: comment})
        case op.SetDefault(_, expression):
            return field.with_metadata(**{DEFAULT: expression})
        case op.DropDefault():
            return field.without_metadata(DEFAULT)
        case op.SetNotNull() | op.DropNotNull():
            return replace(field, nullable=isinstance(operation, op.DropNotNull))
        case op.SyncIdentity(_, high_water_mark):
            return field.with_metadata(**{HIGH_WATER_MARK: high_water_mark})


def _change_struct(schema: StructType, path: Path, change: _Change) -> StructType:
    """Return the schema with the struct around a path replaced by the result of a function of struct and field."""
    parent, struct = resolve(schema, path[:-1])
    field = struct.find(path[-1]) if isinstance(struct, StructType) else None
    if not isinstance(struct, StructType) or field is None:
        raise InternalError(reason=f"{format_path(path)} is not a field of a struct")
    return replace_type(schema, parent, change(struct, field))


def _swap_field(struct: StructType, old: Field, new: Field) -> StructType:
    return StructType(tuple([new if field is old else field for field in struct.fields]))


def _with_column(schema: StructType, operation: op.AddColumn) -> StructType:
    path, struct = resolve(schema, operation.parent)
    # Not `find`, which would make an index of each new struct; names that differ otherwise are refused before.
    if not isinstance(struct, StructType) or operation.field.name.lower() in map(str.lower, struct.names):
        raise InternalError(
            reason=f"{format_path(operation.path)} cannot be added: the name exists, or the parent is not a struct"
        )
    return replace_type(schema, path, insert_field(struct, to_declared(operation.field), operation.place))


def _with_type(schema: StructType, operation: op.WidenType) -> StructType:
    path, actual = resolve(schema, operation.path)
    if actual != operation.old:
        raise InternalError(reason=f"{format_path(operation.path)} is {actual.sql}, not {operation.old.sql}")
    return replace_type(schema, path, operation.new)


# REPLACE COLUMNS: the resulting schema.
#
# Fields are matched by name, case-insensitively; elements, keys and values by position.
#
# Source: Delta Lake's REPLACE COLUMNS.


def replace_schema(old: StructType, given: StructType) -> StructType:
    """Return the given columns, in their order and with their types; existing ones keep their spelling and metadata.

    A given comment replaces the old one. The nullability of elements and map values does not change.
    """
    result = _merge_type(old, given)
    assert isinstance(result, StructType)
    return result


def _merge_type(old: DataType, given: DataType) -> DataType:
    match old, given:
        case StructType(), StructType():
            return StructType(tuple(_field(old.find(field.name), field) for field in given))
        case ArrayType(), ArrayType():
            return replace(old, element=_merge_type(old.element, given.element))
        case MapType(), MapType():
            return replace(old, key=_merge_type(old.key, given.key), value=_merge_type(old.value, given.value))
    return old if text_limit(old) else given


def _field(old: Field | None, given: Field) -> Field:
    if old is None:
        return given
    comment = {key: text for key, text in given.metadata.items() if key == COMMENT}
    return replace(old, type=_merge_type(old.type, given.type), nullable=given.nullable).with_metadata(**comment)


# The name and the parameters of operations in the history of a table.
#
# A column is described by its path, the name of its type, and its metadata before the commit adds to it: without a
# new entry in its type history, and without a new high-water mark.
#
# Source: Delta Lake's commit provenance, which DESCRIBE HISTORY shows.


def operation_parameters(state: TableState, operations: Sequence[op.Operation]) -> tuple[str, Mapping[str, object]]:
    """Return the name and the parameters of a commit that applies operations.

    Args:
        operations: Only additions, only drops, only changes of existing columns, or a single other operation.
    """
    match operations:
        case [op.RenameColumn() as operation]:
            return "RENAME COLUMN", {
                "oldColumnPath": _name(operation.path),
                "newColumnPath": _name(operation.new_path),
            }
        case [op.ReplaceColumns(schema)]:
            return "REPLACE COLUMNS", {"columns": [_column((field.name,), field) for field in schema]}
        case [op.AddConstraint(name, expression)]:
            return "ADD CONSTRAINT", {"name": name, "expr": expression}
        case [op.DropConstraint(name)]:
            expression = state.properties[find_constraint(state, name) or ""]
            return "DROP CONSTRAINT", {"name": name, "expr": expression, "existed": "true"}
    added = [operation for operation in operations if isinstance(operation, op.AddColumn)]
    if len(added) == len(operations):
        described = [{"column": _new_column(each), **_position(each.place)} for each in added]
        return "ADD COLUMNS", {"columns": described}
    dropped = [operation for operation in operations if isinstance(operation, op.DropColumn)]
    if len(dropped) == len(operations):
        return DROP_COLUMNS, {"columns": [_name(each.path) for each in dropped]}
    visible = [operation for operation in operations if not isinstance(operation, op.SyncIdentity)]
    return _column_changes(apply_operations(state.schema, visible), operations)


def _column_changes(schema: StructType, operations: Sequence[op.Operation]) -> tuple[str, Mapping[str, object]]:
    """Describe changes of existing columns, with one entry for each column."""
    places: dict[Path, Mapping[str, object]] = {}
    for operation in operations:
        match operation:
            case (
                op.CreateTable()
                | op.ReplaceColumns()
                | op.AddConstraint()
                | op.DropConstraint()
                | op.AddColumn()
                | op.DropColumn()
            ):
                raise InternalError(reason=f"{operation} is committed together with something else")
        position = _position(operation.place) if isinstance(operation, op.MoveColumn) else {}
        places[operation.path] = {**places.get(operation.path, {}), **position}
    described = [(_column(path, find_item(schema, path)), place) for path, place in places.items()]
    if len(described) == 1:
        return "CHANGE COLUMN", {"column": described[0][0], **described[0][1]}
    return "CHANGE COLUMNS", {"columns": [{**column, **place} for column, place in described]}


def find_item(schema: StructType, path: Path) -> Field:
    """Return the field at a path. For an element, a key or a value, return an equivalent field."""
    item = find_field(schema, path)
    return item or Field(path[-1], resolve(schema, path)[1], _is_nullable(resolve(schema, path[:-1])[1], path[-1]))


def _is_nullable(parent: DataType, step: str) -> bool:
    """Return whether an element or a value is nullable. Keys never are."""
    match parent:
        case ArrayType(_, contains_null):
            return contains_null
        case MapType(_, _, contains_null):
            return contains_null and step != KEY
    return True


def _column(path: Path, field: Field) -> dict[str, Any]:
    kind = str(field.type) if is_atomic(field.type) else _KINDS[type(field.type)]
    return {"name": _name(path), "type": kind, "nullable": field.nullable, "metadata": dict(field.metadata)}


def _new_column(addition: op.AddColumn) -> dict[str, Any]:
    """Describe a new column; char and varchar by the type that was requested."""
    return _column(addition.path, to_declared(addition.field))


_KINDS: Mapping[type[DataType], str] = {StructType: "struct", ArrayType: "array", MapType: "map"}


def _position(place: FieldPosition) -> dict[str, object]:
    return {} if place is StructEnd.LAST else {"position": str(place)}


def _name(path: Path) -> str:
    """Format a path as Delta Lake does, which quotes only names that contain a dot or a backtick."""
    return ".".join(quote_name(step) if "." in step or "`" in step else step for step in path)
