"""Operations to schemas: what the schema is after them.

Source: house rule: apply and evolve say the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from widen.errors import InternalError
from widen.model.path import Path, format_path, replace_type, resolve
from widen.model.type import DataType, StructType
from widen.planning.operation import AddColumn, CreateTable, Operation, WidenType


def apply(schema: StructType | None, operations: Iterable[Operation]) -> StructType:
    """Return the schema after the operations. Metadata of the columns stays as it is; type histories are not written.

    Args:
        schema: The schema before them; None if there is no table yet.
        operations: In their order.

    Raises:
        ColumnNotFound: an operation names a struct or a leaf that is not there.
        InternalError: an operation does not fit the schema: a name is taken, a type is another one.
    """
    current = schema
    for operation in operations:
        current = _applied(current, operation)
    return current if current is not None else StructType()


def _applied(schema: StructType | None, operation: Operation) -> StructType:
    match operation:
        case CreateTable():
            return operation.schema
        case AddColumn():
            return _with_column(schema or StructType(), operation)
        case WidenType():
            return _with_type(schema or StructType(), operation)


def _with_column(schema: StructType, operation: AddColumn) -> StructType:
    path, struct = resolve(schema, operation.parent)
    if not isinstance(struct, StructType) or struct.find(operation.field.name) is not None:
        raise InternalError(
            reason=f"{format_path(operation.path)} cannot be added: the name is taken, or is in no struct"
        )
    return _replaced(schema, path, struct.with_field(operation.field))


def _with_type(schema: StructType, operation: WidenType) -> StructType:
    path, found = resolve(schema, operation.path)
    if found != operation.old:
        raise InternalError(reason=f"{format_path(operation.path)} is {found.sql}, not {operation.old.sql}")
    return _replaced(schema, path, operation.new)


def _replaced(schema: StructType, path: Path, new: DataType) -> StructType:
    result = replace_type(schema, path, new)
    assert isinstance(result, StructType)
    return result
