"""The name and the parameters of operations in the history of a table.

A column is described by its path, the name of its type, and its metadata before the commit adds to it: without a new
entry in its type history, and without a new high-water mark.

Source: Delta Lake's commit provenance, which DESCRIBE HISTORY shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from widen.errors import InternalError
from widen.model.column_path import KEY, Path, find_field, resolve
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, is_atomic, quote_name
from widen.planning.table import operation as op
from widen.planning.table.apply_operation import apply_operations
from widen.planning.table.dependent_expressions import find_constraint
from widen.planning.table.field_position import FieldPosition, StructEnd
from widen.planning.table.table_state import TableState
from widen.protocol.text_limits import to_declared


def operation_parameters(state: TableState, operations: Sequence[op.Operation]) -> tuple[str, Mapping[str, object]]:
    """Return the name and the parameters of a commit that applies operations.

    Args:
        operations: Only additions, only drops, only changes of existing columns, or a single other operation.

    Raises:
        InternalError: the operations are of several of these kinds.
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
        return "DROP COLUMNS", {"columns": [_name(each.path) for each in dropped]}
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
    """Return the field at a path. For an element, a key or a value, return an equivalent field.

    Raises:
        ColumnNotFound: the path does not exist.
    """
    item = find_field(schema, path)
    return item or Field(path[-1], resolve(schema, path)[1], _is_nullable(resolve(schema, path[:-1])[1], path[-1]))


def _is_nullable(parent: DataType, step: str) -> bool:
    """Tell whether an element or a value is nullable. Keys never are."""
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
