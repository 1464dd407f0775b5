"""States of tables as values, made and changed by commands: no log, no store."""

from __future__ import annotations

from dataclasses import replace

from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.protocol.actions import Metadata, Protocol
from widen.schema.table_definition import plan_create_table
from widen.schema.table_state import MetadataChange, TableState

WIDE = {"delta.enableTypeWidening": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


def schema(columns: str) -> StructType:
    parsed = parse_type(f"struct<{columns}>")
    assert isinstance(parsed, StructType)
    return parsed


def state(
    columns: str | StructType, properties: dict[str, str] | None = None, partition_by: tuple[str, ...] = ()
) -> TableState:
    nothing = Metadata(id="x", schema_string='{"type":"struct","fields":[]}', partition_columns=())
    empty = TableState(Protocol(min_reader_version=1, min_writer_version=2), nothing, -1)
    parsed = schema(columns) if isinstance(columns, str) else columns
    return after(empty, plan_create_table(parsed, partition_by, properties or {}, 1))


def after(before: TableState, change: MetadataChange | None) -> TableState:
    assert change is not None
    metadata = next((a for a in change.actions if isinstance(a, Metadata)), before.metadata)
    protocol = next((a for a in change.actions if isinstance(a, Protocol)), before.protocol)
    return replace(before, version=before.version + 1, protocol=protocol, metadata=metadata)
