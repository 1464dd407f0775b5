"""Data files of Iceberg tables, written by tasks with Arrow: field ids at every level, metrics and partition values.

The metrics come from the footer that the task has just written, so no file is opened again. Tasks do not need
PyIceberg.

Source: Iceberg's table specification, "Parquet", "Column Projection", "Partitioning"
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import StorageError
from widen.files.arrow_types import COPIED
from widen.files.data_writer import PartFile, PartSink, PartWriter, rows_by_key, struct_leaf, to_part_rows
from widen.iceberg.file_metrics import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TEXT,
    ColumnMetrics,
    FileMetrics,
    leaf_ids,
    lower_bound,
    upper_bound,
)
from widen.iceberg.partitions import (
    IDENTITY,
    VOID,
    PartitionField,
    bucket_of,
    encode_partition,
    hashed_bytes,
    truncate_value,
)
from widen.log.log_store import LogStore
from widen.model.column_path import Path, leaves
from widen.model.types import DataType, DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.rows.row_builder import RowCondition

MAX_OPEN_FILES = 100
"""The number of partitions that a task writes at the same time. Beyond it, the one unused for longest is closed."""


def describe_metrics(
    schema: StructType, modes: Mapping[int, int]
) -> Callable[[pq.FileMetaData, Mapping[Path, int]], tuple[str, str]]:
    """Return a function that returns the metrics of a file for a `PartFile`, as JSON.

    See `widen.iceberg.file_metrics.FileMetrics`. Bounds leave NaN out, so every floating-point column has
    its count of NaN. Iceberg for Spark and PyIceberg take a column without a count for one without NaN: ``DELETE ...
    WHERE d < 5`` would remove a whole file with the bounds 1 and 2, and its NaN with it.

    Source: Iceberg's table specification, "Manifests", ``nan_value_counts``
    """
    types = (data_type for _, data_type in leaves(schema))
    columns = [
        (path, number, _form(data_type), modes.get(number))
        for (path, number, _), data_type in zip(leaf_ids(schema), types, strict=True)
    ]
    return partial(_describe, tuple(columns))


_FORMS: Mapping[str, str] = {
    "boolean": BOOLEAN,
    "byte": INT,
    "short": INT,
    "integer": INT,
    "date": INT,
    "long": LONG,
    "timestamp": LONG,
    "timestamp_ntz": LONG,
    **dict.fromkeys(COPIED, LONG),
    "float": FLOAT,
    "double": DOUBLE,
    "string": TEXT,
    "binary": BYTES,
}
"""The binary form of the values of each atomic type."""


def _form(data_type: DataType) -> str:
    return DECIMAL if isinstance(data_type, DecimalType) else _FORMS[str(data_type)]


def _describe(
    columns: Sequence[tuple[Path, int, str, int | None]], footer: pq.FileMetaData, nans: Mapping[Path, int]
) -> tuple[str, str]:
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    metrics = {
        number: _column_metrics([group.column(position) for group in groups], form, mode, nans.get(path))
        for position, (path, number, form, mode) in enumerate(columns)
        if mode is not None
    }
    return _encode(FileMetrics(footer.num_rows, [_offset(group.column(0)) for group in groups], metrics)).decode(), ""


_encode = msgspec.json.Encoder().encode


def _offset(chunk: Any) -> int:
    has_dictionary = chunk.has_dictionary_page and chunk.dictionary_page_offset < chunk.data_page_offset
    return int(chunk.dictionary_page_offset if has_dictionary else chunk.data_page_offset)


def _column_metrics(chunks: Sequence[Any], form: str, mode: int, nans: int | None) -> ColumnMetrics:
    statistics = [chunk.statistics for chunk in chunks]
    sizes, values = (sum(getattr(chunk, name) for chunk in chunks) for name in ("total_compressed_size", "num_values"))
    if any(each is None or not each.has_null_count for each in statistics):
        return ColumnMetrics(sizes, values, nans=nans)
    nulls = sum(each.null_count for each in statistics)
    # A row group of nulls has no bounds, and does not widen the bounds of the file.
    filled = [each for each in statistics if each.num_values]
    if not filled or not all(each.has_min_max for each in filled):
        return ColumnMetrics(sizes, values, nulls, nans=nans)
    low = min(_comparable(form, each.min_raw) for each in filled)
    high = max(_comparable(form, each.max_raw) for each in filled)
    if low != low or high != high:  # a NaN is not a bound
        return ColumnMetrics(sizes, values, nulls, nans=nans)
    return ColumnMetrics(sizes, values, nulls, lower_bound(form, low, mode), upper_bound(form, high, mode), nans)


def _comparable(form: str, raw: Any) -> Any:
    return int.from_bytes(raw, "big", signed=True) if form == DECIMAL and isinstance(raw, bytes) else raw


# ---- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IcebergLayout:
    """The layout of the files of an Iceberg table, and the destination of their rows."""

    sink: PartSink
    partition_by: tuple[PartitionField, ...] = ()

    text_partitions: ClassVar[Sequence[str]] = ()
    condition: RowCondition | None = None
    """See `TableSink.condition`."""

    @property
    def rules(self) -> Sequence[RowCondition]:
        """See `TableSink.rules`."""
        return () if self.condition is None else (self.condition,)

    @property
    def store(self) -> LogStore:
        """The store of the table."""
        return self.sink.store

    @property
    def job(self) -> str:
        """The folder of the files."""
        return self.sink.job

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the files and of the rows."""
        return self.sink.schema

    def open(self, _: pa.Schema) -> IcebergWriters:
        """Return a writer for the rows of a task."""
        return IcebergWriters(self)


def write_task(layout: IcebergLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, and yield the written files in the columns of `PARTS`.

    Args:
        batches: The columns of the table in its order; their names do not matter.
    """
    writers, schema = IcebergWriters(layout), layout.sink.schema
    assert schema is not None
    for batch in batches:
        writers.write(pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema))
    files = writers.close()
    if files:
        yield to_part_rows(files)


class IcebergWriters:
    """Writes each row to the file of its partition."""

    def __init__(self, layout: IcebergLayout) -> None:
        self._layout = layout
        self._open: OrderedDict[str, PartWriter] = OrderedDict()
        self._closed: list[PartFile] = []

    def write(self, batch: pa.Table | pa.RecordBatch) -> None:
        """Add rows in the schema of the files."""
        rows = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        for partition, group in split_by_partition(rows, self._layout.partition_by):
            writer = self._open.pop(partition, None) or PartWriter(self._layout.sink, self._layout.sink.schema)
            self._open[partition] = writer
            for batch in group.combine_chunks().to_batches():
                writer.write(batch)
            if len(self._open) > MAX_OPEN_FILES:
                self._close(next(iter(self._open)))

    def close(self) -> list[PartFile]:
        """Write the remaining rows, and return all files with their partition values."""
        for partition in [*self._open]:
            self._close(partition)
        return self._closed

    def discard(self) -> None:
        """Delete what is written; storage errors are ignored, because such files belong to no snapshot."""
        with suppress(StorageError):
            for writer in self._open.values():
                writer.discard()
            self._layout.store.delete([part.path for part in self._closed])

    def _close(self, partition: str) -> None:
        parts = self._open[partition].close()
        del self._open[partition]  # not before it is closed: `discard` looks here for files that are not
        self._closed += [msgspec.structs.replace(part, partition=partition) for part in parts]


def split_by_partition(rows: pa.Table, fields: Sequence[PartitionField]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition, with its values as `encode_partition` returns them.

    Args:
        rows: Columns of the table.
    """
    if not fields:
        if rows.num_rows:
            yield "", rows
        return
    for values, group in rows_by_key(rows, [_partition_values(rows, each) for each in fields]):
        yield encode_partition(values), group


def _partition_values(rows: pa.Table, field: PartitionField) -> pa.ChunkedArray:
    if field.transform == VOID:
        return pa.chunked_array([pa.nulls(rows.num_rows, pa.int32())])
    column = struct_leaf(rows, field.source)
    values = _physical(column)
    if field.transform == IDENTITY:
        return values
    if field.transform in _TIME_UNITS:
        return _TIME_UNITS[field.transform](column.type, values)
    # Python transforms each different value once; the rest stays in Arrow.
    distinct = values.combine_chunks().dictionary_encode()
    results = [None if each is None else _transform(field, each) for each in distinct.dictionary.to_pylist()]
    result_type = pa.int32() if field.transform == "bucket" else values.type
    return pa.chunked_array([pa.array(results, result_type).take(distinct.indices)])


def _physical(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates as days and timestamps as microseconds since 1970, and everything else as it is."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _transform(field: PartitionField, value: Any) -> Any:
    if field.transform == "bucket":
        return bucket_of(hashed_bytes(value), field.size)
    return truncate_value(value, field.size)


_DAY, _HOUR = 86_400_000_000, 3_600_000_000


def _to_days(data_type: pa.DataType, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values if pa.types.is_date(data_type) else _floor_divide(values, _DAY)


def _to_hours(_: pa.DataType, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return _floor_divide(values, _HOUR)


def _to_months(data_type: pa.DataType, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return _calendar(_to_days(data_type, values), 12)


def _to_years(data_type: pa.DataType, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return _calendar(_to_days(data_type, values), 1)


def _calendar(days: pa.ChunkedArray, per_year: int) -> pa.ChunkedArray:
    dates = days.cast(pa.int32()).cast(pa.date32())
    years = pc.multiply(pc.subtract(pc.year(dates), 1970), per_year)
    return (years if per_year == 1 else pc.add(years, pc.subtract(pc.month(dates), 1))).cast(pa.int32())


def _floor_divide(values: pa.ChunkedArray, divisor: int) -> pa.ChunkedArray:
    """Return the quotients rounded down; Arrow rounds towards zero."""
    quotients = pc.divide(values, divisor)
    is_rounded_up = pc.greater(pc.multiply(quotients, divisor), values)
    return pc.subtract(quotients, is_rounded_up.cast(pa.int64())).cast(pa.int32())


_TIME_UNITS: Mapping[str, Callable[[pa.DataType, pa.ChunkedArray], pa.ChunkedArray]] = {
    "year": _to_years,
    "month": _to_months,
    "day": _to_days,
    "hour": _to_hours,
}
"""The transforms of dates and timestamps."""
