"""Partitions as rows, so that Spark evaluates conditions on them and compares them.

The log may have several texts for one value, e.g. one from before and one from after a type change. So values are
compared instead of texts, in the types in which a read returns them.

Source: PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.read.snapshot import Snapshot
from widen.model.types import StructType, quote_name
from widen.planning.table.expression_columns import referenced_columns
from widen.spark.expression import Expression, to_column
from widen.spark.read.projection import from_partition_text
from widen.spark.read.scan_groups import partition_values
from widen.spark.spark_errors import translate_spark_errors

Texts: TypeAlias = tuple[str | None, ...]
"""The partition texts of a file, in the order of the partition columns."""

_NUMBER = "__widen_number"


def partition_texts(snapshot: Snapshot, files: pa.Table) -> list[Texts]:
    """Return the partition texts of each file; None for null."""
    return [tuple(values.get(key) or None for key in snapshot.partition_keys) for values in partition_values(files)]


def files_in_partitions(spark: SparkSession, snapshot: Snapshot, files: pa.Table, where: Expression) -> pa.Table | None:
    """Return the files of the partitions for which a condition is true; None if it may use other columns too.

    Args:
        where: The condition, which `ensure_deterministic_condition` has checked. The columns that a Column object uses
            are unknown.
    """
    if not isinstance(where, str) or not _column_names(where, snapshot.schema) <= {*snapshot.partition_columns}:
        return None
    if not files.num_rows:
        return files
    file_texts = partition_texts(snapshot, files)
    distinct = list(dict.fromkeys(file_texts))
    rows = _partition_rows(spark, snapshot, distinct)
    with translate_spark_errors():
        numbers = {row[0] for row in rows.where(to_column(where)).select(_NUMBER).collect()}
    return _files_with(files, file_texts, {distinct[number] for number in numbers})


def _column_names(where: str, schema: StructType) -> set[str]:
    return {path[0] for path in referenced_columns(where, schema)}


def files_in_same_partitions(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, written: Sequence[Texts]
) -> pa.Table:
    """Return the files whose partitions are among the given ones."""
    if not files.num_rows or not written:
        return files.slice(0, 0)
    file_texts = partition_texts(snapshot, files)
    distinct = list(dict.fromkeys(file_texts))
    left = _partition_rows(spark, snapshot, distinct).alias("l")
    right = _partition_rows(spark, snapshot, list(dict.fromkeys(written))).alias("r")
    names = [quote_name(name) for name in snapshot.partition_columns]
    same = reduce(and_, (F.col(f"l.{name}").eqNullSafe(F.col(f"r.{name}")) for name in names))
    with translate_spark_errors():
        numbers = {row[0] for row in left.join(right, same, "left_semi").select(_NUMBER).collect()}
    return _files_with(files, file_texts, {distinct[number] for number in numbers})


def _files_with(files: pa.Table, file_texts: Sequence[Texts], wanted: set[Texts]) -> pa.Table:
    return files.filter(pa.array([texts in wanted for texts in file_texts], pa.bool_()))


def _partition_rows(spark: SparkSession, snapshot: Snapshot, partitions: Sequence[Texts]) -> DataFrame:
    """Return partitions as rows: the number of each in the list, and its values under their logical names."""
    columns = [pa.array(column, pa.string()) for column in zip(*partitions, strict=True)]
    numbers = pa.array(range(len(partitions)), pa.int64())
    raw = spark.createDataFrame(pa.table([numbers, *columns], names=[_NUMBER, *map(str, range(len(columns)))]))
    types = {field.name: field.type for field in snapshot.schema}
    values = [
        from_partition_text(F.col(str(at)), types[name]).alias(name)
        for at, name in enumerate(snapshot.partition_columns)
    ]
    return raw.select(_NUMBER, *values)
