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
from widen.planning.alter.set_properties import check_properties, with_tracking_columns
from widen.planning.table.table_state import MetadataChange
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
        schema, configuration = assign_column_ids(schema, configuration, new_physical_name)
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
