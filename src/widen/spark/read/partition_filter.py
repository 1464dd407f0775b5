"""Partitions as rows: what a condition says of them, and which of them are the same, is asked of Spark.

One value may stand in the log in several texts, as that of its type before and after a change; so values are compared
and not texts, in the same types in which a read gives them.

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
    """Return the partition texts of each file; a text that stands for null is None."""
    return [tuple(values.get(key) or None for key in snapshot.partition_keys) for values in partition_values(files)]


def files_in_partitions(spark: SparkSession, snapshot: Snapshot, files: pa.Table, where: Expression) -> pa.Table | None:
    """Return the files of the partitions that a condition is true for; None if it may look at other columns too.

    Args:
        spark: The session.
        snapshot: The version.
        files: Of the version.
        where: The condition; `ensure_deterministic_condition` has checked it. What a column object
            looks at is not known.

    Raises:
        JobFailed: Spark could not finish the job.
    """
    if not isinstance(where, str) or not _names(where, snapshot.schema) <= {*snapshot.partition_columns}:
        return None
    if not files.num_rows:
        return files
    own = partition_texts(snapshot, files)
    distinct = list(dict.fromkeys(own))
    rows = _rows(spark, snapshot, distinct)
    with translate_spark_errors():
        numbers = {row[0] for row in rows.where(to_column(where)).select(_NUMBER).collect()}
    return _of(files, own, {distinct[number] for number in numbers})


def _names(where: str, schema: StructType) -> set[str]:
    return {path[0] for path in referenced_columns(where, schema)}


def files_in_same_partitions(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, written: Sequence[Texts]
) -> pa.Table:
    """Return the files whose partitions are among others.

    Args:
        spark: The session.
        snapshot: The version.
        files: Of the version.
        written: The texts of the other partitions.

    Raises:
        JobFailed: Spark could not finish the job.
    """
    if not files.num_rows or not written:
        return files.slice(0, 0)
    own = partition_texts(snapshot, files)
    distinct = list(dict.fromkeys(own))
    left = _rows(spark, snapshot, distinct).alias("l")
    right = _rows(spark, snapshot, list(dict.fromkeys(written))).alias("r")
    names = [quote_name(name) for name in snapshot.partition_columns]
    same = reduce(and_, (F.col(f"l.{name}").eqNullSafe(F.col(f"r.{name}")) for name in names))
    with translate_spark_errors():
        numbers = {row[0] for row in left.join(right, same, "left_semi").select(_NUMBER).collect()}
    return _of(files, own, {distinct[number] for number in numbers})


def _of(files: pa.Table, own: Sequence[Texts], wanted: set[Texts]) -> pa.Table:
    return files.filter(pa.array([one in wanted for one in own], pa.bool_()))


def _rows(spark: SparkSession, snapshot: Snapshot, partitions: Sequence[Texts]) -> DataFrame:
    """Return partitions as rows: the number of each in the list, and its values under their logical names."""
    columns = [pa.array(column, pa.string()) for column in zip(*partitions, strict=True)]
    numbers = pa.array(range(len(partitions)), pa.int64())
    raw = spark.createDataFrame(pa.table([numbers, *columns], names=[_NUMBER, *map(str, range(len(columns)))]))
    known = {field.name: field.type for field in snapshot.schema}
    values = [
        from_partition_text(F.col(str(at)), known[name]).alias(name)
        for at, name in enumerate(snapshot.partition_columns)
    ]
    return raw.select(_NUMBER, *values)
