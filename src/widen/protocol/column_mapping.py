"""Column mapping: the physical names and ids of columns in data files, partition values and statistics.

Source: PROTOCOL.md#column-mapping
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec

from widen.errors import CorruptLog, InvalidOption
from widen.model.column_path import Path, children, fields, map_fields
from widen.model.schema_json import COLUMN_ID as COLUMN_ID
from widen.model.schema_json import NESTED_IDS as NESTED_IDS
from widen.model.schema_json import from_json, to_json
from widen.model.types import LONG, STRING, DataType, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Metadata
from widen.protocol.table_features import COLUMN_MAPPING

MODE, MAX_COLUMN_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
FEATURE = COLUMN_MAPPING
NONE, NAME, ID = "none", "name", "id"
MODES = (NONE, NAME, ID)


def ensure_mode(properties: Mapping[str, str]) -> None:
    """Check that the property has a valid mode.

    Raises:
        InvalidOption: it has another value; the error lists the modes.
    """
    mode = properties.get(MODE, NONE)
    if mode not in MODES:
        raise InvalidOption(option=MODE, value=mode, expected=f"Must be one of {', '.join(MODES)}.")


def physical_name(field: Field, mode: str) -> str:
    """Return the name of the field in data files.

    Raises:
        CorruptLog: the mode requires a physical name and the field does not have one.

    Source: PROTOCOL.md#column-mapping
    """
    if mode == NONE:
        return field.name
    name = field.metadata.get(PHYSICAL_NAME)
    if not isinstance(name, str) or not name:
        raise CorruptLog(
            path="_delta_log",
            reason=f"column {field.name} does not have a {PHYSICAL_NAME} although {MODE} is {mode}",
            fix="Repair the schema with the client that wrote it.",
        )
    return name


def to_physical(schema: StructType, mode: str) -> StructType:
    """Return the schema with the physical names of all fields, at any depth."""
    return map_fields(schema, lambda _, field: replace(field, name=physical_name(field, mode)))


def similar_stored_names(schema: StructType, mode: str) -> tuple[Path, Path] | None:
    """Return two fields of one struct whose names in data files differ only in case, by their logical paths.

    A table has them if a column was renamed before another one was added, e.g. from ``a`` before ``A`` was added.
    """
    if mode == NONE:
        return None
    seen: dict[Path, Path] = {}
    for (path, _), (physical, _) in zip(fields(schema), fields(to_physical(schema, mode)), strict=True):
        stored = tuple(step.lower() for step in physical)  # as Spark's Parquet reader compares names
        if stored in seen:
            return seen[stored], path
        seen[stored] = path
    return None


def to_physical_path(schema: StructType, path: Path, mode: str) -> Path:
    """Return the physical path of a logical path."""
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


def without_mapping(metadata: Metadata) -> Metadata:
    """Return the metadata of a table whose files have the logical names of its columns, without column mapping.

    Source: Delta Spark, which also removes the properties when the mode is set to none
    """

    def plain(_: Path, field: Field) -> Field:
        return field.without_metadata(COLUMN_ID).without_metadata(PHYSICAL_NAME).without_metadata(NESTED_IDS)

    schema = map_fields(from_json(metadata.schema_string), plain)
    configuration = {key: text for key, text in metadata.configuration.items() if key not in (MODE, MAX_COLUMN_ID)}
    return msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)


def max_column_id(schema: StructType, properties: Mapping[str, str]) -> int:
    """Return the highest id ever assigned to a column, an element, a key or a value; 0 without ids."""
    field_ids = [int(field.metadata.get(COLUMN_ID, 0)) for _, field in fields(schema)]
    item_ids = [number for _, field in fields(schema) for number in nested_ids(field).values()]
    return max(int(properties.get(MAX_COLUMN_ID, "0")), *field_ids, *item_ids, 0)


def nested_ids(field: Field) -> dict[Path, int]:
    """Return the ids of the elements, keys and values in a field, by their path relative to the field.

    Ids inside a nested struct are not included, because the fields of that struct have them.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv2
    """
    ids = field.metadata.get(NESTED_IDS) or {}
    prefix = f"{field.metadata.get(PHYSICAL_NAME, field.name)}."
    return {tuple(key[len(prefix) :].split(".")): int(number) for key, number in ids.items()}


def nested_steps(data_type: DataType, prefix: Path = ()) -> Iterator[Path]:
    """Yield the relative path of every element, key and value in a field, except those inside nested structs."""
    if isinstance(data_type, StructType):
        return
    for step, child in children(data_type):
        yield (*prefix, step)
        yield from nested_steps(child, (*prefix, step))


def assign_ids(schema: StructType, last_id: int, name: Callable[[Field], str]) -> tuple[StructType, int]:
    """Assign an id and a physical name to every field that lacks them; return the schema and the highest id.

    Args:
        name: Returns the physical name of a new field; it must be unique in the history of the table.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    ids: dict[Path, int] = {}
    for path, field in fields(schema):
        if COLUMN_ID not in field.metadata:
            last_id += 1
            ids[path] = last_id

    def assign(path: Path, field: Field) -> Field:
        if path in ids:
            field = field.with_metadata(**{COLUMN_ID: ids[path]})
        return field if PHYSICAL_NAME in field.metadata else field.with_metadata(**{PHYSICAL_NAME: name(field)})

    return map_fields(schema, assign), last_id


def assign_nested_ids(schema: StructType, last_id: int) -> tuple[StructType, int]:
    """Assign an id to every element, key and value that lacks one; return the schema and the highest id.

    Args:
        schema: A schema whose fields have ids and physical names.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv2
    """
    ids_of: dict[Path, dict[str, int]] = {}
    for path, field in fields(schema):
        given = nested_ids(field)
        ids = dict(field.metadata.get(NESTED_IDS) or {})
        for steps in nested_steps(field.type):
            if steps not in given:
                last_id += 1
                ids[".".join((field.metadata[PHYSICAL_NAME], *steps))] = last_id
        if ids:
            ids_of[path] = ids
    schema = map_fields(schema, lambda path, f: f.with_metadata(**{NESTED_IDS: ids_of[path]}) if path in ids_of else f)
    return schema, last_id


def without_ids(schema: StructType) -> StructType:
    """Return the schema without ids and physical names, for a new table."""
    return map_fields(schema, lambda _, field: field.without_metadata(COLUMN_ID, PHYSICAL_NAME, NESTED_IDS))


# Row tracking: the file columns with the ids and the last commit versions of rows that were rewritten.
#
# Source: PROTOCOL.md#row-tracking


ROW_TRACKING = "rowTracking"
ROW_TRACKING_DOMAIN = "delta.rowTracking"
ENABLE, SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True, slots=True)
class TrackingColumns:
    """The materialized columns of row tracking, which are not in the schema of the table.

    Args:
        row_id: The name of the row id column; null where the id follows from the position of the row in its file.
        version: The name of the row commit version column; null where it is the commit version of the file.
    """

    row_id: str
    version: str

    def add_to(self, schema: StructType) -> StructType:
        """Return a schema with these columns appended, so that they are read and written like the others."""
        names = (self.row_id, self.version)
        return StructType((*schema, *(Field(name, LONG, metadata={PHYSICAL_NAME: name}) for name in names)))


# Change data files, and the columns that the change data feed adds to rows.
#
# Source: PROTOCOL.md#change-data-files


CHANGE_FOLDER = "_change_data"
"""The folder of these files in a table."""

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns of the change data feed beside the table's columns; only the first one is stored in files."""


def with_change_type(schema: StructType) -> StructType:
    """Return the schema of the change data files of a table: with `CHANGE_TYPE` as the last column.

    Source: PROTOCOL.md#change-data-files
    """
    return StructType((*schema, Field(CHANGE_TYPE, STRING, metadata={PHYSICAL_NAME: CHANGE_TYPE})))
