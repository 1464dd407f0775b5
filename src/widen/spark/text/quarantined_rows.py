"""Rows of a batch apart: those that the table holds, and what is kept out of it.

Source: docs/evolution-rules.md#d11, #d12
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import Observation as Metrics
from pyspark.sql import functions as F

from widen.log.store.log_store import LogStore
from widen.model.schema_json import from_json
from widen.observe.observation import Observation
from widen.protocol.actions import Add, Metadata, Protocol
from widen.routing.native.row_builder import ORIGIN_FIELDS, OriginColumn
from widen.spark.source.json_texts import FILE, PART, TEXT, WHOLE
from widen.spark.text.text_tasks import (
    NOTE,
    NOTES,
    BatchWriteSpec,
    build_rows,
    merge_notes,
    notes_aggregate,
    split_notes,
)
from widen.spark.write.parquet_writer import write_parquet
from widen.spark.write.row_constraints import first_violated_rule

ORIGIN = "_widen_origin"
"""The column that says what a row is made of; see `widen.routing.native.row_builder.OriginColumn`."""

_TEXT, _FILE, _POSITION, _REASON = ORIGIN_FIELDS
_BROKEN, _KEPT_OUT = "_widen_broken", "kept_out"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The records of a batch after a pass.

    Args:
        adds: The files that hold them.
        seen: What they hold beyond what the columns say.
        kept_out: What is kept out of the table, with the columns of `ORIGIN_FIELDS`; None if nothing is. The batch is
            read again where it is used.
        is_complete: Whether every record is in the files or kept out, or the pass only observed.
    """

    adds: list[Add]
    seen: Observation
    kept_out: DataFrame | None = None
    is_complete: bool = True


def write_fitting(
    texts: DataFrame, attempt: BatchWriteSpec, store: LogStore, protocol: Protocol, metadata: Metadata
) -> BatchResult:
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
    rule = first_violated_rule(from_json(metadata.schema_string), protocol, metadata.configuration)
    if rule is None and not attempt.policy.guards:
        metrics = _metrics()
        rows = build_rows(texts, attempt).observe(metrics, notes_aggregate().alias(NOTES))
        adds = write_parquet(rows.where(F.col(NOTE).isNull()).drop(NOTE), store, protocol, metadata)
        return BatchResult(adds, _seen(metrics.get))
    rows = build_rows(texts, replace(attempt, origin=OriginColumn(ORIGIN, is_for_all=rule is not None)))
    reason = F.col(f"{ORIGIN}.{_REASON}")
    broken = F.coalesce(reason, F.lit(None).cast("string") if rule is None else F.when(F.col(NOTE).isNull(), rule))
    rows, metrics = rows.withColumn(_BROKEN, broken), _metrics()
    counts = (notes_aggregate().alias(NOTES), F.count(_BROKEN).alias(_KEPT_OUT))
    fitting = rows.observe(metrics, *counts).where(F.col(NOTE).isNull() & F.col(_BROKEN).isNull())
    adds = write_parquet(fitting.drop(NOTE, ORIGIN, _BROKEN), store, protocol, metadata)
    seen, number = _seen(metrics.get), metrics.get[_KEPT_OUT]
    kept_out = rows.where(F.col(_BROKEN).isNotNull()).select(
        *(F.col(f"{ORIGIN}.{name}").alias(name) for name in (_TEXT, _FILE, _POSITION)), F.col(_BROKEN).alias(_REASON)
    )
    return BatchResult(adds, _with_broken(seen, number - seen.quarantined), kept_out if number else None)


def _metrics() -> Metrics:
    return Metrics(f"widen-{uuid.uuid4().hex}")


def _seen(found: Mapping[str, str]) -> Observation:
    return merge_notes(split_notes(found[NOTES]))


def _with_broken(seen: Observation, broken: int) -> Observation:
    """Return an observation in which the records that break a rule count among those that are kept out."""
    return msgspec.structs.replace(seen, records=seen.records - broken, quarantined=seen.quarantined + broken)


def with_quarantine_time(kept_out: DataFrame, table_version: int) -> DataFrame:
    """Return what is kept out as rows of the quarantine, with the time and the version.

    Args:
        kept_out: See `BatchResult`.
        table_version: The version of the table that cannot hold it.
    """
    return kept_out.select(
        *("text", "file", "position", "reason"),
        F.lit(datetime.now(timezone.utc)).alias("kept_at"),
        F.lit(table_version).cast("bigint").alias("table_version"),
    )


def quarantined_texts(rows: DataFrame) -> DataFrame:
    """Return the rows of a quarantine as a raw batch, each named by its file and its number there.

    Args:
        rows: Of the quarantine.
    """
    place = F.concat_ws("#", F.coalesce("file", F.lit("")), F.coalesce("position", F.lit(0)))
    text, part = F.col("text").cast("binary"), F.lit(0).cast("bigint")
    return rows.select(text.alias(TEXT), place.alias(FILE), part.alias(PART), F.lit(False).alias(WHOLE))


def with_original_positions(kept_out: DataFrame) -> DataFrame:
    """Return what is kept out of such a batch with the file and the number of each where it first stood."""
    places = {"position": F.regexp_extract(_FILE, _PLACE, 2).cast("bigint"), "file": F.regexp_extract(_FILE, _PLACE, 1)}
    return kept_out.withColumns(places)


_PLACE = "^(.*)#([0-9]+)$"
