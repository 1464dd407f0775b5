"""The definition of a table apart from its columns: CREATE TABLE, properties, features, clustering, RESTORE.

Source: Delta Lake's ALTER TABLE: the order of the checks, the errors and the commit provenance.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from widen.errors import AppendOnlyTable, ColumnNotFound, InvalidOption
from widen.model.column_path import Path, format_path, is_struct_path, leaves, resolve
from widen.model.schema_json import to_json
from widen.model.types import LONG, Field, StructType, is_atomic, name_key
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import DOMAIN as CLUSTERING
from widen.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, clustering_domain
from widen.protocol.column_mapping import (
    ENABLE,
    ID_COLUMN,
    MAX_COLUMN_ID,
    PHYSICAL_NAME,
    ROW_TRACKING,
    SUSPENDED,
    VERSION_COLUMN,
    physical_name,
)
from widen.protocol.column_metadata import HIGH_WATER_MARK, STEP, Identity, find_identity
from widen.protocol.file_statistics import STATS_COLUMNS, FileStatistics, has_bounds, indexed_leaves, named_columns
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import (
    PROTECTED_BEFORE,
    find_feature,
    merge_protocols,
    required_features,
    stored_properties,
    supported_features,
    with_features,
)
from widen.protocol.table_properties import (
    DEFAULTS,
    DELETED_FILE_RETENTION,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_TYPE_WIDENING,
    LOG_RETENTION,
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
    TYPE_WIDENING_INTENT,
    canonical_keys,
    canonical_properties,
    duration_ms,
    ensure_retention,
    is_on,
)
from widen.protocol.type_widening import strip_type_changes
from widen.schema.alter import assign_column_ids, new_physical_name
from widen.schema.checks import ensure_names_allowed
from widen.schema.table_state import MetadataChange, TableCreation, TableState, check_constraints

# CREATE TABLE: the first commit of a table.
#
# Source: PROTOCOL.md#change-metadata, #protocol-evolution; Delta Spark's CREATE TABLE


def plan_create_table(
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    now_ms: int,
    description: str | None = None,
    cluster_by: Sequence[Path] = (),
) -> TableCreation:
    """Return the first commit of a table.

    Args:
        properties: The properties, including ``delta.feature.*``, which are not stored.

    Source: PROTOCOL.md#change-metadata, #protocol-evolution, #clustered-table
    """
    given = check_properties(properties)
    ensure_retention(given)
    # Iceberg finds columns by their ids, which only a table with column mapping has.
    if iceberg_compat.enabled_compat(given):
        given.setdefault(column_mapping.MODE, column_mapping.NAME)
    schema = column_mapping.without_ids(strip_type_changes(schema))
    ensure_names_allowed(schema.fields, given)
    partition_columns = _partition_columns(schema, partition_by)
    ensure_statistics_columns(schema, partition_columns, given)
    protocol = with_features(_NEW_PROTOCOL, required_features(given, schema))
    configuration = with_tracking_columns(stored_properties(given))
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE:
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_json(schema),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=now_ms,
        description=description,
    )
    iceberg_compat.ensure_compatible(TableConfiguration(protocol, metadata))
    state = TableState(protocol, metadata, 0)
    spelled = _clustering_paths(state, cluster_by) if cluster_by else []
    clustering: tuple[DomainMetadata, ...] = ()
    if spelled:
        protocol = with_features(protocol, [CLUSTERING_FEATURE])
        clustering = (clustering_domain(_physical_clustering(state, spelled)),)
    described = {"isManaged": "false", "description": description, "properties": configuration}
    clustered_by = [format_path(path) for path in spelled]
    parameters: dict[str, object] = {**described, "partitionBy": partition_columns, "clusterBy": clustered_by}
    return TableCreation((metadata, protocol, *clustering), "CREATE TABLE", parameters)


# Delta Lake's protocol for a new table whose properties and columns need no other.
_NEW_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def _partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    columns = []
    for name in names:
        field = schema.find(name)
        if field is None:
            raise ColumnNotFound(column=name, available=", ".join(schema.names))
        if not is_atomic(field.type) or str(field.type) in ("void", "variant"):
            raise InvalidOption(option="partition_by", value=name, expected=f"Cannot partition by {field.type.sql}.")
        if find_identity(field) is not None:  # as Delta Lake: each row would have a partition of its own
            raise InvalidOption(option="partition_by", value=name, expected="Must not be an identity column.")
        columns.append(field.name)
    if columns and len(set(columns)) == len(schema):
        raise InvalidOption(option="partition_by", value=columns, expected="Must leave a column in the files.")
    return tuple(columns)


# Table properties and table features: set, unset, and what a new value brings with it.
#
# Source: Delta Spark's SET TBLPROPERTIES and UNSET TBLPROPERTIES; PROTOCOL.md#table-features


CLUSTERING_FEATURE, MOST_CLUSTERING_COLUMNS = "clustering", 4

DESCRIPTION = "comment"
"""The property that sets the description of a table; Delta Spark stores it apart from the properties."""


def plan_set_properties(state: TableState, properties: Mapping[str, str]) -> MetadataChange | None:
    """Return the commit that sets properties and adds the features that they enable, or None if nothing changes.

    Raises:
        InvalidOption: a value is not valid.

    Source: PROTOCOL.md#table-features; Delta Spark for the features that a property enables.
    """
    given = check_properties(properties)
    for key in check_constraints(given):
        raise InvalidOption(option=key, value=given[key], expected="Use add_constraint, which checks existing rows.")
    protocol = with_features(state.protocol, required_features(given, supported=supported_features(state.protocol)))
    ensure_statistics_columns(state.schema, state.metadata.partition_columns, given)
    stored = stored_properties(given)
    description = stored.pop(DESCRIPTION, state.metadata.description)
    kept = state.properties
    if ENABLE_TYPE_WIDENING in given:  # decided, so that the intent is over
        kept = {key: text for key, text in kept.items() if key != TYPE_WIDENING_INTENT}
    configuration = with_tracking_columns({**kept, **stored})
    if stored.keys() & {LOG_RETENTION, DELETED_FILE_RETENTION}:
        ensure_retention(configuration)
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration, description=description)
    if configuration.get(column_mapping.MODE, column_mapping.NONE) != state.properties.get(
        column_mapping.MODE, column_mapping.NONE
    ):
        metadata = _start_column_mapping(state, metadata)
    if iceberg_compat.enabled_compat(configuration) is not None:
        metadata = _iceberg_compatible(TableConfiguration(protocol, metadata))
    return _metadata_change(state, protocol, metadata, "SET TBLPROPERTIES", {"properties": given})


def _iceberg_compatible(table: TableConfiguration) -> Metadata:
    """Return the metadata of a table with Iceberg compatibility enabled, with the column ids that it requires."""
    metadata = table.metadata
    if table.properties.get(column_mapping.MODE, column_mapping.NONE) != column_mapping.NONE:
        schema, properties = assign_column_ids(table.schema, table.properties, new_physical_name)
        metadata = msgspec.structs.replace(metadata, schema_string=to_json(schema), configuration=properties)
    iceberg_compat.ensure_compatible(TableConfiguration(table.protocol, metadata))
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
    """Return the commit that removes properties, or None if no property is set. Features stay supported.

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

    Source: PROTOCOL.md#clustered-table; Delta Lake's ALTER TABLE CLUSTER BY
    """
    spelled = _clustering_paths(state, columns)
    mode = state.mapping
    physical = _physical_clustering(state, spelled)
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
    protocol = with_features(state.protocol, [CLUSTERING_FEATURE])
    changed = (protocol,) if protocol is not state.protocol else ()
    return MetadataChange((*changed, clustering_domain(physical)), "CLUSTER BY", parameters)


def _physical_clustering(state: TableState, spelled: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(column_mapping.to_physical_path(state.schema, path, state.mapping) for path in spelled)


def _clustering_paths(state: TableState, columns: Sequence[Path]) -> list[Path]:
    """Return clustering columns as the schema spells them.

    Raises:
        InvalidOption: the table is partitioned; there are too many columns, one occurs twice, or the table has no
            statistics for one.
    """
    if state.metadata.partition_columns:
        expected = "The table is partitioned; a table has partitions or clustering, not both."
        raise InvalidOption(option="CLUSTER BY", value=[format_path(each) for each in columns], expected=expected)
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
    compat = iceberg_compat.type_change_compat(TableConfiguration(protocol, metadata))
    if compat is not None and iceberg_compat.type_change_compat(state) is None:
        iceberg_compat.ensure_type_history_compatible(compat, state.schema)
    actions: tuple[Metadata | Protocol, ...] = (metadata,) if metadata != state.metadata else ()
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (metadata, protocol)
    return MetadataChange(actions, operation, parameters) if actions else None


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the keys of Delta in their canonical spelling."""
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
    # A table that had row tracking before keeps the names, because its files use them for the columns.
    return {**names, **properties}


def needs_backfill(state: TableState, properties: Mapping[str, str]) -> bool:
    """Return whether properties enable row tracking on a table without it, so that its files need row ids first.

    Source: PROTOCOL.md#row-ids
    """
    return is_on(canonical_properties(properties), ENABLE) and not state.enables(ROW_TRACKING)


# RESTORE: an earlier version becomes the newest one again, except for what must never decrease.
#
# Source: Delta Spark's RESTORE; PROTOCOL.md#protocol-evolution


OPERATION = "RESTORE"
_TIMESTAMPS_SINCE = (TIMESTAMPS_SINCE_VERSION, TIMESTAMPS_SINCE_MS)


def restore_actions(
    now: TableState,
    then: TableState,
    now_domains: Mapping[str, DomainMetadata],
    then_domains: Mapping[str, DomainMetadata],
) -> tuple[Action, ...]:
    """Return the actions that restore schema, properties, protocol and clustering of an earlier version.

    Features that were added later stay supported. Numbers that must only grow (column ids, identity values), the
    protection of checkpoints, and the metadata domains of other writers stay as well.
    """
    protocol = merge_protocols(now.protocol, then.protocol)
    metadata = msgspec.structs.replace(
        then.metadata,
        schema_string=to_json(_with_marks(then.schema, now.schema)),
        configuration=_configuration(now.metadata, then.metadata),
    )
    changed = () if protocol == now.protocol else (protocol,)
    return (metadata, *changed, *_clustering(now_domains, then_domains))


def ensure_removable(now: TableState, location: str) -> None:
    """Check that files may be removed from the newest version.

    Raises:
        AppendOnlyTable: the table is append-only.

    Source: PROTOCOL.md#append-only-tables
    """
    if now.enables("appendOnly"):
        raise AppendOnlyTable(location=location, operation=OPERATION)


def _configuration(now: Metadata, then: Metadata) -> dict[str, str]:
    before, kept = then.configuration, dict(then.configuration)
    for key in (MAX_COLUMN_ID, PROTECTED_BEFORE):
        values = [int(each[key]) for each in (now.configuration, before) if each.get(key, "").isdecimal()]
        if values:
            kept[key] = str(max(values))
    if all(is_on(each, ENABLE_IN_COMMIT_TIMESTAMPS) for each in (now.configuration, before)):
        kept = {key: value for key, value in kept.items() if key not in _TIMESTAMPS_SINCE}
        kept |= {key: now.configuration[key] for key in _TIMESTAMPS_SINCE if key in now.configuration}
    return kept


def _with_marks(schema: StructType, now: StructType) -> StructType:
    """Return the schema with the current high-water marks of identity columns, so that no value is generated twice.

    Source: PROTOCOL.md#identity-columns
    """
    newest = {_lasting_name(field): field for field in now}

    def advance_mark(field: Field) -> Field:
        stored = (each.metadata.get(HIGH_WATER_MARK) for each in (field, newest.get(_lasting_name(field), field)))
        marks = [int(mark) for mark in stored if mark is not None]
        if STEP not in field.metadata or not marks:
            return field
        furthest = max(marks) if int(field.metadata[STEP]) > 0 else min(marks)
        return field.with_metadata(**{HIGH_WATER_MARK: furthest})

    # Only a column at the top can be an identity column.
    return StructType(tuple(map(advance_mark, schema)))


def _lasting_name(field: Field) -> str:
    """Return the name that a renamed column keeps."""
    return str(field.metadata.get(PHYSICAL_NAME, field.name))


def _clustering(now: Mapping[str, DomainMetadata], then: Mapping[str, DomainMetadata]) -> tuple[DomainMetadata, ...]:
    """Return the clustering domain, if it changes.

    Source: Delta Spark, which says that a table is not clustered by an empty list of columns
    """
    before, after = now.get(CLUSTERING), then.get(CLUSTERING)
    if before is None and after is None:
        return ()
    text = '{"clusteringColumns":[]}' if after is None else after.configuration
    if before is not None and before.configuration == text:
        return ()
    return (DomainMetadata(domain=CLUSTERING, configuration=text, removed=False),)


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


def advance_identities(table: TableConfiguration, names: Collection[str], adds: Iterable[Add]) -> Metadata:
    """Return the metadata after rows with generated identity values are written.

    Args:
        adds: The new files, with statistics of these columns.

    Source: PROTOCOL.md#identity-columns
    """
    written = [FileStatistics(add.stats) for add in adds]
    if not names or not written:
        return table.metadata
    fields = [field for field in table.schema if field.name in names]
    return with_used_values(table, {field.name: _bounds(field, table.mapping, written) for field in fields})


def with_used_values(table: TableConfiguration, values: Mapping[str, Collection[int]]) -> Metadata:
    """Return the metadata after identity values were used.

    Source: PROTOCOL.md#identity-columns
    """
    used = {name: some for name, some in values.items() if some}
    if not used:
        return table.metadata
    fields = [_advance(field, used.get(field.name, ())) for field in table.schema]
    return table.metadata.with_schema(StructType(tuple(fields)))


def _bounds(field: Field, mode: str, written: Iterable[FileStatistics]) -> list[int]:
    columns = [statistics.column((physical_name(field, mode),), LONG) for statistics in written]
    return [value for each in columns for value in (each.low, each.high) if isinstance(value, int)]


def _advance(field: Field, values: Collection[int]) -> Field:
    identity = find_identity(field)
    if identity is None or not values:
        return field
    mark = identity.advance(max(values) if identity.step > 0 else min(values))
    return field.with_metadata(**{HIGH_WATER_MARK: mark})
