"""Table properties and table features: set, unset, and what a new value brings with it.

Source: Delta Spark's SET TBLPROPERTIES and UNSET TBLPROPERTIES; PROTOCOL.md#table-features
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from widen.errors import InvalidOption
from widen.model.schema_json import from_json, to_json
from widen.model.types import Field
from widen.planning.alter.metadata_change import assign_column_ids, new_physical_name
from widen.planning.table.table_state import MetadataChange, TableState
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.duration import DEFAULTS, DELETED_FILE_RETENTION, LOG_RETENTION, duration_ms, ensure_retention
from widen.protocol.table_features import (
    find_feature,
    is_enabled,
    required_features,
    stored_properties,
    supported_features,
    with_features,
)
from widen.protocol.table_properties import canonical_keys, canonical_properties, is_on
from widen.protocol.tracking_columns import ENABLE, FEATURE, ID_COLUMN, SUSPENDED, VERSION_COLUMN

DESCRIPTION = "comment"
"""The property that sets the description of a table; Delta Spark stores it apart from the properties."""


def plan_set_properties(state: TableState, properties: Mapping[str, str]) -> MetadataChange | None:
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
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
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
    schema, configuration = assign_column_ids(state.schema, metadata.configuration, _own_name)
    return msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)


def _own_name(field: Field) -> str:
    return field.name


def plan_unset_properties(state: TableState, keys: Iterable[str]) -> MetadataChange | None:
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


def plan_add_feature(state: TableState, name: str) -> MetadataChange | None:
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


def with_tracking_columns(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties that name the columns for ids and versions, if they switch row tracking on; else as they are.

    Raises:
        InvalidOption: they switch it on and suspend it.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the form of the names
    """
    if not is_on(properties, ENABLE):
        return dict(properties)
    if is_on(properties, SUSPENDED):
        raise InvalidOption(option=SUSPENDED, value="true", expected=f"It cannot be true together with {ENABLE}.")
    names = {ID_COLUMN: f"_row-id-col-{uuid.uuid4()}", VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}"}
    return {**names, **properties}


def needs_backfill(state: TableState, properties: Mapping[str, str]) -> bool:
    """Tell whether properties switch row tracking on for a table that does not have it yet.

    Raises:
        InvalidOption: a value cannot be used.

    Source: PROTOCOL.md#row-ids (every file must have ids before)
    """
    return is_on(canonical_properties(properties), ENABLE) and not is_enabled(state.protocol, state.properties, FEATURE)
