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
    from widen.flows.flow_step import FlowBatch
    from widen.flows.pipelines import PipelineRun, run
    from widen.flows.run_flow import Flow, flow, flow_chain
    from widen.flows.run_plan import RunPlan, plan_run
    from widen.ingestion.event_sinks import EventFile, OpenLineage, Webhook
    from widen.ingestion.interval import check_contract, ingest, plan
    from widen.ingestion.replay_quarantine import ReplayResult, replay
    from widen.ingestion.result import IngestResult, IntervalEvent
    from widen.ingestion.stream import ingest_stream
    from widen.spark.ship import ship
    from widen.sql_commands.execute import sql
    from widen.streams.query import IngestStream
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
    "RunPlan",
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
    "plan_run",
    "register",
    "replay",
    "run",
    "ship",
    "sql",
]

__version__ = "0.1.0"

_NAMES = {
    "widen.flows.flow_step": ("FlowBatch",),
    "widen.flows.pipelines": ("PipelineRun", "run"),
    "widen.flows.run_flow": ("Flow", "flow", "flow_chain"),
    "widen.flows.run_plan": ("RunPlan", "plan_run"),
    "widen.ingestion.event_sinks": ("EventFile", "OpenLineage", "Webhook"),
    "widen.ingestion.interval": ("check_contract", "ingest", "plan"),
    "widen.ingestion.replay_quarantine": ("ReplayResult", "replay"),
    "widen.ingestion.result": ("IngestResult", "IntervalEvent"),
    "widen.ingestion.stream": ("ingest_stream",),
    "widen.streams.query": ("IngestStream",),
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
