"""The rows of a batch, split into rows for the table and rows for the quarantine.

Source: docs/evolution-rules.md#d11, #d12
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import msgspec
import pyarrow as pa

from widen.json.document import corrupt_text_to_bytes
from widen.json.observation import Observation
from widen.rows.row_builder import ORIGIN_FIELDS, OriginColumn
from widen.spark.ingest.text_tasks import (
    NOTE,
    NOTES,
    BatchWriteSpec,
    build_rows,
    merge_notes,
    notes_aggregate,
    split_notes,
)
from widen.spark.ingest.write_files import TableWriter, WrittenFile
from widen.spark.settings import observable_jobs
from widen.spark.source.file_ranges import FILE, PART, RAW_SCHEMA, TEXT, WHOLE, RawTexts
from widen.spark.spark_types import DataFrame, F, Metrics

ORIGIN = "_widen_origin"
"""The origin column of rows; see `widen.rows.row_builder.OriginColumn`."""

_TEXT, _FILE, _POSITION, _REASON = ORIGIN_FIELDS
_REASON_COLUMN, _QUARANTINED_RECORDS = "_widen_broken", "quarantined_records"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The records of a batch after a pass.

    Args:
        files: The files that hold them.
        seen: What they hold beyond what the columns say.
        quarantined_records: Those records, with the columns of `ORIGIN_FIELDS`; None if there are none. The
            batch is read again where it is used.
        is_complete: Whether every record is in the files or quarantined, or the pass only observed.
    """

    files: Sequence[WrittenFile]
    seen: Observation
    quarantined_records: DataFrame | None = None
    is_complete: bool = True


def write_fitting(texts: RawTexts, spec: BatchWriteSpec, writer: TableWriter) -> BatchResult:
    """Write the rows that the table can hold; quarantine rows that violate a rule or a fixed column.

    Raises:
        RowRefused: the table cannot hold a row, and no rule foresaw it.
    """
    rule = writer.violated_rule()
    if rule is None and not spec.policy.fixed_columns:
        metrics = _new_metrics()
        # Notes travel in rows of their own. They are observed before the filter drops these rows.
        rows = writer.fill(build_rows(texts, spec)).observe(metrics, notes_aggregate().alias(NOTES))
        with observable_jobs(rows.sparkSession):
            files = writer.write(rows.where(F.col(NOTE).isNull()).drop(NOTE))
        return BatchResult(files, _to_observation(metrics.get))
    # Where only some values violate the rule, the other rows need not carry their texts.
    values = writer.refused_values() if rule is not None else {}
    origin = OriginColumn(ORIGIN, is_for_all=values is None, values=values or {})
    rows = writer.fill(build_rows(texts, replace(spec, origin=origin)))
    reason = F.col(f"{ORIGIN}.{_REASON}")
    # A row with a note has no data, and would violate most rules.
    broken = F.coalesce(reason, F.lit(None).cast("string") if rule is None else F.when(F.col(NOTE).isNull(), rule))
    rows, metrics = rows.withColumn(_REASON_COLUMN, broken), _new_metrics()
    counts = (notes_aggregate().alias(NOTES), F.count(_REASON_COLUMN).alias(_QUARANTINED_RECORDS))
    fitting = rows.observe(metrics, *counts).where(F.col(NOTE).isNull() & F.col(_REASON_COLUMN).isNull())
    with observable_jobs(rows.sparkSession):
        files = writer.write(fitting.drop(NOTE, ORIGIN, _REASON_COLUMN))
    seen, quarantined_count = _to_observation(metrics.get), metrics.get[_QUARANTINED_RECORDS]
    quarantined_records = rows.where(F.col(_REASON_COLUMN).isNotNull()).select(
        *(F.col(f"{ORIGIN}.{name}").alias(name) for name in (_TEXT, _FILE, _POSITION)),
        F.col(_REASON_COLUMN).alias(_REASON),
    )
    return BatchResult(
        files,
        _with_rule_violations(seen, quarantined_count - seen.quarantined),
        quarantined_records if quarantined_count else None,
    )


def _new_metrics() -> Metrics:
    return Metrics(f"widen-{uuid.uuid4().hex}")


def _to_observation(metrics: Mapping[str, str]) -> Observation:
    return merge_notes(split_notes(metrics[NOTES]))


def _with_rule_violations(seen: Observation, broken: int) -> Observation:
    """Return an observation that counts records that violate a rule as quarantined."""
    return msgspec.structs.replace(seen, records=seen.records - broken, quarantined=seen.quarantined + broken)


def with_quarantine_time(quarantined_records: DataFrame, table_version: int) -> DataFrame:
    """Return quarantined records as rows of the quarantine, with the time and the table version.

    Args:
        quarantined_records: See `BatchResult`.
        table_version: Version of the table that cannot hold them.
    """
    return quarantined_records.select(
        *("text", "file", "position", "reason"),
        # A literal, because the rows are evaluated more than once and must stay the same.
        F.lit(datetime.now(timezone.utc)).alias("kept_at"),
        F.lit(table_version).cast("bigint").alias("table_version"),
    )


def quarantined_texts(rows: DataFrame) -> DataFrame:
    """Return rows of a quarantine as a raw batch; the file of each is its original file and position.

    Args:
        rows: Rows of the quarantine. Those without a text name files that cannot be read.
    """
    rows = rows.where(F.col("text").isNotNull())
    origin_name = F.concat_ws("#", F.coalesce("file", F.lit("")), F.coalesce("position", F.lit(0)))
    text, part = F.col("text").cast("binary"), F.lit(0).cast("bigint")
    raw = rows.select(text.alias(TEXT), origin_name.alias(FILE), part.alias(PART), F.lit(False).alias(WHOLE))
    return raw.mapInArrow(_restore_bytes, RAW_SCHEMA)


def quarantined_files(rows: DataFrame) -> DataFrame:
    """Return the files that cannot be read, as records that stay in the quarantine; see `with_original_positions`."""
    name = F.concat_ws("#", F.col("file"), F.col("position"))
    number = F.lit(0).cast("bigint")
    return rows.where(F.col("text").isNull()).select("text", name.alias("file"), number.alias("position"), "reason")


def _restore_bytes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield texts with the bytes that they stand for, so that a corrupt text is not escaped once more."""
    for batch in batches:
        texts = [corrupt_text_to_bytes(text.decode()) for text in batch.column(TEXT).to_pylist()]
        yield batch.set_column(0, TEXT, pa.array(texts, pa.binary()))


def with_original_positions(quarantined_records: DataFrame) -> DataFrame:
    """Return quarantined records of such a batch with their original files and positions."""
    columns = {
        "position": F.regexp_extract(_FILE, _POSITION_PATTERN, 2).cast("bigint"),
        "file": F.regexp_extract(_FILE, _POSITION_PATTERN, 1),
    }
    return quarantined_records.withColumns(columns)


# The last # separates: names of files may have others.
_POSITION_PATTERN = "^(.*)#([0-9]+)$"
