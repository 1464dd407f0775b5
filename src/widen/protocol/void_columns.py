"""Void columns: they are not stored in files, and a file without any column cannot store rows.

Source: PROTOCOL.md#void-type
"""

from __future__ import annotations

from collections.abc import Collection

from widen.errors import NestedVoidColumn, NoStoredColumns
from widen.model.column_path import Path, children, format_path, map_children
from widen.model.types import VOID, DataType, StructType


def ensure_storable(schema: StructType, partition_by: Collection[str]) -> None:
    """Check that rows of a table can be written; a table that fails the check can still be read and altered.

    Args:
        partition_by: The partition columns, which may not be stored in files.

    Raises:
        NoStoredColumns: the table, or a struct in it, has no column to store.
        NestedVoidColumn: a void column is inside an array or a map.

    Source: PROTOCOL.md#void-type
    """
    if all(field.type == VOID or field.name in partition_by for field in schema):
        raise NoStoredColumns(place="the table", fix="add_columns({'name': 'string'})")
    for field in schema:
        _ensure_type(field.type, (field.name,), is_item=False)


def _ensure_type(data_type: DataType, path: Path, *, is_item: bool) -> None:
    if data_type == VOID and is_item:
        raise NestedVoidColumn(column=format_path(path))
    is_struct = isinstance(data_type, StructType)
    if is_struct and all(child == VOID for _, child in children(data_type)):
        column = format_path(path)
        raise NoStoredColumns(place=f"column {column}", fix=f"add_columns({{'{column}.name': 'string'}})")
    for step, child in children(data_type):
        _ensure_type(child, (*path, step), is_item=is_item or not is_struct)


def without_void(schema: StructType) -> StructType:
    """Return the schema of files: without void fields, at any depth.

    Source: PROTOCOL.md#void-type
    """
    result = _without_void_type(schema)
    assert isinstance(result, StructType)
    return result


def _without_void_type(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        data_type = StructType(tuple(field for field in data_type if field.type != VOID))
    return map_children(data_type, lambda _, child: _without_void_type(child))
