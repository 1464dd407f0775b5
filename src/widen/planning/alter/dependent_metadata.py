"""The metadata that follows a change of columns: partition columns, statistics columns and constraints.

Source: Delta Lake's ALTER TABLE.
"""

from __future__ import annotations

import msgspec

from widen.model.column_path import Path, format_path
from widen.model.types import StructType
from widen.planning.table.dependent_expressions import constraint_key
from widen.planning.table.expression_columns import is_referenced
from widen.planning.table.operation import (
    AddConstraint,
    DropColumn,
    DropConstraint,
    Operation,
    RenameColumn,
    ReplaceColumns,
)
from widen.planning.table.replace_columns import schema_differences
from widen.protocol.actions import Metadata
from widen.protocol.skipping.file_statistics import STATS_COLUMNS, named_columns


def update_dependents(metadata: Metadata, schema: StructType, operation: Operation) -> Metadata:
    """Return the metadata after an operation, apart from the schema.

    Args:
        operation: The operation. The caller has checked it.
    """
    match operation:
        case RenameColumn(path, name):
            split = tuple(name if (column,) == path else column for column in metadata.partition_columns)
            named = named_columns(metadata.configuration) or ()
            renamed = [_rename_path(column, path, operation.new_path) for column in named]
            return _with_statistics(msgspec.structs.replace(metadata, partition_columns=split), renamed)
        case DropColumn(path):
            return _without_path(metadata, [path])
        case ReplaceColumns():
            differences = schema_differences(schema, operation.schema)
            return _without_path(metadata, [each.path for each in differences if isinstance(each, DropColumn)])
        case AddConstraint(name, expression):
            return _with_properties(metadata, {**metadata.configuration, constraint_key(name): expression})
        case DropConstraint(name):
            kept = {key: text for key, text in metadata.configuration.items() if key.lower() != constraint_key(name)}
            return _with_properties(metadata, kept)
    return metadata


def _rename_path(path: Path, old: Path, new: Path) -> Path:
    return (*new, *path[len(old) :]) if _leads_to(old, path) else path


def _without_path(metadata: Metadata, dropped: list[Path]) -> Metadata:
    named = named_columns(metadata.configuration) or ()
    return _with_statistics(metadata, [path for path in named if not any(_leads_to(each, path) for each in dropped)])


def _leads_to(path: Path, inner: Path) -> bool:
    return len(path) <= len(inner) and is_referenced(path, [inner])


def _with_statistics(metadata: Metadata, columns: list[Path]) -> Metadata:
    if STATS_COLUMNS not in metadata.configuration:
        return metadata
    listed = ",".join(map(format_path, columns))
    return _with_properties(metadata, {**metadata.configuration, STATS_COLUMNS: listed})


def _with_properties(metadata: Metadata, configuration: dict[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration=configuration)
