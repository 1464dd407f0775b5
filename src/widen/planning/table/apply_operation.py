"""Apply operations to a schema.

The evolution of a batch keeps its own running schema; a test checks that applying its plan gives the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from widen.errors import InternalError
from widen.model.column_path import Path, format_path, replace_type, resolve
from widen.model.type_parser import parse_type
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table import operation as op
from widen.planning.table.field_position import insert_field
from widen.planning.table.replace_columns import replace_schema
from widen.protocol.column_metadata import DEFAULT, HIGH_WATER_MARK
from widen.protocol.text_limits import declared_schema, stored_schema, to_declared

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
        case op.LoosenText(path, limit):
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
