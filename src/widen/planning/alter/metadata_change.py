"""Commands: what a user asks of a table, as the actions of one metadata-only commit.

Every command takes the state that was read and gives a `Change`, or None if there is nothing to do.

Source: spec of ALTER TABLE in Delta Lake: the order of the checks, the errors and the provenance.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from widen.errors import ColumnNotFound, FeatureRequired, InvalidOption
from widen.model.column_path import leaves
from widen.model.schema_json import from_json, to_json
from widen.model.types import Field, StructType, is_atomic
from widen.planning.alter.column_names import ensure_names_allowed
from widen.planning.alter.dependent_metadata import update_dependents
from widen.planning.alter.row_tracking_setup import with_tracking_columns
from widen.planning.table.apply_operation import apply_operations
from widen.planning.table.operation import DropColumn, Operation, RenameColumn
from widen.planning.table.table_state import MetadataChange, TableState
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.duration import DEFAULTS, DELETED_FILE_RETENTION, LOG_RETENTION, duration_ms, ensure_retention
from widen.protocol.table_features import (
    find_feature,
    is_supported,
    required_features,
    stored_properties,
    supported_features,
    with_features,
)
from widen.protocol.table_properties import canonical_keys, canonical_properties
from widen.protocol.type_changes import record_type_changes, strip_type_changes

TYPE_WIDENING, PREVIEW = "typeWidening", "typeWidening-preview"

DESCRIPTION = "comment"
"""The property that sets what the table is described as; Delta Spark keeps it apart from the properties."""


# ---- schema ----------------------------------------------------------------------------------------


def with_operations(state: TableState, operations: Sequence[Operation]) -> Metadata:
    """Return the metadata after operations: types recorded, ids and physical names given, the rest following.

    Types are recorded between changes of names, for fields are told by their names.

    Args:
        state: What was read.
        operations: In their order; the caller has judged them.

    Raises:
        FeatureRequired: a new type needs a feature that the table does not have.
        ColumnNotFound: an operation names a column that is not there.

    Source: PROTOCOL.md#type-change-metadata, #writer-requirements-for-column-mapping
    """
    changed, metadata = state.schema, state.metadata
    version = state.version + 1 if is_supported(state.protocol, PREVIEW) else None
    for changes_names, group in groupby(operations, lambda one: isinstance(one, (RenameColumn, DropColumn))):
        before, steps = changed, tuple(group)
        for step in steps:
            metadata = update_dependents(metadata, before, step)
        changed = apply_operations(before, steps)
        changed = changed if changes_names else record_type_changes(before, changed, version)
    ensure_types(state, changed)
    return with_schema(replace(state, metadata=metadata), changed)


def with_schema(state: TableState, schema: StructType) -> Metadata:
    """Return the metadata with another schema, whose new columns get ids where the table maps columns."""
    configuration = state.metadata.configuration
    if column_mapping.mapping_mode(configuration, state.protocol) != column_mapping.NONE:
        schema, configuration = _assign_column_ids(schema, configuration, new_physical_name)
    return msgspec.structs.replace(state.metadata, schema_string=to_json(schema), configuration=configuration)


def _assign_column_ids(
    schema: StructType, configuration: Mapping[str, str], name: Callable[[Field], str]
) -> tuple[StructType, dict[str, str]]:
    """Return the schema with ids for all that has none, and the properties with the highest id."""
    schema, last = column_mapping.assign_ids(schema, column_mapping.max_column_id(schema, configuration), name)
    if iceberg_compat.has_nested_ids(configuration):
        schema, last = column_mapping.assign_nested_ids(schema, last)
    return schema, {**configuration, column_mapping.MAX_COLUMN_ID: str(last)}


def new_physical_name(_: Field) -> str:
    """Return a physical name that no column ever had.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return f"col-{uuid.uuid4()}"


def ensure_types(state: TableState, schema: StructType) -> None:
    """Check that a table has the features that the types of its next schema need.

    Raises:
        FeatureRequired: it lacks one.

    Source: PROTOCOL.md#timestamp-without-timezone-timestampntz; Delta Spark, which adds none by itself
    """
    used = {str(leaf) for _, leaf in leaves(schema)} - {str(leaf) for _, leaf in leaves(state.schema)}
    for feature in sorted(required_features({}, _columns_of(used, schema)) - supported_features(state.protocol)):
        raise FeatureRequired(feature=feature, supported=", ".join(sorted(supported_features(state.protocol))))


def _columns_of(types: set[str], schema: StructType) -> StructType:
    return StructType(tuple(Field(str(leaf), leaf) for _, leaf in leaves(schema) if str(leaf) in types))


# ---- properties and features -----------------------------------------------------------------------


def set_properties(state: TableState, properties: Mapping[str, str]) -> MetadataChange | None:
    """Return the commit that sets properties and adds the features that they ask for, or None if nothing changes.

    Raises:
        InvalidOption: a value cannot be used.
        IcebergIncompatible: compatibility with Iceberg is asked for, and the table is not compatible.

    Source: PROTOCOL.md#table-features; Delta Spark for the features that properties add.
    """
    given = check_properties(properties)
    protocol = with_features(state.protocol, required_features(given, supported=supported_features(state.protocol)))
    kept = stored_properties(given)
    description = kept.pop(DESCRIPTION, state.metadata.description)
    configuration = with_tracking_columns({**state.properties, **kept})
    if kept.keys() & {LOG_RETENTION, DELETED_FILE_RETENTION}:
        ensure_retention(configuration)
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration, description=description)
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != state.properties.get(
        column_mapping.MODE, column_mapping.NONE
    ):
        metadata = _start_column_mapping(state, metadata)
    if iceberg_compat.enabled_compat(configuration) is not None:
        metadata = _iceberg_compatible(protocol, metadata)
    return _metadata_change(state, protocol, metadata, "SET TBLPROPERTIES", {"properties": given})


def _iceberg_compatible(protocol: Protocol, metadata: Metadata) -> Metadata:
    """Return the metadata of a table that becomes compatible with Iceberg: what the version asks for has ids."""
    schema, configuration = from_json(metadata.schema_string), metadata.configuration
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE:
        schema, configuration = _assign_column_ids(schema, configuration, new_physical_name)
        metadata = msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)
    iceberg_compat.ensure_compatible(protocol, metadata, schema)
    return metadata


def _start_column_mapping(state: TableState, metadata: Metadata) -> Metadata:
    """Return the metadata of a table that begins to map its columns: every name is its own physical name."""
    wanted = metadata.configuration.get(column_mapping.MODE, column_mapping.NONE)
    before = state.properties.get(column_mapping.MODE, column_mapping.NONE)
    if (before, wanted) != (column_mapping.NONE, column_mapping.NAME):
        expected = f"It is {before}; only from none to name can it be changed."
        raise InvalidOption(option=column_mapping.MODE, value=wanted, expected=expected)
    schema, configuration = _assign_column_ids(state.schema, metadata.configuration, _own_name)
    return msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)


def _own_name(field: Field) -> str:
    return field.name


def unset_properties(state: TableState, keys: Iterable[str]) -> MetadataChange | None:
    """Return the commit that removes properties, or None if none of them is set; features stay.

    Raises:
        InvalidOption: a property cannot be removed.
    """
    gone = canonical_keys(keys)
    if (
        state.properties.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE
        and column_mapping.MODE in gone
    ):
        raise InvalidOption(option=column_mapping.MODE, value=None, expected="Column mapping cannot be switched off.")
    configuration = {key: value for key, value in state.properties.items() if key not in gone}
    description = None if DESCRIPTION in gone else state.metadata.description
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration, description=description)
    parameters = {"properties": gone, "ifExists": True}
    return _metadata_change(state, state.protocol, metadata, "UNSET TBLPROPERTIES", parameters)


def add_feature(state: TableState, name: str) -> MetadataChange | None:
    """Return the commit that adds a table feature with what it requires, or None if it is supported already.

    Raises:
        InvalidOption: this version knows no such feature.
        IcebergIncompatible: it is a compatibility with Iceberg, which does not know a change of type of the table.

    Source: PROTOCOL.md#table-features
    """
    known = find_feature(name)
    if known is None:
        raise InvalidOption(option="feature", value=name, expected="This version of Widen does not know it.")
    protocol = with_features(state.protocol, [known.name])
    parameters = {"properties": {f"delta.feature.{known.name}": "supported"}}
    return _metadata_change(state, protocol, state.metadata, "SET TBLPROPERTIES", parameters)


def _metadata_change(
    state: TableState, protocol: Protocol, metadata: Metadata, operation: str, parameters: Mapping[str, object]
) -> MetadataChange | None:
    compat = iceberg_compat.type_change_compat(protocol, metadata.configuration)
    if compat is not None and iceberg_compat.type_change_compat(state.protocol, state.properties) is None:
        iceberg_compat.ensure_type_history_compatible(compat, state.schema)
    actions: tuple[Metadata | Protocol, ...] = (metadata,) if metadata != state.metadata else ()
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (metadata, protocol)
    return MetadataChange(actions, operation, parameters) if actions else None


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the keys that Delta knows spelled as they are stored.

    Raises:
        InvalidOption: a switch is neither true nor false, column mapping has an unknown mode, a duration is none, or a
            key is there twice.
    """
    given = canonical_properties(properties)
    column_mapping.ensure_mode(given)
    for key in given.keys() & DEFAULTS.keys():
        duration_ms(given, key)
    return given


# ---- creation --------------------------------------------------------------------------------------


def create_table_change(
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    now_ms: int,
    description: str | None = None,
) -> MetadataChange:
    """Return the first commit of a table.

    Args:
        schema: Its columns.
        partition_by: The columns that its files are split by; they stay columns.
        properties: Its properties, also those that only ask for features.
        now_ms: When it is made, in ms since the epoch.
        description: What it is.

    Raises:
        InvalidColumnName: a name cannot be used.
        ColumnAlreadyExists: a name is there twice.
        InvalidOption: a partition column or a property cannot be used.
        IcebergIncompatible: compatibility with Iceberg is switched on, and the table would not be compatible.

    Source: PROTOCOL.md#change-metadata, #protocol-evolution
    """
    given = check_properties(properties)
    ensure_retention(given)
    if iceberg_compat.enabled_compat(given):
        given.setdefault(column_mapping.MODE, column_mapping.NAME)
    schema = column_mapping.without_ids(strip_type_changes(schema))
    ensure_names_allowed(schema.fields, given)
    split = _partition_columns(schema, partition_by)
    protocol = with_features(_NEW_PROTOCOL, required_features(given, schema))
    configuration = with_tracking_columns(stored_properties(given))
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE:
        schema, configuration = _assign_column_ids(schema, configuration, new_physical_name)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_json(schema),
        partition_columns=split,
        configuration=configuration,
        created_time=now_ms,
        description=description,
    )
    iceberg_compat.ensure_compatible(protocol, metadata, schema)
    told = {"isManaged": "false", "description": description, "properties": configuration}
    parameters: dict[str, object] = {**told, "partitionBy": split, "clusterBy": []}
    return MetadataChange((metadata, protocol), "CREATE TABLE", parameters)


_NEW_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def _partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    found = []
    for name in names:
        field = schema.find(name)
        if field is None:
            raise ColumnNotFound(column=name, available=", ".join(schema.names))
        if not is_atomic(field.type) or str(field.type) in ("void", "variant"):
            raise InvalidOption(
                option="partition_by", value=name, expected=f"Files cannot be split by {field.type.sql}."
            )
        found.append(field.name)
    if found and len(set(found)) == len(schema):
        raise InvalidOption(option="partition_by", value=found, expected="One column at least must stay in the files.")
    return tuple(found)
