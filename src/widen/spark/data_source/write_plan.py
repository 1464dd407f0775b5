"""What a write of the data source does to a table, planned before the first row and again at the commit.

Tasks write files with Arrow, so a table whose rules only Spark can evaluate is refused before anything is written.

Source: PROTOCOL.md#add-file-and-remove-file; Delta Lake's schema enforcement and evolution
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from widen.errors import DataSourceRefused, InvalidOption
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.log_segment import list_log
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.model.column_path import as_nullable, fields, format_path, map_fields
from widen.model.schema_json import from_json
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, name_key
from widen.planning.alter.create_table import plan_create_table
from widen.planning.evolution.format_capability import parse_automatic_widening
from widen.planning.table.dependent_expressions import check_constraints
from widen.planning.table.table_state import to_table_state
from widen.planning.write.schema_growth import grow_schema, schema_change_options
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import PHYSICAL_NAME, mapping_mode, to_physical
from widen.protocol.column_metadata import DEFAULT, GENERATION, INVARIANT, START
from widen.protocol.iceberg_compat import enabled_compat
from widen.protocol.table_features import ensure_writable
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_properties
from widen.protocol.text_limits import TEXT_LIMIT
from widen.spark.arrow_types import to_arrow
from widen.spark.data_source.source_options import SourceOptions
from widen.spark.read.local_rows import NotLocal, convert_column
from widen.spark.write.iceberg_writer import ArrowLayout
from widen.spark.write.parquet_writer import arrow_layout
from widen.spark.write.physical_layout import is_fully_nullable

_CODEC = "snappy"
_RULES: Mapping[str, str] = {
    INVARIANT: "has an invariant",
    GENERATION: "is generated",
    START: "is an identity column",
    TEXT_LIMIT: "has a maximum length",
}
_UNSORTED = ("float", "double", "binary")
"""Types of partition columns that Arrow and Spark write differently as text."""


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """What a write does to a table. Picklable.

    Args:
        read_version: The version that the plan is based on; None if the write creates the table.
    """

    options: SourceOptions
    incoming: StructType
    is_overwrite: bool
    store: LogStore
    read_version: int | None
    base_metadata: Metadata | None
    metadata: Metadata
    protocol: Protocol
    layout: ArrowLayout

    @property
    def stored(self) -> dict[str, Field]:
        """The columns in files by their names in the table.

        Fields have the names in files, and as physical names those in the table, from which they are renamed.
        """
        schema = self.schema
        renamed = map_fields(schema, lambda _, field: replace(field, metadata={PHYSICAL_NAME: field.name}))
        physical = to_physical(schema, mapping_mode(self.metadata.configuration, self.protocol))
        return dict(zip(schema.names, _with_names(renamed, physical).fields, strict=True))

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return from_json(self.metadata.schema_string)

    def open_base(self) -> Snapshot | None:
        """Return the version that the plan is based on; None if the write creates the table."""
        return None if self.read_version is None else open_snapshot(self.store, self.read_version)


def _with_names(schema: StructType, named: StructType) -> StructType:
    """Return a schema with the names of another one of the same shape."""
    names = iter([field.name for _, field in fields(named)])
    order = {path: next(names) for path, _ in fields(schema)}
    return map_fields(schema, lambda path, field: replace(field, name=order[path]))


def plan_write(
    options: SourceOptions, incoming: StructType, *, is_overwrite: bool, job: str | None = None
) -> WritePlan:
    """Return what a write does to the newest version of a table, or to a new table.

    Args:
        job: The folder of the files, if it is known already.

    Raises:
        DataSourceRefused: the table has rules that only Spark can evaluate.
        SchemaMismatch: the rows do not fit the table.
        InvalidOption: an option cannot be used.

    Source: Delta Lake's schema enforcement and evolution
    """
    store = options.open_store()
    snapshot = open_snapshot(store) if list_log(store).newest >= 0 else None
    if snapshot is None:
        properties = canonical_properties(options.properties)
        change = plan_create_table(as_nullable(incoming), options.partition_by, properties, current_ms(), None)
        metadata, protocol = change.actions
    else:
        ensure_writable(snapshot.protocol, store.location)
        _ensure_same_layout(options, snapshot)
        protocol, metadata = snapshot.protocol, _grow(options, incoming, snapshot)
    _ensure_writes_exactly(store.location, metadata, incoming)
    layout = arrow_layout(store, protocol, metadata, job or uuid.uuid4().hex, _CODEC)
    return WritePlan(
        options=options,
        incoming=incoming,
        is_overwrite=is_overwrite,
        store=store,
        read_version=None if snapshot is None else snapshot.version,
        base_metadata=None if snapshot is None else snapshot.metadata,
        metadata=metadata,
        protocol=protocol,
        layout=layout,
    )


def _grow(options: SourceOptions, incoming: StructType, snapshot: Snapshot) -> Metadata:
    state = to_table_state(snapshot)
    widening = parse_automatic_widening(options.text("widening") or "always")
    merges = options.flag("mergeSchema")
    return grow_schema(
        state, incoming, schema_change_options(state, merge_schema=merges, widening=widening, cast=False)
    ).metadata


def _ensure_same_layout(options: SourceOptions, snapshot: Snapshot) -> None:
    given = [name_key(name) for name in options.partition_by]
    if given and given != [name_key(name) for name in snapshot.partition_columns]:
        expected = (
            f"The table is partitioned by {', '.join(snapshot.partition_columns) or 'nothing'}. Remove the option."
        )
        raise InvalidOption(option="partitionBy", value=options.text("partitionBy"), expected=expected)
    other = [key for key, value in canonical_properties(options.properties).items() if _differs(snapshot, key, value)]
    if other:
        expected = "A write sets properties only when it creates the table. Use Table.set_properties."
        raise InvalidOption(option="properties", value=other, expected=expected)


def _differs(snapshot: Snapshot, key: str, value: str) -> bool:
    # A feature that was asked for is in the protocol, not among the properties.
    return not key.startswith(FEATURE_PREFIX) and snapshot.properties.get(key) != value


# ---- what is refused -------------------------------------------------------------------------------


def _ensure_writes_exactly(location: str, metadata: Metadata, incoming: StructType) -> None:
    """Check that Arrow writes the rows as the rules of the table demand."""
    reason = _find_obstacle(metadata, incoming)
    if reason is not None:
        fix = "Use Table.append or Table.overwrite of Widen, for which Spark checks and writes the rows."
        raise DataSourceRefused(verb="write", location=location, reason=reason, fix=fix)


def _find_obstacle(metadata: Metadata, incoming: StructType) -> str | None:
    schema = from_json(metadata.schema_string)
    if check_constraints(metadata.configuration):
        return "it has CHECK constraints"
    if enabled_compat(metadata.configuration):
        return "it is compatible with Iceberg"
    reasons = (_column_obstacle(field, incoming, metadata.partition_columns) for field in schema)
    return next((reason for reason in reasons if reason), None)


def _column_obstacle(field: Field, incoming: StructType, partition_by: tuple[str, ...]) -> str | None:
    for path, inner in fields(StructType((field,))):
        rule = next((text for key, text in _RULES.items() if key in inner.metadata), None)
        if rule is not None:
            return f"the column {format_path(path)} {rule}"
    try:
        to_arrow(field.type)
    except InvalidOption:
        return f"the column {field.name} is {field.type.sql}"
    given = incoming.find(field.name)
    if DEFAULT in field.metadata and given is None:
        return f"the rows lack the column {field.name}, which has a default"
    if not is_fully_nullable(field.type):
        return f"a field inside of {field.name} must not be null"
    if field.name in partition_by and str(field.type) in _UNSORTED:
        return f"{field.name} is a partition column of the type {field.type.sql}"
    return None if given is None else _conversion_obstacle(given, field)


def _conversion_obstacle(given: Field, field: Field) -> str | None:
    try:
        convert_column(pa.array([], to_arrow(given.type)), field.type)
    except (NotLocal, InvalidOption) as error:
        return f"the column {field.name} is {given.type.sql} in the rows ({error})"
    odd = _differently_spelled(given.type, field.type)
    return odd and f"the rows spell the field {odd} of {field.name} differently"


def _differently_spelled(given: DataType, table: DataType) -> str | None:
    """Return the name of a nested field that the rows spell differently from the table."""
    match given, table:
        case StructType(), StructType():
            for inner in given:
                table_field = table.find(inner.name)
                if table_field is None or table_field.name != inner.name:
                    return inner.name
                odd = _differently_spelled(inner.type, table_field.type)
                if odd:
                    return odd
        case ArrayType(), ArrayType():
            return _differently_spelled(given.element, table.element)
        case MapType(), MapType():
            return _differently_spelled(given.key, table.key) or _differently_spelled(given.value, table.value)
    return None
