"""What the history says of operations: its name for them, and its parameters.

A column is told with its path, the name of its type, and its metadata without what the commit records by itself: the
entry in the history of its types, and its high-water mark.

Source: Delta Lake's commit provenance, which DESCRIBE HISTORY shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from widen.errors import InternalError
from widen.model.column_path import KEY, Path, find_field, resolve
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, is_atomic, quote_name
from widen.planning.table.apply_operation import apply_operations
from widen.planning.table.dependent_expressions import find_constraint
from widen.planning.table.field_position import FieldPosition, StructEnd
from widen.planning.table.operation import (
    AddColumn,
    AddConstraint,
    CreateTable,
    DropColumn,
    DropConstraint,
    MoveColumn,
    Operation,
    RenameColumn,
    ReplaceColumns,
    SyncIdentity,
)
from widen.planning.table.table_state import TableState
from widen.protocol.column_metadata import TEXT_LIMIT


def operation_parameters(state: TableState, operations: Sequence[Operation]) -> tuple[str, Mapping[str, object]]:
    """Return the name and the parameters of a commit that applies operations of one kind.

    Args:
        state: The table before it.
        operations: Additions, removals, changes of columns that stay, or one of any other kind.

    Raises:
        InternalError: they are of several kinds.
    """
    match operations:
        case [RenameColumn() as operation]:
            return "RENAME COLUMN", {
                "oldColumnPath": _name(operation.path),
                "newColumnPath": _name(operation.new_path),
            }
        case [ReplaceColumns(schema)]:
            return "REPLACE COLUMNS", {"columns": [_column((field.name,), field) for field in schema]}
        case [AddConstraint(name, expression)]:
            return "ADD CONSTRAINT", {"name": name, "expr": expression}
        case [DropConstraint(name)]:
            expression = state.properties[find_constraint(state, name) or ""]
            return "DROP CONSTRAINT", {"name": name, "expr": expression, "existed": "true"}
    added = [operation for operation in operations if isinstance(operation, AddColumn)]
    if len(added) == len(operations):
        told = [{"column": _new_column(each), **_position(each.place)} for each in added]
        return "ADD COLUMNS", {"columns": told}
    dropped = [operation for operation in operations if isinstance(operation, DropColumn)]
    if len(dropped) == len(operations):
        return "DROP COLUMNS", {"columns": [_name(each.path) for each in dropped]}
    shown = [operation for operation in operations if not isinstance(operation, SyncIdentity)]
    return _column_changes(apply_operations(state.schema, shown), operations)


def _column_changes(schema: StructType, operations: Sequence[Operation]) -> tuple[str, Mapping[str, object]]:
    """Tell changes of columns that stay, all of one column together."""
    places: dict[Path, Mapping[str, object]] = {}
    for operation in operations:
        match operation:
            case CreateTable() | ReplaceColumns() | AddConstraint() | DropConstraint() | AddColumn() | DropColumn():
                raise InternalError(reason=f"{operation} is committed together with something else")
        said = _position(operation.place) if isinstance(operation, MoveColumn) else {}
        places[operation.path] = {**places.get(operation.path, {}), **said}
    told = [(_column(path, find_item(schema, path)), place) for path, place in places.items()]
    if len(told) == 1:
        return "CHANGE COLUMN", {"column": told[0][0], **told[0][1]}
    return "CHANGE COLUMNS", {"columns": [{**column, **place} for column, place in told]}


def find_item(schema: StructType, path: Path) -> Field:
    """Return the field at a path; for an element, a key or a value, what a field in its place would be.

    Raises:
        ColumnNotFound: the path leads nowhere.
    """
    found = find_field(schema, path)
    return found or Field(path[-1], resolve(schema, path)[1], _is_nullable(resolve(schema, path[:-1])[1], path[-1]))


def _is_nullable(parent: DataType, step: str) -> bool:
    """Tell whether an element or a value may be null; a key never may."""
    match parent:
        case ArrayType(_, contains_null):
            return contains_null
        case MapType(_, _, contains_null):
            return contains_null and step != KEY
    return True


def _column(path: Path, field: Field) -> dict[str, Any]:
    kind = str(field.type) if is_atomic(field.type) else _KINDS[type(field.type)]
    return {"name": _name(path), "type": kind, "nullable": field.nullable, "metadata": dict(field.metadata)}


def _new_column(addition: AddColumn) -> dict[str, Any]:
    """Tell a new column, a text of limited length by the type that was asked for."""
    told = _column(addition.path, addition.field.without_metadata(TEXT_LIMIT))
    return {**told, "type": addition.field.metadata.get(TEXT_LIMIT, told["type"])}


_KINDS: Mapping[type[DataType], str] = {StructType: "struct", ArrayType: "array", MapType: "map"}


def _position(place: FieldPosition) -> dict[str, object]:
    return {} if place is StructEnd.LAST else {"position": str(place)}


def _name(path: Path) -> str:
    """Return a path as Delta Lake writes it: only a dot makes it quote a name."""
    return ".".join(quote_name(step) if "." in step or "`" in step else step for step in path)
