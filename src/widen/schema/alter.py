"""Apply operations to a schema.

The evolution of a batch keeps its own running schema; a test checks that applying its plan gives the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from widen.errors import AmbiguousReplacement, InternalError
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path, replace_type, resolve
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, name_key
from widen.protocol.column_metadata import (
    DEFAULT,
    HIGH_WATER_MARK,
    declared_schema,
    stored_schema,
    text_limit,
    to_declared,
)
from widen.schema import operations as op
from widen.schema.operations import AddColumn, DropColumn, SetNotNull, WidenType, insert_field
from widen.schema.source_metadata import COMMENT

_Change: TypeAlias = Callable[[StructType, Field], StructType]


def apply_operations(schema: StructType | None, operations: Iterable[op.Operation]) -> StructType:
    """Return the schema after the operations. Other metadata is kept; type histories are not recorded.

    Args:
        schema: The schema before the operations; None if the table does not exist yet.
        operations: The operations, applied in this order.

    Raises:
        ColumnNotFound: an operation names a struct or a leaf that does not exist.
        InternalError: an operation does not fit the schema: a name exists already, or a type differs from the expected.
    """
    current = None if schema is None else declared_schema(schema)
    for operation in operations:
        current = _apply(current, operation)
    return stored_schema(current or StructType())


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


# REPLACE COLUMNS: the resulting schema, and how it differs from the old one.
#
# Fields are matched by name, case-insensitively; elements, keys and values by position.
#
# Source: Delta Lake's REPLACE COLUMNS.


Difference: TypeAlias = AddColumn | DropColumn | SetNotNull | WidenType


def replace_schema(old: StructType, given: StructType) -> StructType:
    """Return the given columns, in their order and with their types; existing ones keep their spelling and metadata.

    A given comment replaces the old one. The nullability of elements and map values does not change.
    """
    result = _merge_type(old, given)
    assert isinstance(result, StructType)
    return result


def schema_differences(old: StructType, given: StructType, parent: Path = ()) -> Iterator[Difference]:
    """Yield the difference between two schemas as operations: columns added, dropped, retyped, or made NOT NULL.

    Args:
        parent: The path of the struct that contains both; empty for the table itself.

    Raises:
        AmbiguousReplacement: fields of one struct would be added and others dropped, which might be a rename.

    Source: Delta Lake's REPLACE COLUMNS: adding and dropping in one struct is ambiguous.
    """
    names = {name_key(field.name) for field in given}
    dropped = [field.name for field in old if name_key(field.name) not in names]
    added = [field for field in given if old.find(field.name) is None]
    if dropped and added:
        raise AmbiguousReplacement(
            place=format_path(parent) or "the table",
            dropped=", ".join(dropped),
            added=", ".join(field.name for field in added),
        )
    for name in dropped:
        yield DropColumn((*parent, name))
    for field in given:
        current, path = old.find(field.name), (*parent, field.name)
        if current is None:
            yield AddColumn(parent, field)
            continue
        path = (*parent, current.name)
        if current.nullable and not field.nullable:
            yield SetNotNull(path)
        yield from _below(current.type, field.type, path)


def _below(old: DataType, given: DataType, parent: Path) -> Iterator[Difference]:
    match old, given:
        case StructType(), StructType():
            yield from schema_differences(old, given, parent)
        case ArrayType(), ArrayType():
            if old.contains_null and not given.contains_null:
                yield SetNotNull((*parent, ELEMENT))
            yield from _below(old.element, given.element, (*parent, ELEMENT))
        case MapType(), MapType():
            yield from _below(old.key, given.key, (*parent, KEY))
            if old.value_contains_null and not given.value_contains_null:
                yield SetNotNull((*parent, VALUE))
            yield from _below(old.value, given.value, (*parent, VALUE))
        case _ if old != given:
            yield WidenType(parent, old, given)


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
