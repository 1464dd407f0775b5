"""Footers of Parquet files: how many rows, and the bounds and nulls of every column, without reading the data.

Source: the Parquet format; PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.log.store.log_store import LogStore
from widen.model.column_path import Path
from widen.protocol.parquet_calendar import is_ambiguous, is_legacy
from widen.protocol.skipping.file_statistics import ColumnStatistics, encode_statistics

DRIVER_FILES = 64
"""Up to how many footers are read by the driver; more of them by the executors."""

_THREADS = 16
_COLUMNS = "path string, rows bigint, stats string"


@dataclass(frozen=True)
class Footer:
    """What a footer says.

    Args:
        rows: How many rows the file has.
        stats: The statistics as JSON text of the log.
    """

    rows: int
    stats: str


def read_footers(spark: SparkSession, store: LogStore, paths: Sequence[str], columns: frozenset[Path]) -> list[Footer]:
    """Return the footers of files, in the order of the paths.

    Args:
        spark: The session.
        store: The store of the table; where the files are many, the executors open it again.
        paths: Plain paths relative to the table.
        columns: The physical paths of the leaf columns that get statistics.

    Raises:
        CorruptFile: a file is no Parquet.
        StorageError: the store refused.
    """
    if len(paths) <= DRIVER_FILES:
        with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
            return list(pool.map(partial(read_footer, store, columns), paths))
    frame = spark.createDataFrame([(path,) for path in paths], "path string").repartition(min(len(paths) // 16, 200))
    found = {row.path: row for row in frame.mapInArrow(partial(_read_batches, store, columns), _COLUMNS).collect()}
    return [Footer(found[path].rows, found[path].stats) for path in paths]


def _read_batches(
    store: LogStore, columns: frozenset[Path], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        paths = batch.column(0).to_pylist()
        with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
            footers = list(pool.map(partial(read_footer, store, columns), paths))
        columns_out = [pa.array(paths), pa.array([f.rows for f in footers]), pa.array([f.stats for f in footers])]
        yield pa.RecordBatch.from_arrays(columns_out, names=["path", "rows", "stats"])


def read_footer(store: LogStore, columns: frozenset[Path], path: str) -> Footer:
    """Return the footer of one file.

    Args:
        store: The store of the table.
        columns: The physical paths of the leaf columns that get statistics.
        path: Plain, relative to the table.

    Raises:
        CorruptFile: the file is no Parquet.
        StorageError: the store refused.
    """
    try:
        with store.open(path) as file:
            return footer_of(pq.read_metadata(file), columns)
    except pa.ArrowException as error:
        raise CorruptFile(path=path, reason=first_line(error), fix="Write the data again.") from error


def footer_of(metadata: pq.FileMetaData, columns: frozenset[Path]) -> Footer:
    """Return what the metadata at the end of a Parquet file say.

    Args:
        metadata: As pyarrow reads or wrote them.
        columns: The physical paths of the leaf columns that get statistics.
    """
    is_old = is_legacy(metadata.metadata)
    found = {
        leaf: _without_ambiguous(statistics) if is_old else statistics
        for index, leaf in enumerate(_leaves(metadata.schema.to_arrow_schema()))
        if leaf in columns and (statistics := _merged(metadata, index)) is not None
    }
    return Footer(metadata.num_rows, encode_statistics(metadata.num_rows, found))


def _without_ambiguous(statistics: ColumnStatistics) -> ColumnStatistics:
    """Return the statistics without bounds of which only Spark knows the day."""
    bounds = (statistics.low, statistics.high)
    return ColumnStatistics(nulls=statistics.nulls) if any(map(is_ambiguous, bounds)) else statistics


def _leaves(fields: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every leaf in the order of the file, so that names with dots do no harm."""
    for field in fields:
        yield from _below(field.type, (*at, field.name))


def _below(data_type: Any, at: Path) -> Iterator[Path]:
    if pa.types.is_struct(data_type):
        yield from _leaves((data_type.field(i) for i in range(data_type.num_fields)), at)
    elif pa.types.is_map(data_type):
        yield from _below(data_type.key_type, (*at, "key"))
        yield from _below(data_type.item_type, (*at, "value"))
    elif pa.types.is_nested(data_type):
        yield from _below(data_type.value_type, (*at, "element"))
    else:
        yield at


def _merged(metadata: Any, index: int) -> ColumnStatistics | None:
    """Return the statistics of one leaf over all row groups; None if the file has no rows."""
    parts = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if not parts or any(part is None for part in parts):
        return ColumnStatistics() if parts else None
    nulls = sum(part.null_count for part in parts) if all(part.has_null_count for part in parts) else None
    filled = [part for part in parts if part.num_values]
    if not filled or not all(part.has_min_max for part in filled):
        return ColumnStatistics(nulls=nulls)
    try:
        low, high = [part.min for part in filled], [part.max for part in filled]
    except OverflowError:  # times of years that Python does not know
        return ColumnStatistics(nulls=nulls)
    if any(isinstance(value, float) and math.isnan(value) for value in (*low, *high)):
        return ColumnStatistics(nulls=nulls)
    return ColumnStatistics(min(low), max(high), nulls)
