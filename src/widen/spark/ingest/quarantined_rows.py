"""The rows of a batch, split into rows for the table and rows for the quarantine.

Source: docs/evolution-rules.md#d11, #d12
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from widen.json.document import corrupt_text_to_bytes
from widen.json.observation import Observation
from widen.rows.row_builder import ORIGIN_FIELDS, OriginColumn
from widen.spark.engine import LocalFrame, Rows
from widen.spark.ingest.text_tasks import (
    NOTE,
    NOTES,
    ORIGIN,
    BatchWriteSpec,
    build_rows,
    merge_notes,
    notes_aggregate,
    read_refused_records,
    split_notes,
    with_rule_violations,
)
from widen.spark.ingest.write_files import TableWriter, WrittenFile
from widen.spark.session import observable_jobs
from widen.spark.source.file_ranges import FILE, PART, RAW_SCHEMA, TEXT, WHOLE, RawTexts
from widen.spark.spark_types import F, Metrics

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
    quarantined_records: Rows | None = None
    is_complete: bool = True


def keep_refused(texts: RawTexts, spec: BatchWriteSpec) -> Rows:
    """Return the quarantined records of a batch whose other records the tasks have written; see `BatchResult`."""
    return texts.mapInArrow(partial(read_refused_records, spec), _ORIGIN_DDL)


_ORIGIN_DDL = "{} string, {} string, {} bigint, {} string".format(*ORIGIN_FIELDS)


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
        with_rule_violations(seen, quarantined_count - seen.quarantined),
        quarantined_records if quarantined_count else None,
    )


def _new_metrics() -> Metrics:
    return Metrics(f"widen-{uuid.uuid4().hex}")


def _to_observation(metrics: Mapping[str, str]) -> Observation:
    return merge_notes(split_notes(metrics[NOTES]))


def with_quarantine_time(quarantined_records: Rows, table_version: int) -> Rows:
    """Return quarantined records as rows of the quarantine, with the time and the table version.

    Args:
        quarantined_records: See `BatchResult`.
        table_version: Version of the table that cannot hold them.
    """
    # A literal, because the rows are evaluated more than once and must stay the same.
    now = datetime.now(timezone.utc)
    if isinstance(quarantined_records, LocalFrame):
        return quarantined_records.mapInArrow(partial(_with_time, now, table_version), None)
    return quarantined_records.select(
        *("text", "file", "position", "reason"),
        F.lit(now).alias("kept_at"),
        F.lit(table_version).cast("bigint").alias("table_version"),
    )


def _with_time(now: datetime, version: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count, columns = batch.num_rows, [batch.column(name) for name in ORIGIN_FIELDS]
        times = pa.repeat(pa.scalar(now, pa.timestamp("us", tz="UTC")), count)
        columns += [times, pa.repeat(pa.scalar(version, pa.int64()), count)]
        yield pa.RecordBatch.from_arrays(columns, names=[*ORIGIN_FIELDS, "kept_at", "table_version"])


def quarantined_texts(rows: Rows) -> Rows:
    """Return rows of a quarantine as a raw batch; the file of each is its original file and position.

    Args:
        rows: Rows of the quarantine. Those without a text name files that cannot be read.
    """
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_to_raw_texts, None).mapInArrow(_restore_bytes, RAW_SCHEMA)
    rows = rows.where(F.col("text").isNotNull())
    origin_name = F.concat_ws("#", F.coalesce("file", F.lit("")), F.coalesce("position", F.lit(0)))
    text, part = F.col("text").cast("binary"), F.lit(0).cast("bigint")
    raw = rows.select(text.alias(TEXT), origin_name.alias(FILE), part.alias(PART), F.lit(False).alias(WHOLE))
    return raw.mapInArrow(_restore_bytes, RAW_SCHEMA)


def _to_raw_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.filter(pc.is_valid(batch.column("text")))
        texts, count = rows.column("text").cast(pa.binary()), rows.num_rows
        parts, whole = pa.repeat(pa.scalar(0, pa.int64()), count), pa.repeat(pa.scalar(False), count)
        yield pa.RecordBatch.from_arrays([texts, _to_names(rows), parts, whole], names=[TEXT, FILE, PART, WHOLE])


def _to_names(rows: pa.RecordBatch) -> pa.Array:
    files = pc.fill_null(rows.column("file"), "")
    return pc.binary_join_element_wise(files, pc.fill_null(rows.column("position"), 0).cast(pa.string()), "#")


def quarantined_files(rows: Rows) -> Rows:
    """Return the files that cannot be read, as records that stay in the quarantine; see `with_original_positions`."""
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_keep_files, None)
    name = F.concat_ws("#", F.col("file"), F.col("position"))
    number = F.lit(0).cast("bigint")
    return rows.where(F.col("text").isNull()).select("text", name.alias("file"), number.alias("position"), "reason")


def _keep_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.filter(pc.is_null(batch.column("text")))
        numbers = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        columns = [rows.column("text"), _to_names(rows), numbers, rows.column("reason")]
        yield pa.RecordBatch.from_arrays(columns, names=ORIGIN_FIELDS)


def _restore_bytes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield texts with the bytes that they stand for, so that a corrupt text is not escaped once more."""
    for batch in batches:
        texts = [corrupt_text_to_bytes(text.decode()) for text in batch.column(TEXT).to_pylist()]
        yield batch.set_column(0, TEXT, pa.array(texts, pa.binary()))


def with_original_positions(quarantined_records: Rows) -> Rows:
    """Return quarantined records of such a batch with their original files and positions."""
    if isinstance(quarantined_records, LocalFrame):
        return quarantined_records.mapInArrow(_split_names, None)
    columns = {
        "position": F.regexp_extract(_FILE, _POSITION_PATTERN, 2).cast("bigint"),
        "file": F.regexp_extract(_FILE, _POSITION_PATTERN, 1),
    }
    return quarantined_records.withColumns(columns)


def _split_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = pc.extract_regex(batch.column(_FILE), "(?s)^(?P<file>.*)#(?P<position>[0-9]+)$")
        files, numbers = pc.struct_field(found, "file"), pc.struct_field(found, "position").cast(pa.int64())
        columns = [batch.column(_TEXT), files, numbers, batch.column(_REASON)]
        yield pa.RecordBatch.from_arrays(columns, names=ORIGIN_FIELDS)


# The last # separates: names of files may have others.
_POSITION_PATTERN = "^(.*)#([0-9]+)$"


def texts_of(rows: Rows) -> Rows:
    """Return the texts of rows of a quarantine in a column `TEXT`; files that cannot be read have none."""
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_keep_texts, None)
    return rows.select(TEXT).where(f"{TEXT} IS NOT NULL")


def _keep_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.drop_null(batch.column(TEXT))], names=[TEXT])


def union_rows(first: Rows | None, second: Rows | None) -> Rows | None:
    """Return the rows of both, where there are some."""
    if first is None or second is None:
        return second if first is None else first
    return cast(Rows, cast(Any, first).unionAll(second))
