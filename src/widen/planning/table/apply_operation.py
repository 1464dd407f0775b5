"""Operations to schemas: what the schema is after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from widen.errors import InternalError
from widen.model.column_path import Path, format_path, replace_type, resolve
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.field_position import insert_field
from widen.planning.table.operation import (
    AddColumn,
    AddConstraint,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    LoosenText,
    MoveColumn,
    Operation,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetDefault,
    SetNotNull,
    SyncIdentity,
    WidenType,
)
from widen.planning.table.replace_columns import replace_schema
from widen.protocol.column_metadata import DEFAULT, HIGH_WATER_MARK, TEXT_LIMIT

_Change: TypeAlias = Callable[[StructType, Field], StructType]


def apply_operations(schema: StructType | None, operations: Iterable[Operation]) -> StructType:
    """Return the schema after the operations. Other metadata stays as it is; type histories are not written.

    Args:
        schema: The schema before them; None if there is no table yet.
        operations: In their order.

    Raises:
        ColumnNotFound: an operation names a struct or a leaf that is not there.
        InternalError: an operation does not fit the schema: a name is taken, a type is another one.
    """
    current = schema
    for operation in operations:
        current = _apply(current, operation)
    return current if current is not None else StructType()


def _apply(schema: StructType | None, operation: Operation) -> StructType:
    known = schema or StructType()
    match operation:
        case CreateTable():
            return operation.schema
        case ReplaceColumns():
            return replace_schema(known, operation.schema)
        case AddColumn():
            return _with_column(known, operation)
        case WidenType():
            return _with_type(known, operation)
        case AddConstraint() | DropConstraint():
            return known
        case RenameColumn(path, name):
            return _change_struct(
                known, path, lambda struct, field: _swap_field(struct, field, replace(field, name=name))
            )
        case DropColumn(path):
            return _change_struct(
                known, path, lambda struct, field: StructType(tuple(f for f in struct if f is not field))
            )
        case MoveColumn(path, place):
            return _change_struct(known, path, lambda struct, field: insert_field(struct, field, place))
    return _change_struct(
        known, operation.path, lambda struct, field: _swap_field(struct, field, _with_detail(field, operation))
    )


_Detail: TypeAlias = SetComment | SetDefault | DropDefault | SetNotNull | DropNotNull | LoosenText | SyncIdentity


def _with_detail(field: Field, operation: _Detail) -> Field:
    """Return a field with another detail than its name, its place and its type."""
    match operation:
        case SetComment(_, comment):
            return field.with_metadata(**{COMMENT: comment})
        case SetDefault(_, expression):
            return field.with_metadata(**{DEFAULT: expression})
        case DropDefault():
            return field.without_metadata(DEFAULT)
        case SetNotNull() | DropNotNull():
            return replace(field, nullable=isinstance(operation, DropNotNull))
        case SyncIdentity(_, mark):
            return field.with_metadata(**{HIGH_WATER_MARK: mark})
        case LoosenText(_, "string"):
            return field.without_metadata(TEXT_LIMIT)
        case LoosenText(_, limit):
            return field.with_metadata(**{TEXT_LIMIT: limit})


def _change_struct(schema: StructType, path: Path, change: _Change) -> StructType:
    """Return the schema with one struct changed, as a function of it and of one field in it says."""
    parent, struct = resolve(schema, path[:-1])
    field = struct.find(path[-1]) if isinstance(struct, StructType) else None
    if not isinstance(struct, StructType) or field is None:
        raise InternalError(reason=f"{format_path(path)} is no field of a struct")
    return replace_type(schema, parent, change(struct, field))


def _swap_field(struct: StructType, old: Field, new: Field) -> StructType:
    return StructType(tuple(new if field is old else field for field in struct))


def _with_column(schema: StructType, operation: AddColumn) -> StructType:
    path, struct = resolve(schema, operation.parent)
    if not isinstance(struct, StructType) or struct.find(operation.field.name) is not None:
        raise InternalError(
            reason=f"{format_path(operation.path)} cannot be added: the name is taken, or is in no struct"
        )
    return replace_type(schema, path, insert_field(struct, operation.field, operation.place))


def _with_type(schema: StructType, operation: WidenType) -> StructType:
    path, found = resolve(schema, operation.path)
    if found != operation.old:
        raise InternalError(reason=f"{format_path(operation.path)} is {found.sql}, not {operation.old.sql}")
    return replace_type(schema, path, operation.new)
