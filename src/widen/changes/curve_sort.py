"""Sorting rows along a Z-order curve, so that files have narrow bounds in several columns at once.

Each column is divided into buckets with about the same number of rows, and the bits of the numbers of the buckets
are interleaved. In Spark the bounds of the buckets stay there; no value reaches the driver.

Source: Delta Spark's OPTIMIZE ZORDER BY
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidOption
from widen.files.arrow_types import one_array
from widen.files.data_writer import struct_leaf
from widen.model.column_path import Path, parse_path, resolve
from widen.model.schema_json import to_identifier
from widen.model.types import StructType, is_atomic
from widen.spark.spark_types import DataFrame, F

MOST_COLUMNS = 8
"""The most columns to sort by: their bits have to fit into a bigint."""

_BITS = 7
_BUCKETS = 2**_BITS
_SAMPLED_ROWS = 50_000
_CURVE, _BOUNDS = "__widen_curve", "__widen_bounds_{}"


def parse_sort_columns(schema: StructType, texts: Sequence[str], partition_by: Sequence[str] = ()) -> list[Path]:
    """Return columns to sort by.

    Raises:
        InvalidOption: a column is a partition column or has no order, or there are too many.
    """
    if len(texts) > MOST_COLUMNS:
        raise InvalidOption(option="zorder_by", value=texts, expected=f"Must be at most {MOST_COLUMNS} columns.")
    columns = list[Path]()
    for text in texts:
        path, data_type = resolve(schema, parse_path(text))
        if path[0] in partition_by or not is_atomic(data_type):
            expected = f"Must be a column with an order{' that is not a partition column' if partition_by else ''}."
            raise InvalidOption(option="zorder_by", value=text, expected=expected)
        columns.append(path)
    return columns


def sort_along_curve(
    rows: DataFrame, columns: Sequence[Path], partition_by: Sequence[str], outputs: int, count: int
) -> DataFrame:
    """Return rows in partitions that are ranges of a Z-order curve, each sorted.

    Args:
        columns: At most `MOST_COLUMNS`.
        partition_by: The partition columns of the table; they come first in the order of each partition.
    """
    texts = [".".join(map(to_identifier, column)) for column in columns]
    names = [_BOUNDS.format(at) for at in range(len(columns))]
    share = min(1.0, _SAMPLED_ROWS / max(count, 1))
    bounds = rows.sample(share, seed=0).selectExpr(
        *(_bounds(column, name) for column, name in zip(texts, names, strict=True))
    )
    buckets = [_bucket(column, name) for column, name in zip(texts, names, strict=True)]
    located = rows.crossJoin(F.broadcast(bounds)).withColumn(_CURVE, F.expr(_interleave(buckets))).drop(*names)
    spread = located.repartitionByRange(outputs, _CURVE) if outputs > 1 else located.coalesce(1)
    return spread.sortWithinPartitions(*map(to_identifier, partition_by), _CURVE).drop(_CURVE)


def _bounds(column: str, name: str) -> str:
    """Return the aggregate of the bounds between buckets; null for no rows."""
    values = f"sort_array(collect_list({column}))"
    position = f"int(ceil(i * size({values}) / {_BUCKETS}))"
    picked = f"transform(sequence(1, {_BUCKETS - 1}), i -> element_at({values}, {position}))"
    return f"CASE WHEN count({column}) > 0 THEN {picked} END AS {name}"


def _bucket(column: str, bounds: str) -> str:
    """Return the number of bounds that are not greater than a value, by binary search; 0 for null."""
    steps = ", ".join(str(2**bit) for bit in reversed(range(_BITS)))
    step = f"IF(element_at({bounds}, acc + step) <= {column}, acc + step, acc)"
    return f"aggregate(array({steps}), 0, (acc, step) -> {step})"


def _interleave(buckets: Sequence[str]) -> str:
    bits = (
        f"shiftleft(bigint(shiftright({bucket}, {bit}) & 1), {bit * len(buckets) + at})"
        for bit in range(_BITS)
        for at, bucket in enumerate(buckets)
    )
    return " | ".join(bits)


# ---- rows that this process or a task holds -------------------------------------------------------


def sort_tables(columns: Sequence[Path], target_bytes: int, size_bytes: int, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows along a Z-order curve, in tables as `cut_rows` yields them."""
    buckets = [_rank(one_array(struct_leaf(rows, column))) for column in columns]
    bits = [
        pc.shift_left(pc.bit_wise_and(pc.shift_right(bucket, bit), 1), bit * len(buckets) + at)
        for bit in range(_BITS)
        for at, bucket in enumerate(buckets)
    ]
    return cut_rows(target_bytes, size_bytes, rows.take(pc.sort_indices(reduce(pc.bit_wise_or, bits))))


def cut_rows(target_bytes: int, size_bytes: int, rows: pa.Table) -> Iterator[pa.Table]:
    """Yield sorted rows in tables for files of about the target size."""
    outputs = max(1, round(size_bytes / target_bytes))
    for at in range(outputs):
        first = at * len(rows) // outputs
        yield rows.slice(first, (at + 1) * len(rows) // outputs - first)


def _rank(values: pa.Array) -> pa.Array:
    """Return the bucket of each value, by its rank; 0 for null. NaN is above all numbers, as in Spark."""
    ranks = pc.subtract(pc.rank(values, tiebreaker="min").cast(pa.int64()), 1)
    buckets = pc.divide(pc.multiply(ranks, _BUCKETS), max(1, len(values) - values.null_count))
    return pc.if_else(values.is_valid(), buckets, 0)
