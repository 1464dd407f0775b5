"""Operations: every kind of change to a table's schema, one frozen class each.

A plan is a tuple of them; several readers interpret the same objects: apply, explain, print, check.

Source: house rule: a change is a value with many readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from widen.model.path import Path, format_path
from widen.model.schema import field_from_value, field_to_value, type_from_value, type_to_value
from widen.model.type import DataType, Field, StructType

KIND = "operation"
"""The key that says which operation a JSON value holds."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Make the table.

    Args:
        schema: All its columns.
        partition_by: The names of the columns that its files are split by.
    """

    schema: StructType
    partition_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        split = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"create the table with {len(self.schema)} columns{split}"

    def to_value(self) -> dict[str, Any]:
        """Return the operation as a JSON object."""
        return {KIND: "CreateTable", "schema": type_to_value(self.schema), "partitionBy": list(self.partition_by)}


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Put one more field at the end of a struct; rows written before have null in it.

    Args:
        parent: The struct, with the steps of element, key and value that lead to it; empty for the table itself.
        field: The new field, with everything inside it.
    """

    parent: Path
    field: Field

    @property
    def path(self) -> Path:
        """Where the new field stands."""
        return (*self.parent, self.field.name)

    def __str__(self) -> str:
        return f"add {format_path(self.path)} {self.field.type.sql}"

    def to_value(self) -> dict[str, Any]:
        """Return the operation as a JSON object."""
        return {KIND: "AddColumn", "parent": list(self.parent), "field": field_to_value(self.field)}


@dataclass(frozen=True, slots=True)
class WidenType:
    """Change the type of one leaf to a wider one, in place; the files stay as they are.

    Args:
        path: The leaf, with the steps of element, key and value that lead to it.
        old: The type it has.
        new: The type it gets.
    """

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"widen {format_path(self.path)} from {self.old.sql} to {self.new.sql}"

    def to_value(self) -> dict[str, Any]:
        """Return the operation as a JSON object."""
        return {
            KIND: "WidenType",
            "path": list(self.path),
            "old": type_to_value(self.old),
            "new": type_to_value(self.new),
        }


Operation: TypeAlias = CreateTable | AddColumn | WidenType
"""Any of the changes."""


def operation_from_value(value: Mapping[str, Any]) -> Operation:
    """Return the operation that a JSON object holds, as `to_value` made it.

    Raises:
        KeyError: the object is no operation of this version, or lacks one of its keys.
    """
    return _READERS[value[KIND]](value)


def _create_table(value: Mapping[str, Any]) -> CreateTable:
    schema = type_from_value(value["schema"])
    assert isinstance(schema, StructType)
    return CreateTable(schema, tuple(value["partitionBy"]))


def _add_column(value: Mapping[str, Any]) -> AddColumn:
    return AddColumn(tuple(value["parent"]), field_from_value(value["field"]))


def _widen_type(value: Mapping[str, Any]) -> WidenType:
    return WidenType(tuple(value["path"]), type_from_value(value["old"]), type_from_value(value["new"]))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Operation]] = {
    "CreateTable": _create_table,
    "AddColumn": _add_column,
    "WidenType": _widen_type,
}
