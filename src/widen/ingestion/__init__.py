"""Ingestion: an interval from its source to one commit, and one interval after the other.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

from widen.ingestion.event import IntervalEvent
from widen.ingestion.interval import ingest, plan
from widen.ingestion.outcome import Ingested
from widen.ingestion.release import Replayed, replay
from widen.ingestion.stream import ingest_stream
from widen.spark.stream import Stream

__all__ = ["Ingested", "IntervalEvent", "Replayed", "Stream", "ingest", "ingest_stream", "plan", "replay"]
