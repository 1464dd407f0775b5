"""The schema changes that a write makes so that its data fit the table.

Source: Delta Lake's schema evolution on write
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, TypeAlias

import msgspec

from widen.errors import (
    AssignmentConflict,
    ColumnNotFound,
    ConstraintDependsOnColumn,
    ConstraintTypeMismatch,
    GeneratedColumnTypeFixed,
    GeneratedColumnTypeMismatch,
    IdentityColumnFixed,
    IdentityColumnGiven,
    IdentityColumnUpdate,
    IncompatibleTypes,
    ItemAssignmentRefused,
    NewSchemaInPartitions,
    OverwriteRefused,
    ReplaceWhereInPartitions,
    SchemaMismatch,
)
from widen.model.column_path import (
    ELEMENT,
    KEY,
    VALUE,
    Path,
    as_nullable,
    format_path,
    map_fields,
    nearest_field,
    parse_path,
    resolve,
)
from widen.model.column_path import fields as all_fields
from widen.model.types import (
    BINARY,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    is_atomic,
    name_key,
    name_keys,
    plain_name,
)
from widen.model.value_classes import dataclass
from widen.protocol.actions import Metadata
from widen.protocol.column_mapping import COLUMN_ID, NONE, PHYSICAL_NAME
from widen.protocol.column_metadata import char_lengths, find_generation, find_identity, has_generated_values
from widen.protocol.comparison import bind_comparison
from widen.protocol.data_skipping import And, IsNull, Or, Predicate
from widen.protocol.partition_values import parse_partition_value
from widen.protocol.type_widening import is_widening
from widen.schema.alter import ensure_types, with_operations, with_schema
from widen.schema.checks import ensure_names_allowed, table_format_of
from widen.schema.operations import AddColumn, Operation, WidenType
from widen.schema.source_metadata import COMMENT, AutomaticWidening, can_widen_automatically
from widen.schema.table_state import (
    TableState,
    check_constraints,
    dependent_expressions,
    format_expressions,
    generated_columns,
)


@dataclass(frozen=True, slots=True)
class SchemaGrowth:
    """The schema changes of a write.

    Args:
        metadata: The metadata after the operations, for writing the data.
        operations: The changes of columns; usually empty.
    """

    metadata: Metadata
    operations: tuple[Operation, ...] = ()

    @property
    def added(self) -> frozenset[Path]:
        """The paths of new columns and fields."""
        return frozenset(operation.path for operation in self.operations if isinstance(operation, AddColumn))


def schema_change_options(
    state: TableState, *, merge_schema: bool, widening: AutomaticWidening, cast: bool
) -> SchemaChangeOptions:
    """Return the schema changes that a write may make, where the table supports them.

    Args:
        cast: Whether values may be cast even if a cast can fail.
    """
    table_format = table_format_of(state)
    widens = partial(can_widen_automatically, table_format, widening) if merge_schema else never
    return SchemaChangeOptions(merge_schema, widens, cast)


def grow_schema(state: TableState, incoming: StructType, options: SchemaChangeOptions) -> SchemaGrowth:
    """Return schema changes that make data fit a table.

    Source: Delta Lake's schema evolution on write: the checks and their order
    """
    operations = merge_schema(state.schema, incoming, options)
    if not operations:
        return SchemaGrowth(state.metadata)
    ensure_types_unreferenced(state, operations)
    for operation in operations:
        if isinstance(operation, AddColumn):
            ensure_names_allowed([operation.field], state.properties, operation.parent)
    return SchemaGrowth(with_operations(state, operations), operations)


def ensure_types_unreferenced(state: TableState, operations: Iterable[Operation]) -> None:
    """Check that no expression of the table depends on the type of a column that would widen automatically.

    Source: Delta Lake's check of dependent expressions on write
    """
    for operation in operations:
        if isinstance(operation, WidenType) and operation.old != VOID:
            _ensure_type_unreferenced(state, operation)


def _ensure_type_unreferenced(state: TableState, operation: WidenType) -> None:
    column, old, new = format_path(operation.path), operation.old.sql.upper(), operation.new.sql.upper()
    field = nearest_field(state.schema, operation.path)
    if find_identity(field) is not None:
        raise IdentityColumnFixed(column=column)
    dependents = dependent_expressions(operation.path, state.schema, check_constraints(state.properties))
    if dependents:
        raise ConstraintTypeMismatch(column=column, old=old, new=new, constraints=format_expressions(dependents))
    dependents = dependent_expressions(operation.path, state.schema, generated_columns(state))
    if dependents:
        raise GeneratedColumnTypeMismatch(column=column, old=old, new=new, columns=format_expressions(dependents))
    if find_generation(field) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=old, new=new, reason=reason, fix="Cast the data.")


def can_retry_write(before: TableState, first: SchemaGrowth, now: TableState, again: SchemaGrowth) -> bool:
    """Return whether a write may be retried with a new plan after a conflict.

    It may not if it would add back a column that was dropped or renamed meanwhile, or if the table was replaced.

    Args:
        before: The table when the write started.
    """
    return before.metadata.id == now.metadata.id and again.added <= first.added


# Which types can be assigned to a column of another type with a cast.
#
# A value that does not fit fails the write. Any other pair of types is refused before the write.
#
# Source: Spark's ANSI store assignment, which defaults follow; Spark's ANSI casts, which Delta Lake's INSERT, UPDATE
# and MERGE follow.


NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})

FAMILIES = (NUMBERS, TIMES)
"""Types of one family can be assigned to each other. Most types can also be assigned to string."""

_NOT_TO_STRING = (VOID, VARIANT, BINARY)


def can_assign(old: DataType, new: DataType) -> bool:
    """Return whether a column of one atomic type can take the default of a column of another type.

    Source: Spark's ANSI store assignment. Differs: binary cannot be assigned to string, since it may not be UTF-8.
    """
    if not is_atomic(old) or not is_atomic(new):
        return False
    if new == STRING:
        return old not in _NOT_TO_STRING
    return any(plain_name(old) in family and plain_name(new) in family for family in FAMILIES)


_CASTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(NUMBERS, NUMBERS | {"boolean", "timestamp"}),
    "boolean": NUMBERS,
    "string": NUMBERS | TIMES | {"boolean", "binary"},
    "date": frozenset({"timestamp", "timestamp_ntz"}),
    "timestamp": NUMBERS | {"date", "timestamp_ntz"},
    "timestamp_ntz": frozenset({"date", "timestamp"}),
}
"""The types that each type can be cast to. Most types can also be cast to string."""


def can_cast(old: DataType, new: DataType) -> bool:
    """Return whether INSERT, UPDATE and MERGE cast values of one type to another.

    Args:
        old: The type of the value, not of the same structure as the new one.

    Source: Delta Lake's INSERT, UPDATE and MERGE: an explicit cast in ANSI mode, which fails if a value does not fit.
        Differs: binary is not cast to string, since it may not be UTF-8.
    """
    if new == STRING:
        return old not in _NOT_TO_STRING
    return plain_name(new) in _CASTS.get(plain_name(old), frozenset())


# Merge the schema of incoming data into a table: new columns, wider types, casts, or a refusal.
#
# Names are matched case-insensitively. The order and spelling of the table are kept.
#
# Source: Delta Lake's schema enforcement and evolution.


Widens: TypeAlias = Callable[[DataType, DataType], bool]
"""Whether a leaf of the table may widen automatically, from an old to a new type."""


def never(old: DataType, new: DataType) -> bool:
    """Allow no widening."""
    return False


@dataclass(frozen=True, slots=True)
class SchemaChangeOptions:
    """The changes that a write may make so that its data fit.

    Args:
        adds: Whether new columns and nested fields may be added, and void columns may get a type.
        casts: Whether values may be cast to the type of the table even if that can fail or lose digits.
        fills: Whether structs may lack fields, which become null.
        can_cast: Which types may be cast then. Without casts, only the casts of `can_assign` are offered as a remedy.
        widen_fix: What an error says about how to widen types.
    """

    NONE: ClassVar[SchemaChangeOptions]

    adds: bool = False
    widens: Widens = never
    casts: bool = False
    fills: bool = True
    can_cast: Widens = can_cast
    widen_fix: str = (
        "Widen the types with merge_schema=True, set_properties({'delta.enableTypeWidening': 'true'}) and "
        "widening='always'."
    )


SchemaChangeOptions.NONE = SchemaChangeOptions()


@dataclass(frozen=True, slots=True)
class CastValues:
    """A cast of the values of a column, which fails for values that the new type cannot hold."""

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"cast {format_path(self.path)} from {self.old.sql} to {self.new.sql}"


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A column of the data that cannot be written to the table under any options."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{format_path(self.path)} {self.reason}"


@dataclass(frozen=True, slots=True)
class IncompatibleTypePair(TypeMismatch):
    """Two types; neither can be converted to the other."""


@dataclass(frozen=True, slots=True)
class MissingField(TypeMismatch):
    """A field of the table that a struct of the data lacks."""


SchemaNeed: TypeAlias = Operation | CastValues | TypeMismatch
"""What one column of the data requires."""


def merge_schema(current: StructType, incoming: StructType, options: SchemaChangeOptions) -> tuple[Operation, ...]:
    """Return operations that make the data fit the table.

    A narrower type is cast to the table's type, which is exact. A missing column is null, or gets its default or
    generated value.

    Source: Delta Lake's schema enforcement and evolution. Differs: a cast that can fail is refused unless casts are
        allowed, so that no value is rounded, and no job fails halfway, unless the caller accepts it.
    """
    _ensure_not_given(current, incoming)
    needs = tuple(_struct(current, incoming, (), options))
    refused = [need for need in needs if not _is_allowed(need, options)]
    if not refused:
        return tuple(need for need in needs if isinstance(need, (AddColumn, WidenType)))
    error = IncompatibleTypes if any(isinstance(need, IncompatibleTypePair) for need in refused) else SchemaMismatch
    raise error(
        reason="; ".join(map(_describe_need, refused)),
        fix=_fix(refused, options),
        plan="\n".join(map(_to_operation, needs)),
    )


def _ensure_not_given(current: StructType, incoming: StructType) -> None:
    for field in incoming:
        existing = current.find(field.name)
        identity = find_identity(existing) if existing else None
        if existing and identity and not identity.allows_explicit:
            raise IdentityColumnGiven(column=existing.name)


def _is_allowed(need: SchemaNeed, options: SchemaChangeOptions) -> bool:
    match need:
        case WidenType(_, old, new):
            return options.adds if _gets_type(need) else options.widens(old, new)
        case AddColumn():
            return options.adds
        case CastValues():
            return options.casts
    return False


def _describe_need(need: SchemaNeed) -> str:
    match need:
        case WidenType(path, table, data) | CastValues(path, data, table):
            return f"{format_path(path)} is {table.sql} in the table and {data.sql} in the data"
        case AddColumn(_, field):
            return f"{format_path(need.path)} ({field.type.sql}) is not in the table"
    return str(need)


def _to_operation(need: SchemaNeed) -> str:
    return f"  - {need}" if not isinstance(need, TypeMismatch) else f"  - {need}: not possible"


def _fix(refused: list[SchemaNeed], options: SchemaChangeOptions) -> str:
    if all(isinstance(need, MissingField) for need in refused):
        return "Add the missing fields to the struct, e.g. as null."
    if any(isinstance(need, TypeMismatch) for need in refused):
        return "Cast or rename the columns, or change the table with alter_column."
    grows = any(isinstance(need, AddColumn) or _gets_type(need) for need in refused)
    widens = any(isinstance(need, WidenType) and not _gets_type(need) for need in refused)
    casts = widens or any(isinstance(need, CastValues) for need in refused)
    fixes = ((grows, _GROW), (widens, options.widen_fix), (casts, _CAST))
    return " ".join(text for holds, text in fixes if holds)


_GROW = "Add the columns with merge_schema=True, or select only the columns of the table."
_CAST = "Cast values with cast=True; a value that does not fit fails the write."


def _gets_type(need: SchemaNeed) -> bool:
    """Return whether a void column gets a type, which is not type widening."""
    return isinstance(need, WidenType) and need.old == VOID


# ---- the walk --------------------------------------------------------------------------------------


def _struct(current: StructType, incoming: StructType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    given: dict[str, str] = {}
    for field in incoming:
        existing = current.find(field.name)
        # A table of another writer may have two columns whose names Spark takes for one; each finds its own.
        keys = name_keys(field.name) if existing is None else (existing.name,)
        other = next((given[key] for key in keys if key in given), None)
        if other is not None:
            yield TypeMismatch((*at, field.name), f"is a duplicate of {other}")
            continue
        given.update(dict.fromkeys(keys, field.name))
        if existing is None:
            yield AddColumn(at, _as_new_field(field))
        else:
            yield from _type(existing.type, field.type, (*at, existing.name), options)
    for existing in current:
        if existing.name in given:
            continue
        if not existing.nullable and not (has_generated_values(existing) and not at):
            yield TypeMismatch((*at, existing.name), "must not be null and is not in the data")
        elif at and not options.fills:
            yield MissingField((*at, existing.name), "is in the table and not in the data")


def _as_new_field(field: Field) -> Field:
    """Return a new field for the table: nullable throughout, and without metadata other than comments."""
    return map_fields(as_nullable(StructType((field,))), lambda _, inner: inner.only_metadata(COMMENT)).fields[0]


def _type(current: DataType, incoming: DataType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    match current, incoming:
        case StructType(), StructType():
            yield from _struct(current, incoming, at, options)
        case ArrayType(), ArrayType():
            yield from _type(current.element, incoming.element, (*at, ELEMENT), options)
        case MapType(), MapType():
            yield from _type(current.key, incoming.key, (*at, KEY), options)
            yield from _type(current.value, incoming.value, (*at, VALUE), options)
        case _ if current != incoming and incoming != VOID:
            yield from _leaf(current, incoming, at, options)


def _leaf(current: DataType, incoming: DataType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    if current == VOID:
        yield WidenType(at, VOID, _as_new_field(Field("", incoming)).type)
    elif is_widening(incoming, current):
        return
    # A widening that is not allowed is refused by the caller, which names it as the remedy. With casts allowed, the
    # values are cast instead.
    elif options.widens(current, incoming) or (is_widening(current, incoming) and not options.casts):
        yield WidenType(at, current, incoming)
    elif (options.can_cast if options.casts else can_assign)(incoming, current):
        yield CastValues(at, incoming, current)
    else:
        yield IncompatibleTypePair(at, f"is {current.sql} in the table and {incoming.sql} in the data")


# Overwrites: the new schema of a table, and the partitions that a dynamic overwrite replaces.
#
# Source: Delta Lake's overwrites: overwriteSchema, replaceWhere, dynamic partitions


def ensure_consistent(*, has_where: bool, has_new_schema: bool, is_dynamic: bool) -> None:
    """Check that the options of an overwrite can be combined.

    Args:
        has_where: Whether it replaces only the rows that satisfy a condition.
        is_dynamic: Whether it replaces only the partitions that the data have rows for.

    Raises:
        ReplaceWhereInPartitions: a condition is combined with dynamic partitions.
        NewSchemaInPartitions: a new schema is combined with dynamic partitions.
        OverwriteRefused: a new schema is combined with a condition.
    """
    if has_where and is_dynamic:
        raise ReplaceWhereInPartitions(
            option="where", other_option="partitions='dynamic'", reason="both select the rows to replace"
        )
    if has_new_schema and is_dynamic:
        reason = "the rows of other partitions stay as they are"
        raise NewSchemaInPartitions(option="overwrite_schema", other_option="partitions='dynamic'", reason=reason)
    if has_new_schema and has_where:
        raise OverwriteRefused(option="overwrite_schema", other_option="where", reason="other rows stay as they are")


def with_new_schema(state: TableState, incoming: StructType) -> Metadata:
    """Return the metadata of a table that takes the schema of the data.

    All columns become nullable, without type history: no file that was written before stays in the table. Columns that
    stay keep their ids and physical names, so that the change data feed still knows them.

    Raises:
        ColumnNotFound: the data lack a partition column.
        ConstraintDependsOnColumn: a constraint references a column that is dropped or gets another type.

    Source: Delta Lake's overwriteSchema; PROTOCOL.md#writer-requirements-for-column-mapping
    """
    schema = map_fields(as_nullable(incoming), partial(_new_field, _mapped_fields(state)))
    partition_names = []
    for name in state.metadata.partition_columns:
        column = schema.find(name)
        if column is None:
            raise ColumnNotFound(column=name, available=", ".join(schema.names))
        partition_names.append(column.name)
    for field in state.schema:
        current_field = schema.find(field.name)
        dependents = dependent_expressions((field.name,), state.schema, check_constraints(state.properties))
        if dependents and (current_field is None or str(current_field.type) != str(field.type)):
            raise ConstraintDependsOnColumn(column=field.name, constraints=format_expressions(dependents))
    ensure_names_allowed(schema.fields, state.properties)
    ensure_types(state, schema)
    return msgspec.structs.replace(with_schema(state, schema), partition_columns=tuple(partition_names))


def _mapped_fields(state: TableState) -> dict[Path, Field]:
    """Return the fields of a table with column mapping, by the keys of their paths."""
    is_mapped = state.mapping != NONE
    return {tuple(map(name_key, path)): field for path, field in all_fields(state.schema)} if is_mapped else {}


def _new_field(known: Mapping[Path, Field], path: Path, field: Field) -> Field:
    old = known.get(tuple(map(name_key, path)))
    kept = {} if old is None else {key: old.metadata[key] for key in (COLUMN_ID, PHYSICAL_NAME) if key in old.metadata}
    return field.only_metadata(COMMENT).with_metadata(**kept)


def partition_predicate(
    schema: StructType, columns: Sequence[str], partitions: Iterable[Sequence[str | None]]
) -> Predicate:
    """Return the condition that holds for the rows of some partitions. Values that cannot be parsed match any value.

    Args:
        partitions: The partition values as text, in the order of the columns; at least one partition.

    Source: PROTOCOL.md#partition-value-serialization
    """
    fields = {field.name: field for field in schema}
    conditions = [
        _combine(And, [_equals(fields[name], text) for name, text in zip(columns, texts, strict=True)])
        for texts in partitions
    ]
    return _combine(Or, conditions)


def _equals(field: Field, text: str | None) -> Predicate:
    path = (field.name,)
    value = parse_partition_value(text, field.type)
    if isinstance(value, str):
        value = value.ljust(char_lengths(StructType((field,))).get(path, 0))
    return IsNull(path, field.type) if value is None else bind_comparison(path, field.type, "=", value)


def _combine(kind: type[And] | type[Or], parts: list[Predicate]) -> Predicate:
    """Combine conditions into a balanced tree, so that thousands of partitions do not exceed the recursion limit."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return kind(_combine(kind, parts[:middle]), _combine(kind, parts[middle:]))


# The columns and nested fields that an UPDATE or MERGE assigns.
#
# Source: Delta Lake's UPDATE: nested fields can be assigned one by one, but not inside arrays and maps.


@dataclass(frozen=True)
class Relation:
    """A table or source that column names are resolved against.

    Args:
        alias: Its alias; in a path it takes precedence over a column of that name.
    """

    schema: StructType
    alias: str | None = None

    def resolve(self, path: Path) -> Path:
        """Return a path spelled as in the schema, without the alias.

        Raises:
            ItemAssignmentRefused: the path leads into an array or a map.
        """
        is_aliased = len(path) > 1 and self.alias is not None and name_key(path[0]) == name_key(self.alias)
        if is_aliased and self.schema.find(path[1]) is not None:
            path = path[1:]
        resolved, _ = resolve(self.schema, path)
        for depth in range(1, len(resolved)):
            parent = resolve(self.schema, resolved[:depth])[1]
            if not isinstance(parent, StructType):
                raise ItemAssignmentRefused(
                    column=format_path(resolved), parent=format_path(resolved[:depth]), type=parent.sql
                )
        return resolved


def assigned_paths(target: Relation, texts: Iterable[str], source: Relation | None = None) -> dict[str, Path]:
    """Parse the names of assigned columns, and return their paths spelled as in the table.

    Args:
        source: The source whose columns may be added to the table; None if no column may be added.

    Raises:
        AssignmentConflict: two paths are equal, or one is inside the other.
    """
    resolved = {text: _resolve_assigned(target, parse_path(text), source) for text in texts}
    ordered = sorted(resolved.values())
    # In this order, the paths inside a path come directly after it.
    for outer, inner in pairwise(ordered):
        if inner[: len(outer)] == outer:
            raise AssignmentConflict(columns=f"{format_path(outer)} and {format_path(inner)}")
    return resolved


def ensure_identities_kept(schema: StructType, paths: Iterable[Path]) -> None:
    """Check that an update assigns no identity column.

    Raises:
        IdentityColumnUpdate: it assigns one.

    Source: Delta Lake's UPDATE and MERGE
    """
    for path in paths:
        field = schema.find(path[0])
        if field is not None and find_identity(field) is not None:
            raise IdentityColumnUpdate(column=field.name)


def overlay_types(schema: StructType, types: Mapping[Path, DataType]) -> StructType:
    """Return the schema of data for a table whose assigned columns have other types.

    Generated columns are not part of it unless they are assigned.

    Args:
        types: The types by path. A path that is not in the schema adds a column or a field.
    """
    columns = [field for field in schema if not has_generated_values(field) or _is_named(types, field.name)]
    added = {path[0] for path in types} - {field.name for field in schema}
    fields = (Field(f.name, _overlay(f.type, _below(types, f.name)), f.nullable) for f in columns)
    return StructType((*fields, *(Field(name, _added_type(_below(types, name))) for name in sorted(added))))


def _added_type(types: Mapping[Path, DataType]) -> DataType:
    """Return the type of a new column: the given one, or a struct of the given fields."""
    return types[()] if () in types else overlay_types(StructType(()), types)


def _overlay(data_type: DataType, types: Mapping[Path, DataType]) -> DataType:
    if () in types:
        return types[()]
    return overlay_types(data_type, types) if types and isinstance(data_type, StructType) else data_type


def _below(types: Mapping[Path, DataType], name: str) -> dict[Path, DataType]:
    return {path[1:]: data_type for path, data_type in types.items() if path[0] == name}


def _is_named(types: Mapping[Path, DataType], name: str) -> bool:
    return any(path[0] == name for path in types)


def _resolve_assigned(target: Relation, path: Path, source: Relation | None) -> Path:
    """Return a path spelled as in the table. A path that only the source has becomes a new column or field.

    Source: Delta Lake's MERGE with schema evolution
    """
    try:
        return target.resolve(path)
    except ColumnNotFound:
        if source is None:
            raise
        return _spell(target.schema, source.resolve(path))


def _spell(schema: StructType, path: Path) -> Path:
    """Return a path with its existing part spelled as in the schema."""
    resolved: Path = ()
    current: DataType = schema
    for depth, name in enumerate(path):
        if not isinstance(current, StructType):
            raise ItemAssignmentRefused(column=format_path(path), parent=format_path(resolved), type=current.sql)
        field = current.find(name)
        if field is None:
            return (*resolved, *path[depth:])
        resolved, current = (*resolved, field.name), field.type
    return resolved


# Whether the rows of one version of a table can be read in the schema of another.
#
# The change data feed never converts across a change of type, not even a widening: its consumers must notice the
# change.
#
# Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping; Delta Spark's change data feed


def is_representable_in(schema: StructType, version: int, shown: StructType, shown_version: int) -> bool:
    """Return whether the change data feed can return rows of one version in the schema of another.

    The later version may only have new columns, and columns that became nullable.
    """
    if version <= shown_version:
        return _has_grown(schema, shown, lambda old, new: new or not old)
    return _has_grown(shown, schema, lambda old, new: old or not new)


def has_same_columns(left: StructType, right: StructType) -> bool:
    """Return whether two schemas differ only in nullability, order and comments."""
    return _has_grown(left, right, _any_nullability) and _has_grown(right, left, _any_nullability)


def _any_nullability(old: bool, new: bool) -> bool:
    return True


def _has_grown(old: DataType, new: DataType, may_be: Callable[[bool, bool], bool]) -> bool:
    """Return whether two types differ only by new fields and by nullability."""
    match old, new:
        case StructType(), StructType():
            return all(_field_has_grown(field, new.find(field.name), may_be) for field in old)
        case ArrayType(), ArrayType():
            return may_be(old.contains_null, new.contains_null) and _has_grown(old.element, new.element, may_be)
        case MapType(), MapType():
            return (
                may_be(old.value_contains_null, new.value_contains_null)
                and _has_grown(old.key, new.key, may_be)
                and _has_grown(old.value, new.value, may_be)
            )
    return old in (VOID, new)


def _field_has_grown(old: Field, new: Field | None, may_be: Callable[[bool, bool], bool]) -> bool:
    if new is None or not may_be(old.nullable, new.nullable):
        return False
    return _is_same_column(old, new) and _has_grown(old.type, new.type, may_be)


def _is_same_column(old: Field, new: Field) -> bool:
    """Return whether two fields of one name are one column.

    It stays the same when column mapping is enabled: its name becomes its physical name.
    """
    if PHYSICAL_NAME in old.metadata and PHYSICAL_NAME in new.metadata:
        return all(old.metadata.get(key) == new.metadata.get(key) for key in (COLUMN_ID, PHYSICAL_NAME))
    mapped = [field for field in (old, new) if PHYSICAL_NAME in field.metadata]
    ids = {field.metadata.get(COLUMN_ID) for field in (old, new)}
    return mapped[0].metadata[PHYSICAL_NAME] == mapped[0].name if mapped else len(ids) < 2


def is_readable_in(old: DataType, new: DataType, *, may_drop: bool = False) -> bool:
    """Return whether the old type has grown into the new one: every field is there, with a type that is not narrower.

    A field that was renamed, dropped, or dropped and added again, is not there any more.

    Args:
        may_drop: Whether the new type may lack fields. One of the same name that was added again would hide the values.
    """
    is_readable = partial(is_readable_in, may_drop=may_drop)
    match old, new:
        case StructType(), StructType():
            pairs = [(field, new.find(field.name)) for field in old]
            return all(
                may_drop
                if other is None
                else field.name == other.name and _is_same_column(field, other) and is_readable(field.type, other.type)
                for field, other in pairs
            )
        case ArrayType(), ArrayType():
            return is_readable(old.element, new.element)
        case MapType(), MapType():
            return is_readable(old.key, new.key) and is_readable(old.value, new.value)
    return old in (VOID, new) or is_widening(old, new)
