"""Rows of a batch apart: those that the table holds, and what is kept out of it.

Source: spec of evolution, D11, D12.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import Observation as Metrics
from pyspark.sql import functions as F

from widen.log.store import LogStore
from widen.model.schema import from_json
from widen.observe.observation import Observation
from widen.protocol.action import Add, Metadata, Protocol
from widen.routing.transcribe import ORIGIN_FIELDS, Origin
from widen.spark.batch import NOTE, NOTES, Attempt, merge_notes, notes, split_notes, transcribe
from widen.spark.check import broken_rule
from widen.spark.write import write

ORIGIN = "_widen_origin"
"""The column that says what a row is made of; see `widen.routing.transcribe.Origin`."""

_TEXT, _FILE, _POSITION, _REASON = ORIGIN_FIELDS
_BROKEN, _KEPT_OUT = "_widen_broken", "kept_out"


@dataclass(frozen=True, slots=True)
class Written:
    """The records of a batch after a pass.

    Args:
        adds: The files that hold them.
        seen: What they hold beyond what the columns say.
        kept_out: What is kept out of the table, with the columns of `ORIGIN_FIELDS`; None if nothing is. The batch is
            read again where it is used.
    """

    adds: list[Add]
    seen: Observation
    kept_out: DataFrame | None = None


def write_fitting(
    texts: DataFrame, attempt: Attempt, store: LogStore, protocol: Protocol, metadata: Metadata
) -> Written:
    """Write the rows that the table holds, by Spark; keep out those that break a rule or do not fit a column.

    Args:
        texts: A raw batch.
        attempt: The columns, and what is known already.
        store: Of the table.
        protocol: That the table will have when the files are committed.
        metadata: Likewise.

    Raises:
        RowRefused: a row is one that the table may not hold, and nobody had foreseen it.
        CorruptFile: a file cannot be read.
        StorageError: the store refused.
    """
    rule = broken_rule(from_json(metadata.schema_string), protocol, metadata.configuration)
    if rule is None and not attempt.policy.guards:
        metrics = _metrics()
        rows = transcribe(texts, attempt).observe(metrics, notes().alias(NOTES))
        adds = write(rows.where(F.col(NOTE).isNull()).drop(NOTE), store, protocol, metadata)
        return Written(adds, _seen(metrics.get))
    rows = transcribe(texts, replace(attempt, origin=Origin(ORIGIN, is_for_all=rule is not None)))
    reason = F.col(f"{ORIGIN}.{_REASON}")
    broken = F.coalesce(reason, F.lit(None).cast("string") if rule is None else F.when(F.col(NOTE).isNull(), rule))
    rows, metrics = rows.withColumn(_BROKEN, broken), _metrics()
    counts = (notes().alias(NOTES), F.count(_BROKEN).alias(_KEPT_OUT))
    fitting = rows.observe(metrics, *counts).where(F.col(NOTE).isNull() & F.col(_BROKEN).isNull())
    adds = write(fitting.drop(NOTE, ORIGIN, _BROKEN), store, protocol, metadata)
    seen, number = _seen(metrics.get), metrics.get[_KEPT_OUT]
    kept_out = rows.where(F.col(_BROKEN).isNotNull()).select(
        *(F.col(f"{ORIGIN}.{name}").alias(name) for name in (_TEXT, _FILE, _POSITION)), F.col(_BROKEN).alias(_REASON)
    )
    return Written(adds, _with_broken(seen, number - seen.quarantined), kept_out if number else None)


def _metrics() -> Metrics:
    return Metrics(f"widen-{uuid.uuid4().hex}")


def _seen(found: Mapping[str, str]) -> Observation:
    return merge_notes(split_notes(found[NOTES]))


def _with_broken(seen: Observation, broken: int) -> Observation:
    """Return an observation in which the records that break a rule count among those that are kept out."""
    return msgspec.structs.replace(seen, records=seen.records - broken, quarantined=seen.quarantined + broken)
