"""Parquet footers: the row count, and the bounds and null counts of every column, without reading the data.

Source: the Parquet format; PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import pyarrow as pa

from widen.errors import CorruptFile, FileMissing, WidenError
from widen.errors.tables import first_line, missing_data_file
from widen.log.log_store import LogStore
from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.protocol.file_statistics import ColumnStatistics, encode_statistics
from widen.protocol.parquet_files import file_tag, is_ambiguous, is_legacy
from widen.spark.ship import freeze_imports

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from widen.spark.spark_types import SparkSession
else:
    pq = import_lazily("pyarrow.parquet")


DRIVER_FILES = 64
"""The number of footers up to which the driver reads them; the executors read more."""


@dataclass(frozen=True)
class Footer:
    """The facts of a footer that the log needs.

    Args:
        stats: The statistics as the JSON text of the log.
        counts: How many values each leaf has, as a tag of the log; empty if the statistics say so for all of them.
    """

    rows: int
    stats: str
    counts: str = ""


@dataclass(frozen=True)
class LeafFooter:
    """What a footer says of every leaf, also of those without statistics in the log.

    Args:
        stats: The row count and the statistics of all leaves, as JSON text in the form of the log.
        values: The number of values of each leaf, by physical path; each value in an array or a map counts.
    """

    stats: str
    values: Mapping[Path, int]


def read_footers(spark: SparkSession, store: LogStore, paths: Sequence[str], columns: frozenset[Path]) -> list[Footer]:
    """Return the footers of files, in the order of the paths.

    Args:
        store: The store of the table; for many files, the executors reopen it.
        paths: Plain paths relative to the table.
        columns: The physical paths of the leaf columns that get statistics.

    Raises:
        CorruptFile: a file is not Parquet.
    """
    return read_files(lambda: spark, partial(read_footer, store, columns), paths, DRIVER_FILES)


def read_footer(store: LogStore, columns: frozenset[Path], path: str) -> Footer:
    """Return the footer of one file.

    Args:
        columns: The physical paths of the leaf columns that get statistics.
        path: The plain path, relative to the table.

    Raises:
        CorruptFile: the file is not Parquet.
    """
    with open_data_file(store, path) as file:
        return footer_of(pq.read_metadata(file), columns)


def read_leaf_footer(store: LogStore, path: str) -> LeafFooter:
    """Return what the footer of one file says of every leaf; needs no Spark.

    Args:
        path: The plain path, relative to the table.

    Raises:
        CorruptFile: the file is not Parquet.
    """
    with open_data_file(store, path) as file:
        metadata = pq.read_metadata(file)
    all_leaves = list(leaf_paths(metadata.schema.to_arrow_schema()))
    counts = ((leaf, count_non_null(metadata, index)) for index, leaf in enumerate(all_leaves))
    values = {leaf: count for leaf, count in counts if count is not None}
    return LeafFooter(footer_of(metadata, frozenset(all_leaves)).stats, values)


def footer_of(metadata: pq.FileMetaData, columns: frozenset[Path], partition_by: Collection[str] = ()) -> Footer:
    """Return the footer of the metadata of a Parquet file.

    Args:
        metadata: The metadata, as pyarrow reads or writes it.
        columns: The physical paths of the leaf columns that get statistics.
        partition_by: The physical names of partition columns that the file also has. They are not counted: the log has
            their values.
    """
    is_old = is_legacy(metadata.metadata)
    all_leaves = list(leaf_paths(metadata.schema.to_arrow_schema()))
    statistics_by_leaf = {
        leaf: _without_ambiguous(statistics) if is_old else statistics
        for index, leaf in enumerate(all_leaves)
        if leaf in columns and (statistics := _merge_row_groups(metadata, index)) is not None
    }
    own = [(index, leaf) for index, leaf in enumerate(all_leaves) if leaf[0] not in partition_by]
    is_counted = all(leaf in statistics_by_leaf and statistics_by_leaf[leaf].nulls is not None for _, leaf in own)
    counts = "" if is_counted else file_tag({leaf: count_non_null(metadata, index) for index, leaf in own})
    return Footer(metadata.num_rows, encode_statistics(metadata.num_rows, statistics_by_leaf), counts)


def count_non_null(metadata: pq.FileMetaData, index: int) -> int | None:
    """Return how many values a leaf has; each value in an array or a map counts. None if the footer does not say.

    Args:
        metadata: The metadata, as pyarrow reads or writes it.
    """
    total = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(index)
        if chunk.statistics is None or not chunk.statistics.has_null_count:
            return None
        total += chunk.num_values - chunk.statistics.null_count
    return total


def _without_ambiguous(statistics: ColumnStatistics) -> ColumnStatistics:
    """Return the statistics without bounds that only Spark can convert from the legacy calendar."""
    bounds = (statistics.low, statistics.high)
    return ColumnStatistics(nulls=statistics.nulls) if any(map(is_ambiguous, bounds)) else statistics


def leaf_paths(fields: Iterable[Any], path: Path = ()) -> Iterator[Path]:
    """Yield the path of every leaf in the order of the file; dotted paths would be ambiguous for names with dots.

    Args:
        fields: Arrow fields.
    """
    for field in fields:
        yield from _leaves_below(field.type, (*path, field.name))


def _leaves_below(data_type: Any, path: Path) -> Iterator[Path]:
    if pa.types.is_struct(data_type):
        yield from leaf_paths((data_type.field(i) for i in range(data_type.num_fields)), path)
    elif pa.types.is_map(data_type):
        yield from _leaves_below(data_type.key_type, (*path, "key"))
        yield from _leaves_below(data_type.item_type, (*path, "value"))
    elif pa.types.is_nested(data_type):
        yield from _leaves_below(data_type.value_type, (*path, "element"))
    else:
        yield path


def _merge_row_groups(metadata: Any, index: int) -> ColumnStatistics | None:
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
    except (OverflowError, UnicodeDecodeError):  # years that datetime does not support, texts that are not UTF-8
        return ColumnStatistics(nulls=nulls)
    if any(isinstance(value, float) and math.isnan(value) for value in (*low, *high)):
        return ColumnStatistics(nulls=nulls)
    return ColumnStatistics(min(low), max(high), nulls)


# Read data files of a table, many of them in parallel: the driver reads few of them, the executors read more.


_THREADS = 16
_COLUMNS = "numbers array<bigint>, result binary"

T = TypeVar("T")


@contextmanager
def open_data_file(store: LogStore, path: str) -> Iterator[BinaryIO]:
    """Open a Parquet file of a table.

    Raises:
        CorruptFile: it does not exist, or the body found out that it is not Parquet.
    """
    try:
        with store.open(path) as file:
            yield file
    except FileMissing as error:
        raise missing_data_file(path) from error
    except pa.ArrowException as error:
        fix = "Restore the file from a backup; its content is unknown."
        raise CorruptFile(path=path, reason=first_line(error), fix=fix) from error


def read_files(
    session: Callable[[], SparkSession], read: Callable[[str], T], paths: Sequence[str], driver_files: int
) -> list[T]:
    """Return what a function reads from each file, in the order of the paths.

    Args:
        session: Returns the session; called only for more than ``driver_files`` files.
        read: Reads a file, given its path. It travels to the executors, and its results travel back.
        driver_files: The number of files up to which the driver reads them.

    Raises:
        WidenError: the function raised it.
    """
    if len(paths) <= driver_files:
        return _read_in_threads(read, paths)
    spark, results = session(), dict[int, T]()
    from widen.spark.errors import translate_spark_errors

    with translate_spark_errors():
        listed = pa.table({"number": pa.array(range(len(paths))), "path": list(paths)})
        frame = spark.createDataFrame(listed).repartition(min(len(paths) // 64 + 1, 400))
        rows = frame.mapInArrow(partial(_run_task, read), _COLUMNS).collect()
    for row in rows:
        result = pickle.loads(row.result)
        if isinstance(result, WidenError):
            raise result
        results.update(dict.fromkeys(row.numbers, result))
    return [results[number] for number in range(len(paths))]


def _run_task(read: Callable[[str], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each result once, with the numbers of all files that have it: most files of a table are alike."""
    freeze_imports()
    numbers: dict[bytes, list[int]] = {}
    for batch in batches:
        results = _read_in_threads(partial(_read_or_error, read), batch.column("path").to_pylist())
        for number, result in zip(batch.column("number").to_pylist(), results, strict=True):
            numbers.setdefault(pickle.dumps(result), []).append(number)
    columns = [pa.array(numbers.values(), pa.list_(pa.int64())), pa.array(numbers.keys(), pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["numbers", "result"])


def _read_or_error(read: Callable[[str], Any], path: str) -> Any:
    """Return an error as a result: raised in a task, it would be the error of a Spark job."""
    try:
        return read(path)
    except WidenError as error:
        return error


def _read_in_threads(read: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(read, paths))
