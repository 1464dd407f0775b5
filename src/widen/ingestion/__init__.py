"""Ingestion: an interval from its source to one commit, and one interval after the other.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from widen.ingestion.event_sinks import EventFile, OpenLineage, Webhook
from widen.ingestion.interval import check_contract, ingest, plan
from widen.ingestion.replay_quarantine import ReplayResult, replay
from widen.ingestion.result import IngestResult, IntervalEvent
from widen.ingestion.stream import ingest_stream
from widen.streams.query import IngestStream

__all__ = [
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
]
