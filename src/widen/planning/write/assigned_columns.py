"""The columns and nested fields that an UPDATE or MERGE assigns.

Source: Delta Lake's UPDATE: nested fields can be assigned one by one, but not inside arrays and maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from widen.errors import AssignmentConflict, ColumnNotFound, ItemAssignmentRefused
from widen.model.column_path import Path, format_path, parse_path, resolve
from widen.model.types import DataType, Field, StructType, name_key
from widen.protocol.column_metadata import has_generated_values


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
            ColumnNotFound: the column does not exist.
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
        InvalidPath: a name is not a path.
        ColumnNotFound: a column does not exist.
        ItemAssignmentRefused: a path leads into an array or a map.
        AssignmentConflict: two paths are equal, or one is inside the other.
    """
    resolved = {text: _resolve_assigned(target, parse_path(text), source) for text in texts}
    ordered = sorted(resolved.values())
    # In this order, the paths inside a path come directly after it.
    for outer, inner in pairwise(ordered):
        if inner[: len(outer)] == outer:
            raise AssignmentConflict(columns=f"{format_path(outer)} and {format_path(inner)}")
    return resolved


def overlay_types(schema: StructType, types: Mapping[Path, DataType]) -> StructType:
    """Return the schema of data for a table in which the assigned columns have other types.

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
