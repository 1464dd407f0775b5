"""What is assigned: columns and fields of structs by their paths, no two of which contradict each other.

Source: Delta Lake's UPDATE: nested fields are assigned one by one, what is in arrays and maps is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from widen.errors import AssignmentConflict, ItemAssignmentRefused
from widen.model.path import Path, format_path, parse_path, resolve
from widen.model.type import DataType, Field, StructType
from widen.protocol.column import is_filled


def assigned_paths(schema: StructType, texts: Iterable[str]) -> dict[str, Path]:
    """Return the columns that texts name, each as the schema spells it.

    Args:
        schema: Of the table.
        texts: E.g. ``amount`` or ``address.zip``.

    Raises:
        InvalidPath: a text is no path.
        ColumnNotFound: there is no such column.
        ItemAssignmentRefused: a path leads into an array or a map.
        AssignmentConflict: two of them are the same, or one is in the other.
    """
    found = {text: _resolved(schema, parse_path(text)) for text in texts}
    ordered = sorted(found.values())
    for one, two in pairwise(ordered):
        if two[: len(one)] == one:
            raise AssignmentConflict(columns=f"{format_path(one)} and {format_path(two)}")
    return found


def overlaid(schema: StructType, types: Mapping[Path, DataType]) -> StructType:
    """Return what data would look like that have the columns of a table, some of them in other types.

    Columns whose values the table makes are left out unless something is assigned to them.

    Args:
        schema: Of the table.
        types: The types by path; a path that is not in the schema adds a column or a field.
    """
    known = [field for field in schema if not is_filled(field) or _is_named(types, field.name)]
    added = {path[0] for path in types} - {field.name for field in schema}
    fields = (Field(f.name, _overlaid(f.type, _below(types, f.name)), f.nullable) for f in known)
    return StructType((*fields, *(Field(name, types[(name,)]) for name in sorted(added))))


def _overlaid(data_type: DataType, types: Mapping[Path, DataType]) -> DataType:
    if () in types:
        return types[()]
    return overlaid(data_type, types) if types and isinstance(data_type, StructType) else data_type


def _below(types: Mapping[Path, DataType], name: str) -> dict[Path, DataType]:
    return {path[1:]: data_type for path, data_type in types.items() if path[0] == name}


def _is_named(types: Mapping[Path, DataType], name: str) -> bool:
    return any(path[0] == name for path in types)


def _resolved(schema: StructType, path: Path) -> Path:
    found, _ = resolve(schema, path)
    for at in range(1, len(found)):
        parent = resolve(schema, found[:at])[1]
        if not isinstance(parent, StructType):
            raise ItemAssignmentRefused(column=format_path(found), parent=format_path(found[:at]), type=parent.sql)
    return found
