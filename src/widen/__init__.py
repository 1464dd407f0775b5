"""Widen: schemas that grow with the data, without rewriting a table and without losing a value."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widen.errors import ContentionError, InternalError, RequestError, TableError, WidenError
    from widen.ingestion import (
        IngestResult,
        IngestStream,
        IntervalEvent,
        ReplayResult,
        ingest,
        ingest_stream,
        plan,
        replay,
    )
    from widen.sql_commands.execute import sql
    from widen.table import Table, create_table

__all__ = [
    "ContentionError",
    "IngestResult",
    "IngestStream",
    "InternalError",
    "IntervalEvent",
    "ReplayResult",
    "RequestError",
    "Table",
    "TableError",
    "WidenError",
    "create_table",
    "ingest",
    "ingest_stream",
    "plan",
    "replay",
    "sql",
]

_HOMES = {
    "IngestResult": "widen.ingestion",
    "IntervalEvent": "widen.ingestion",
    "ReplayResult": "widen.ingestion",
    "IngestStream": "widen.ingestion",
    "Table": "widen.table",
    "create_table": "widen.table",
    "ingest": "widen.ingestion",
    "ingest_stream": "widen.ingestion",
    "plan": "widen.ingestion",
    "replay": "widen.ingestion",
    "sql": "widen.sql_commands.execute",
}


def __getattr__(name: str) -> object:
    """Return a public name, imported when it is first used, so that the pure part needs no engine."""
    if name not in __all__:
        raise AttributeError(f"module 'widen' has no attribute {name!r}")
    found: object = import_module("widen.table.lazy_spark").load(_HOMES.get(name, "widen.errors"), name)
    return found
