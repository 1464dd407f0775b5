"""Widen: schemas that grow with the data, without rewriting a table and without losing a value.

The types and operations that plans and tables are made of are in `widen.types`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widen.data_source.source import register
    from widen.errors import ContentionError, InternalError, RequestError, TableError, WidenError
    from widen.evolution.unify import FoldResult
    from widen.flows import Flow, FlowBatch, PipelineRun, flow, flow_chain, run
    from widen.ingestion import (
        EventFile,
        IngestResult,
        IngestStream,
        IntervalEvent,
        OpenLineage,
        ReplayResult,
        Webhook,
        check_contract,
        ingest,
        ingest_stream,
        plan,
        replay,
    )
    from widen.spark.ship import ship
    from widen.sql_commands.execute import sql
    from widen.table import IcebergTable, Table, create_table
    from widen.table.results import History, Loads, SchemaDiff, TableChange, Vacuumed
    from widen.verification.records import Verification

__all__ = [
    "ContentionError",
    "EventFile",
    "Flow",
    "FlowBatch",
    "FoldResult",
    "History",
    "IcebergTable",
    "IngestResult",
    "IngestStream",
    "InternalError",
    "IntervalEvent",
    "Loads",
    "OpenLineage",
    "PipelineRun",
    "ReplayResult",
    "RequestError",
    "SchemaDiff",
    "Table",
    "TableChange",
    "TableError",
    "Vacuumed",
    "Verification",
    "Webhook",
    "WidenError",
    "check_contract",
    "create_table",
    "flow",
    "flow_chain",
    "ingest",
    "ingest_stream",
    "plan",
    "register",
    "replay",
    "run",
    "ship",
    "sql",
]

__version__ = "0.1.0"

_NAMES = {
    "widen.flows": ("Flow", "FlowBatch", "PipelineRun", "flow", "flow_chain", "run"),
    "widen.ingestion": (
        "EventFile",
        "IngestResult",
        "IngestStream",
        "IntervalEvent",
        "OpenLineage",
        "ReplayResult",
        "Webhook",
        "check_contract",
        "ingest",
        "ingest_stream",
        "plan",
        "replay",
    ),
    "widen.evolution.unify": ("FoldResult",),
    "widen.data_source.source": ("register",),
    "widen.spark.ship": ("ship",),
    "widen.verification.records": ("Verification",),
    "widen.sql_commands.execute": ("sql",),
    "widen.table": ("IcebergTable", "Table", "create_table"),
    "widen.table.results": ("History", "Loads", "TableChange", "Vacuumed", "SchemaDiff"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Return a public name; it is imported on first use, so that the pure part works without Spark."""
    if name not in __all__:
        raise AttributeError(f"module 'widen' has no attribute {name!r}")
    with import_module("widen.model.lazy_module").spark_required():
        value: object = getattr(import_module(_MODULES.get(name, "widen.errors")), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, so that tab completion lists them before they are imported."""
    return sorted([*__all__, "__version__"])
