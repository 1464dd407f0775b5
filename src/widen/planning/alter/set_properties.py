"""Table properties and table features: set, unset, and what a new value brings with it.

Source: Delta Spark's SET TBLPROPERTIES and UNSET TBLPROPERTIES; PROTOCOL.md#table-features
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from widen.errors import ColumnNotFound, InvalidOption
from widen.model.column_path import Path, format_path, is_struct_path, leaves, resolve
from widen.model.schema_json import from_json, to_json
from widen.model.types import Field, StructType, name_key
from widen.planning.alter.metadata_change import assign_column_ids, new_physical_name
from widen.planning.table.dependent_expressions import check_constraints
from widen.planning.table.table_state import MetadataChange, TableState
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.clustering import clustering_domain
from widen.protocol.duration import DEFAULTS, DELETED_FILE_RETENTION, LOG_RETENTION, duration_ms, ensure_retention
from widen.protocol.skipping.file_statistics import STATS_COLUMNS, has_bounds, indexed_leaves, named_columns
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

CLUSTERING, MOST_CLUSTERING_COLUMNS = "clustering", 4

DESCRIPTION = "comment"
"""The property that sets the description of a table; Delta Spark stores it apart from the properties."""


def plan_set_properties(state: TableState, properties: Mapping[str, str]) -> MetadataChange | None:
    """Return the commit that sets properties and adds the features that they enable, or None if nothing changes.

    Raises:
        InvalidOption: a value is not valid.
        IcebergIncompatible: Iceberg compatibility is enabled, and the table is not compatible.

    Source: PROTOCOL.md#table-features; Delta Spark for the features that a property enables.
    """
    given = check_properties(properties)
    for key in check_constraints(given):
        raise InvalidOption(option=key, value=given[key], expected="Use add_constraint, which checks existing rows.")
    protocol = with_features(state.protocol, required_features(given, supported=supported_features(state.protocol)))
    ensure_statistics_columns(state.schema, state.metadata.partition_columns, given)
    stored = stored_properties(given)
    description = stored.pop(DESCRIPTION, state.metadata.description)
    configuration = with_tracking_columns({**state.properties, **stored})
    if stored.keys() & {LOG_RETENTION, DELETED_FILE_RETENTION}:
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
    """Return the metadata of a table with Iceberg compatibility enabled, with the column ids that it requires."""
    schema, configuration = from_json(metadata.schema_string), metadata.configuration
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE:
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
        metadata = msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)
    iceberg_compat.ensure_compatible(protocol, metadata, schema)
    return metadata


def _start_column_mapping(state: TableState, metadata: Metadata) -> Metadata:
    """Return the metadata of a table that enables column mapping.

    The physical name of an existing column is its current name, since that is its name in the files.
    """
    mode = metadata.configuration.get(column_mapping.MODE, column_mapping.NONE)
    current = state.properties.get(column_mapping.MODE, column_mapping.NONE)
    if (current, mode) != (column_mapping.NONE, column_mapping.NAME):
        expected = f"The mode is {current}. It can change only from none to name."
        raise InvalidOption(option=column_mapping.MODE, value=mode, expected=expected)
    schema, configuration = assign_column_ids(state.schema, metadata.configuration, _current_name)
    return msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=configuration)


def _current_name(field: Field) -> str:
    return field.name


def plan_unset_properties(state: TableState, keys: Iterable[str]) -> MetadataChange | None:
    """Return the commit that removes properties, or None if none of them is set. Features stay supported.

    Raises:
        InvalidOption: a property cannot be removed.
    """
    removed = canonical_keys(keys)
    if (
        state.properties.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE
        and column_mapping.MODE in removed
    ):
        raise InvalidOption(option=column_mapping.MODE, value=None, expected="Column mapping cannot be disabled.")
    configuration = {key: value for key, value in state.properties.items() if key not in removed}
    description = None if DESCRIPTION in removed else state.metadata.description
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration, description=description)
    parameters = {"properties": removed, "ifExists": True}
    return _metadata_change(state, state.protocol, metadata, "UNSET TBLPROPERTIES", parameters)


def plan_add_feature(state: TableState, name: str) -> MetadataChange | None:
    """Return the commit that adds a table feature and its dependencies, or None if it is supported already.

    Raises:
        InvalidOption: this version of Widen does not support the feature.
        IcebergIncompatible: it is an Iceberg compatibility feature, and the table has a type change that Iceberg
            does not support.

    Source: PROTOCOL.md#table-features
    """
    feature = find_feature(name)
    if feature is None:
        raise InvalidOption(option="feature", value=name, expected="This version of Widen does not support it.")
    protocol = with_features(state.protocol, [feature.name])
    parameters = {"properties": {f"delta.feature.{feature.name}": "supported"}}
    return _metadata_change(state, protocol, state.metadata, "SET TBLPROPERTIES", parameters)


def plan_cluster_by(state: TableState, columns: Sequence[Path]) -> MetadataChange | None:
    """Return the commit that clusters a table by columns, or by none; None if it is so already.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidOption: the table is partitioned, or cannot be clustered by these columns.

    Source: PROTOCOL.md#clustered-table; Delta Lake's ALTER TABLE CLUSTER BY
    """
    if state.metadata.partition_columns:
        expected = "The table is partitioned; a table has partitions or clustering, not both."
        raise InvalidOption(option="CLUSTER BY", value=[format_path(each) for each in columns], expected=expected)
    spelled = _clustering_paths(state, columns)
    mode = column_mapping.mapping_mode(state.properties, state.protocol)
    physical = tuple(column_mapping.to_physical_path(state.schema, path, mode) for path in spelled)
    if physical == state.clustered_by:
        return None
    by_physical = {
        column_mapping.to_physical_path(state.schema, path, mode): path
        for path, _ in leaves(state.schema)
        if is_struct_path(state.schema, path)
    }
    old = [by_physical.get(path, path) for path in state.clustered_by]
    parameters = {
        "oldClusteringColumns": ",".join(map(format_path, old)),
        "newClusteringColumns": ",".join(map(format_path, spelled)),
    }
    protocol = with_features(state.protocol, [CLUSTERING])
    changed = (protocol,) if protocol is not state.protocol else ()
    return MetadataChange((*changed, clustering_domain(physical)), "CLUSTER BY", parameters)


def _clustering_paths(state: TableState, columns: Sequence[Path]) -> list[Path]:
    """Return clustering columns as the schema spells them.

    Raises:
        InvalidOption: there are too many, one occurs twice, or the table has no statistics for one.
    """
    spelled = [resolve(state.schema, path)[0] for path in columns]
    indexed = indexed_leaves(state.schema, state.properties, ())
    problem = ""
    if len(spelled) > MOST_CLUSTERING_COLUMNS:
        problem = f"There can be at most {MOST_CLUSTERING_COLUMNS} columns."
    elif len({*spelled}) < len(spelled):
        problem = "A column occurs twice."
    for path in spelled:
        if not has_bounds(resolve(state.schema, path)[1]) or path not in indexed:
            problem = problem or f"Files have no statistics for {format_path(path)}."
    if problem:
        raise InvalidOption(option="CLUSTER BY", value=[format_path(each) for each in columns], expected=problem)
    return spelled


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
    """Return properties with the keys of Delta in their canonical spelling.

    Raises:
        InvalidOption: a boolean is neither true nor false, the column mapping mode is unknown, a duration is not valid,
            or a key occurs twice.
    """
    given = canonical_properties(properties)
    column_mapping.ensure_mode(given)
    for key in given.keys() & DEFAULTS.keys():
        duration_ms(given, key)
    return given


def ensure_statistics_columns(
    schema: StructType, partition_columns: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Check that the columns to collect statistics for can have statistics.

    Raises:
        InvalidOption: one does not exist, occurs twice, is a partition column, or has a type without bounds.

    Source: Delta Lake's delta.dataSkippingStatsColumns; it checks them again at every later change of the table.
    """
    partitions, seen = set(map(name_key, partition_columns)), set[Path]()
    for path in named_columns(properties) or ():
        name, problem = format_path(path), ""
        try:
            spelled, data_type = resolve(schema, path)
        except ColumnNotFound as error:
            problem = f"{name} does not exist: {error.message}"
        else:
            key = tuple(map(name_key, spelled))
            inner = [((*spelled, *at), leaf) for at, leaf in leaves(data_type)]
            without = [at for at, leaf in inner if not (has_bounds(leaf) and is_struct_path(schema, at))]
            if key in seen:
                problem = f"{name} is listed twice."
            elif key[0] in partitions:
                problem = f"{name} is a partition column."
            elif without:
                problem = f"{format_path(without[0])} has no minimum and maximum."
            seen.add(key)
        if problem:
            value = properties[STATS_COLUMNS]
            raise InvalidOption(option=STATS_COLUMNS, value=value, expected=f"{problem} List columns of the files.")


def with_tracking_columns(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the names of the row tracking columns added, if they enable row tracking.

    Raises:
        InvalidOption: they enable row tracking and suspend it.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the form of the names
    """
    if not is_on(properties, ENABLE):
        return dict(properties)
    if is_on(properties, SUSPENDED):
        raise InvalidOption(option=SUSPENDED, value="true", expected=f"Cannot be true together with {ENABLE}.")
    names = {ID_COLUMN: f"_row-id-col-{uuid.uuid4()}", VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}"}
    # A table that had row tracking before keeps the names, by which its files have the columns.
    return {**names, **properties}


def needs_backfill(state: TableState, properties: Mapping[str, str]) -> bool:
    """Tell whether properties enable row tracking on a table without it, so that its files need row ids first.

    Raises:
        InvalidOption: a value is not valid.

    Source: PROTOCOL.md#row-ids
    """
    return is_on(canonical_properties(properties), ENABLE) and not is_enabled(state.protocol, state.properties, FEATURE)
