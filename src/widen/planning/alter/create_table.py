"""CREATE TABLE: the first commit of a table.

Source: PROTOCOL.md#change-metadata, #protocol-evolution; Delta Spark's CREATE TABLE
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from widen.errors import ColumnNotFound, InvalidOption
from widen.model.schema_json import to_json
from widen.model.types import StructType, is_atomic
from widen.planning.alter.column_checks import ensure_names_allowed
from widen.planning.alter.metadata_change import assign_column_ids, new_physical_name
from widen.planning.alter.set_properties import check_properties, ensure_statistics_columns, with_tracking_columns
from widen.planning.table.table_state import TableCreation
from widen.protocol import column_mapping, iceberg_compat
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.duration import ensure_retention
from widen.protocol.table_features import required_features, stored_properties, with_features
from widen.protocol.type_changes import strip_type_changes


def plan_create_table(
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    now_ms: int,
    description: str | None = None,
) -> TableCreation:
    """Return the first commit of a table.

    Args:
        schema: The columns, partition columns included.
        properties: The properties, including ``delta.feature.*``, which are not stored.

    Raises:
        InvalidColumnName: a name is not allowed.
        ColumnAlreadyExists: a name occurs twice.
        ColumnNotFound: a partition column is not in the schema.
        InvalidOption: a partition column or a property is not valid.
        IcebergIncompatible: Iceberg compatibility is enabled, and the table would not be compatible.

    Source: PROTOCOL.md#change-metadata, #protocol-evolution
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
    iceberg_compat.ensure_compatible(protocol, metadata, schema)
    described = {"isManaged": "false", "description": description, "properties": configuration}
    parameters: dict[str, object] = {**described, "partitionBy": partition_columns, "clusterBy": []}
    return TableCreation((metadata, protocol), "CREATE TABLE", parameters)


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
        columns.append(field.name)
    if columns and len(set(columns)) == len(schema):
        raise InvalidOption(option="partition_by", value=columns, expected="Must leave a column in the files.")
    return tuple(columns)
