"""The metadata of a table after its columns change: type history, column ids, and what depends on the columns.

Source: PROTOCOL.md#change-metadata
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from widen.errors import FeatureRequired
from widen.model.column_path import Path, format_path, leaves
from widen.model.schema_json import from_json, to_json
from widen.model.types import LONG, Field, StructType
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Add, Metadata
from widen.protocol.column_mapping import physical_name
from widen.protocol.column_metadata import HIGH_WATER_MARK, Identity, find_identity
from widen.protocol.file_statistics import STATS_COLUMNS, FileStatistics, named_columns
from widen.protocol.table_features import TYPE_WIDENING_PREVIEW, is_supported, required_features, supported_features
from widen.protocol.type_widening import record_type_changes
from widen.schema.alter import apply_operations, schema_differences
from widen.schema.operations import AddConstraint, DropColumn, DropConstraint, Operation, RenameColumn, ReplaceColumns
from widen.schema.table_state import TableState, constraint_key, is_referenced


def with_operations(state: TableState, operations: Sequence[Operation]) -> Metadata:
    """Return the metadata after operations, with type changes recorded and column ids assigned.

    Args:
        operations: The operations in order. The caller has checked them.

    Raises:
        FeatureRequired: a new type needs a feature that the table does not support.
        ColumnNotFound: an operation names a column that does not exist.

    Source: PROTOCOL.md#type-change-metadata, #writer-requirements-for-column-mapping
    """
    changed, metadata = state.schema, state.metadata
    version = state.version + 1 if is_supported(state.protocol, TYPE_WIDENING_PREVIEW) else None
    # Type changes are found by comparing two schemas field by field, by name. So they are recorded for each run of
    # operations that renames and drops nothing: across a rename, the old and the new field would not be compared.
    for changes_names, group in groupby(
        operations, lambda operation: isinstance(operation, (RenameColumn, DropColumn))
    ):
        before, steps = changed, tuple(group)
        for step in steps:
            metadata = _update_dependents(metadata, before, step)
        changed = apply_operations(before, steps)
        changed = changed if changes_names else record_type_changes(before, changed, version)
    ensure_types(state, changed)
    return with_schema(replace(state, metadata=metadata), changed)


def with_schema(state: TableState, schema: StructType) -> Metadata:
    """Return the metadata with another schema. With column mapping, new columns get ids and physical names."""
    configuration = state.metadata.configuration
    if column_mapping.mapping_mode(configuration, state.protocol) != column_mapping.NONE:
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
    return msgspec.structs.replace(state.metadata, schema_string=to_json(schema), configuration=configuration)


def assign_column_ids(
    schema: StructType, configuration: Mapping[str, str], name: Callable[[Field], str]
) -> tuple[StructType, dict[str, str]]:
    """Assign ids and physical names to fields without one.

    Args:
        name: The physical name for a field.

    Returns:
        The schema with ids, and the properties with the highest id.
    """
    schema, last = column_mapping.assign_ids(schema, column_mapping.max_column_id(schema, configuration), name)
    if iceberg_compat.has_nested_ids(configuration):
        schema, last = column_mapping.assign_nested_ids(schema, last)
    return schema, {**configuration, column_mapping.MAX_COLUMN_ID: str(last)}


def new_physical_name(_: Field) -> str:
    """Return a physical name that no column ever had: a dropped column of that name may still be in files.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return f"col-{uuid.uuid4()}"


def ensure_types(state: TableState, schema: StructType) -> None:
    """Check that a table supports the features that new types in a schema need.

    Raises:
        FeatureRequired: it does not support one.

    Source: PROTOCOL.md#timestamp-without-timezone-timestampntz; Delta Spark, which does not add them either
    """
    used = {str(leaf) for _, leaf in leaves(schema)} - {str(leaf) for _, leaf in leaves(state.schema)}
    for feature in sorted(required_features({}, _columns_of(used, schema)) - supported_features(state.protocol)):
        raise FeatureRequired(feature=feature, supported=", ".join(sorted(supported_features(state.protocol))))


def _columns_of(types: set[str], schema: StructType) -> StructType:
    return StructType(tuple(Field(str(leaf), leaf) for _, leaf in leaves(schema) if str(leaf) in types))


def _update_dependents(metadata: Metadata, schema: StructType, operation: Operation) -> Metadata:
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


# The high-water mark of identity columns after rows are written, and after SYNC IDENTITY.
#
# Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.


def synchronize_high_water_mark(identity: Identity, extreme: int | None) -> int | None:
    """Return the new high-water mark for the values of a column, or None if it does not change.

    Args:
        extreme: The highest value of the column, or the lowest if the step is negative; None if it has no values.

    Example:
        >>> synchronize_high_water_mark(Identity(1, 10, None, True), 25)
        31
        >>> synchronize_high_water_mark(Identity(1, 10, 41, True), 25) is None
        True
    """
    if extreme is None or (extreme - identity.start) * identity.step < 0:
        return None
    steps = -(-(extreme - identity.start) // identity.step)
    mark = identity.advance(identity.start + steps * identity.step)
    return None if mark == identity.high_water_mark else mark


def advance_identities(metadata: Metadata, names: Collection[str], mode: str, adds: Iterable[Add]) -> Metadata:
    """Return the metadata after rows with generated identity values are written.

    Args:
        names: The identity columns with generated values.
        adds: The new files, with statistics of these columns.

    Source: PROTOCOL.md#identity-columns
    """
    written = [FileStatistics(add.stats) for add in adds]
    if not names or not written:
        return metadata
    fields = [field for field in from_json(metadata.schema_string) if field.name in names]
    return with_used_values(metadata, {field.name: _bounds(field, mode, written) for field in fields})


def with_used_values(metadata: Metadata, values: Mapping[str, Collection[int]]) -> Metadata:
    """Return the metadata after identity values were used.

    Args:
        values: The values, or their bounds, by the name of the identity column.

    Source: PROTOCOL.md#identity-columns
    """
    used = {name: some for name, some in values.items() if some}
    if not used:
        return metadata
    fields = [_advance(field, used.get(field.name, ())) for field in from_json(metadata.schema_string)]
    return metadata.with_schema(StructType(tuple(fields)))


def _bounds(field: Field, mode: str, written: Iterable[FileStatistics]) -> list[int]:
    columns = [statistics.column((physical_name(field, mode),), LONG) for statistics in written]
    return [value for each in columns for value in (each.low, each.high) if isinstance(value, int)]


def _advance(field: Field, values: Collection[int]) -> Field:
    identity = find_identity(field)
    if identity is None or not values:
        return field
    mark = identity.advance(max(values) if identity.step > 0 else min(values))
    return field.with_metadata(**{HIGH_WATER_MARK: mark})
