"""Column mapping: the names and ids under which columns stand in files, partition values and statistics.

Source: PROTOCOL.md#column-mapping
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from widen.errors import CorruptLog, InvalidOption
from widen.model.column_path import Path, children, fields, map_fields
from widen.model.types import DataType, Field, StructType
from widen.protocol.actions import Protocol
from widen.protocol.table_features import is_supported

MODE, MAX_COLUMN_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
COLUMN_ID, PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
NESTED_IDS = "delta.columnMapping.nested.ids"
FEATURE = "columnMapping"
NONE, NAME, ID = "none", "name", "id"
MODES = (NONE, NAME, ID)


def ensure_mode(properties: Mapping[str, str]) -> None:
    """Check that the property names a mode.

    Raises:
        InvalidOption: it names none; the error lists the modes.
    """
    mode = properties.get(MODE, NONE)
    if mode not in MODES:
        raise InvalidOption(option=MODE, value=mode, expected=f"It is one of {', '.join(MODES)}.")


def mapping_mode(properties: Mapping[str, str], protocol: Protocol) -> str:
    """Return ``none``, ``name`` or ``id``; the property counts only where the protocol supports column mapping.

    Raises:
        InvalidOption: the property names no mode.

    Source: PROTOCOL.md#reader-requirements-for-column-mapping
    """
    ensure_mode(properties)
    return properties.get(MODE, NONE) if is_supported(protocol, FEATURE) else NONE


def physical_name(field: Field, mode: str) -> str:
    """Return the name of the field in data files.

    Raises:
        CorruptLog: the mode asks for a physical name and the field has none.

    Source: PROTOCOL.md#column-mapping
    """
    if mode == NONE:
        return field.name
    name = field.metadata.get(PHYSICAL_NAME)
    if not isinstance(name, str) or not name:
        raise CorruptLog(
            path="_delta_log",
            reason=f"column {field.name} has no {PHYSICAL_NAME} although {MODE} is {mode}",
            fix="Repair the schema with the client that wrote it.",
        )
    return name


def to_physical(schema: StructType, mode: str) -> StructType:
    """Return the schema with every name, at any depth, replaced by the one in data files.

    Raises:
        CorruptLog: a field lacks its physical name.
    """
    return map_fields(schema, lambda _, field: replace(field, name=physical_name(field, mode)))


def to_physical_path(schema: StructType, path: Path, mode: str) -> Path:
    """Return the path in data files of a path spelled as in the schema.

    Args:
        schema: In logical names.
        path: The path.
        mode: Of column mapping.

    Raises:
        CorruptLog: a field on the way lacks its physical name.
    """
    steps: list[str] = []
    current: DataType = schema
    for step in path:
        if isinstance(current, StructType):
            field = next(f for f in current.fields if f.name == step)
            steps.append(physical_name(field, mode))
            current = field.type
        else:
            steps.append(step)
            current = dict(children(current))[step]
    return tuple(steps)


def max_column_id(schema: StructType, properties: Mapping[str, str]) -> int:
    """Return the highest id that was ever given to a column, an element, a key or a value; 0 if none was."""
    known = [int(field.metadata.get(COLUMN_ID, 0)) for _, field in fields(schema)]
    nested = [number for _, field in fields(schema) for number in nested_ids(field).values()]
    return max(int(properties.get(MAX_COLUMN_ID, "0")), *known, *nested, 0)


def nested_ids(field: Field) -> dict[Path, int]:
    """Return the ids of the elements, keys and values in a field, by the steps from the field to each.

    What is inside a struct in them is not among them: its own fields hold it.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv2
    """
    known = field.metadata.get(NESTED_IDS) or {}
    prefix = f"{field.metadata.get(PHYSICAL_NAME, field.name)}."
    return {tuple(key[len(prefix) :].split(".")): int(number) for key, number in known.items()}


def nested_steps(data_type: DataType, at: Path = ()) -> Iterator[Path]:
    """Yield the steps from a field to every element, key and value in it, those in inner structs left out."""
    if isinstance(data_type, StructType):
        return
    for step, child in children(data_type):
        yield (*at, step)
        yield from nested_steps(child, (*at, step))


def assign_ids(schema: StructType, last_id: int, name: Callable[[Field], str]) -> tuple[StructType, int]:
    """Return the schema with an id and a physical name for every field that has none, and the highest id now given.

    Args:
        schema: The schema in logical names.
        last_id: The highest id ever given in this table.
        name: Makes the physical name of a new field; it must never be used again in the table.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    ids: dict[Path, int] = {}
    for path, field in fields(schema):
        if COLUMN_ID not in field.metadata:
            last_id += 1
            ids[path] = last_id

    def assigned(path: Path, field: Field) -> Field:
        if path in ids:
            field = field.with_metadata(**{COLUMN_ID: ids[path]})
        return field if PHYSICAL_NAME in field.metadata else field.with_metadata(**{PHYSICAL_NAME: name(field)})

    return map_fields(schema, assigned), last_id


def assign_nested_ids(schema: StructType, last_id: int) -> tuple[StructType, int]:
    """Return the schema with an id for every element, key and value that has none, and the highest id now given.

    Args:
        schema: Its fields have ids and physical names.
        last_id: The highest id ever given in this table.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv2
    """
    found: dict[Path, dict[str, int]] = {}
    for path, field in fields(schema):
        given = nested_ids(field)
        ids = dict(field.metadata.get(NESTED_IDS) or {})
        for steps in nested_steps(field.type):
            if steps not in given:
                last_id += 1
                ids[".".join((field.metadata[PHYSICAL_NAME], *steps))] = last_id
        if ids:
            found[path] = ids
    schema = map_fields(schema, lambda at, f: f.with_metadata(**{NESTED_IDS: found[at]}) if at in found else f)
    return schema, last_id


def without_ids(schema: StructType) -> StructType:
    """Return the schema without ids and physical names, as a new table begins with it."""
    return map_fields(schema, lambda _, field: field.without_metadata(COLUMN_ID, PHYSICAL_NAME, NESTED_IDS))
