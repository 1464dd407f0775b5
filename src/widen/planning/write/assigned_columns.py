"""What is assigned: columns and fields of structs by their paths, no two of which contradict each other.

Source: Delta Lake's UPDATE: nested fields are assigned one by one, what is in arrays and maps is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from widen.errors import AssignmentConflict, ColumnNotFound, ItemAssignmentRefused
from widen.model.column_path import Path, format_path, parse_path, resolve
from widen.model.types import DataType, Field, StructType
from widen.protocol.column_metadata import has_generated_values


@dataclass(frozen=True)
class Relation:
    """What the names of columns may mean.

    Args:
        schema: The columns.
        alias: What may stand before them; it comes before a column of that name.
    """

    schema: StructType
    alias: str | None = None

    def resolve(self, path: Path) -> Path:
        """Return a path as the schema spells it, without the alias.

        Raises:
            ColumnNotFound: there is no such column.
            ItemAssignmentRefused: the path leads into an array or a map.
        """
        is_aliased = len(path) > 1 and self.alias is not None and path[0].casefold() == self.alias.casefold()
        if is_aliased and self.schema.find(path[1]) is not None:
            path = path[1:]
        found, _ = resolve(self.schema, path)
        for at in range(1, len(found)):
            parent = resolve(self.schema, found[:at])[1]
            if not isinstance(parent, StructType):
                raise ItemAssignmentRefused(column=format_path(found), parent=format_path(found[:at]), type=parent.sql)
        return found


def assigned_paths(target: Relation, texts: Iterable[str], source: Relation | None = None) -> dict[str, Path]:
    """Return the columns that texts name, each as the table spells it.

    Args:
        target: The table.
        texts: E.g. ``amount`` or ``address.zip``.
        source: Whose columns may be added to the table; none may be if it is None.

    Raises:
        InvalidPath: a text is no path.
        ColumnNotFound: there is no such column.
        ItemAssignmentRefused: a path leads into an array or a map.
        AssignmentConflict: two of them are the same, or one is in the other.
    """
    found = {text: _resolve_assigned(target, parse_path(text), source) for text in texts}
    ordered = sorted(found.values())
    for one, two in pairwise(ordered):
        if two[: len(one)] == one:
            raise AssignmentConflict(columns=f"{format_path(one)} and {format_path(two)}")
    return found


def overlay_types(schema: StructType, types: Mapping[Path, DataType]) -> StructType:
    """Return what data would look like that have the columns of a table, some of them in other types.

    Columns whose values the table makes are left out unless something is assigned to them.

    Args:
        schema: Of the table.
        types: The types by path; a path that is not in the schema adds a column or a field.
    """
    known = [field for field in schema if not has_generated_values(field) or _is_named(types, field.name)]
    added = {path[0] for path in types} - {field.name for field in schema}
    fields = (Field(f.name, _overlay(f.type, _below(types, f.name)), f.nullable) for f in known)
    return StructType((*fields, *(Field(name, _added(_below(types, name))) for name in sorted(added))))


def _added(types: Mapping[Path, DataType]) -> DataType:
    """Return the type of a new column: the one that is given, or a struct of the fields that are."""
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
    """Return a path as the table spells it; what only the source has becomes a new column or field.

    Source: Delta Lake's MERGE with schema evolution
    """
    try:
        return target.resolve(path)
    except ColumnNotFound:
        if source is None:
            raise
        return _spelled(target.schema, source.resolve(path))


def _spelled(schema: StructType, path: Path) -> Path:
    """Return a path of which not everything is in a schema, the part that is there spelled as in it.

    Raises:
        ItemAssignmentRefused: what is there is not a struct.
    """
    found: Path = ()
    current: DataType = schema
    for at, name in enumerate(path):
        if not isinstance(current, StructType):
            raise ItemAssignmentRefused(column=format_path(path), parent=format_path(found), type=current.sql)
        field = current.find(name)
        if field is None:
            return (*found, *path[at:])
        found, current = (*found, field.name), field.type
    return found
