"""Filters of scans: the rows of files that a condition drops, and the partitions that match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne
from typing import TypeAlias

import pyarrow as pa

from widen.errors import InvalidOption
from widen.files.arrow_types import one_array
from widen.files.data_reader import partition_table
from widen.files.expressions import plain_sql, plan_condition
from widen.files.scan_groups import ScanGroup, ScanPlan, partition_values
from widen.frames.projection import DataColumn, data_columns, from_partition_text, path_in_files
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path
from widen.model.types import DOUBLE, FLOAT, DataType, StructType, quote_name
from widen.protocol.data_skipping import (
    NEGATED,
    And,
    Compare,
    ConstantPredicate,
    ConstantUnlessNull,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.protocol.partition_values import Scalar
from widen.schema.table_state import referenced_columns
from widen.spark.engine import Session, as_unsupported, run_with_arrow
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression, to_column
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, type_to_spark

_COMPARISONS: Mapping[str, Callable[[Column, Column], Column]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


_LONGS = range(-(2**63), 2**63)


def filter_stored_rows(frame: DataFrame, scan: ScanPlan, group: ScanGroup) -> DataFrame:
    """Return the rows of files without some that the caller's condition drops, unless Spark pushes that condition."""
    columns = data_columns(scan, group)
    used = ((condition.path, columns.get(condition.path[0])) for condition in scan.conditions)
    if not any(column and (column.guarded or (len(path) > 1 and column.is_rebuilt)) for path, column in used):
        return frame
    condition = _push_predicate(scan, group, columns, scan.predicate, truth=True)
    return frame if condition is None else frame.filter(condition)


def _push_predicate(
    scan: ScanPlan, group: ScanGroup, columns: Mapping[str, DataColumn], predicate: Predicate, *, truth: bool
) -> Column | None:
    """Return a condition for all rows that make a predicate ``truth``; None if nothing can be derived."""
    match predicate:
        case Not(inner):
            return _push_predicate(scan, group, columns, inner, truth=not truth)
        case And(left, right) | Or(left, right):
            parts = [_push_predicate(scan, group, columns, part, truth=truth) for part in (left, right)]
            conditions = [part for part in parts if part is not None]
            if isinstance(predicate, And) == truth:
                return conditions[0] & conditions[-1] if conditions else None
            return conditions[0] | conditions[1] if len(conditions) == len(parts) else None
        case IsNull(path, data_type):
            column = _pushed_column(scan, group, columns, path, data_type)
            return column if column is None else column.isNull() if truth else column.isNotNull()
        case ConstantUnlessNull(path, data_type, result):
            column = _pushed_column(scan, group, columns, path, data_type)
            return column if column is None else column.isNotNull() if result is truth else F.lit(False)
        case Compare(path, data_type, sign, value):
            column, operator = _pushed_column(scan, group, columns, path, data_type), sign if truth else NEGATED[sign]
            may_be_nan = data_type in (FLOAT, DOUBLE) and operator in (">", ">=", "<>")
            return None if column is None or may_be_nan else _COMPARISONS[operator](column, _literal(value))
        case ConstantPredicate(result):
            return None if result is truth else F.lit(False)
        case UnknownPredicate():
            return None


def _pushed_column(
    scan: ScanPlan, group: ScanGroup, columns: Mapping[str, DataColumn], path: Path, data_type: DataType
) -> Column | None:
    """Return a leaf of the files, or None if they do not contain it or filters on it must not be pushed.

    A cast to the leaf's own type changes nothing. Spark unwraps the cast from an older type by its own rules.
    """
    if path[0] not in columns or path in scan.char_lengths:
        return None
    stored = path_in_files(scan, group, path)
    if data_type not in (FLOAT, DOUBLE) and stored[1:] in columns[path[0]].guarded:
        return None
    return F.col(".".join(map(quote_name, stored))).cast(type_to_spark(data_type))


def _literal(value: Scalar) -> Column:
    if isinstance(value, datetime) and value.tzinfo is None:
        return F.lit(str(value)).cast("timestamp_ntz")
    # PySpark has no literal for an integer of more than 64 bits.
    return F.lit(Decimal(value) if isinstance(value, int) and value not in _LONGS else value)


Texts: TypeAlias = tuple[str | None, ...]
"""The partition texts of a file, in the order of the partition columns."""


_NUMBER = "__widen_number"


def partition_texts(snapshot: Snapshot, files: pa.Table) -> list[Texts]:
    """Return the partition texts of each file; None for null."""
    return [tuple(values.get(key) or None for key in snapshot.partition_keys) for values in partition_values(files)]


def files_in_partitions(session: Session, snapshot: Snapshot, files: pa.Table, where: Expression) -> pa.Table | None:
    """Return the files of the partitions that match a condition; None if it may also use other columns.

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

    def find_on_spark(spark: SparkSession) -> set[int]:
        rows = _partition_rows(spark, snapshot, distinct)
        with translate_spark_errors():
            return {row[0] for row in rows.where(to_column(where)).select(_NUMBER).collect()}

    numbers = run_with_arrow(session, lambda: _find_matching(snapshot, distinct, where), find_on_spark)
    return _files_with(files, file_texts, {distinct[number] for number in numbers})


def _find_matching(snapshot: Snapshot, partitions: Sequence[Texts], where: str) -> set[int]:
    """Return the numbers of the partitions that match a condition.

    Raises:
        Unsupported: only Spark evaluates it.
    """
    by_name = {field.name: field for field in snapshot.schema}
    schema = StructType(tuple(by_name[name] for name in snapshot.partition_columns))
    test = plan_condition(plain_sql(where), schema)
    with as_unsupported(InvalidOption):
        matched = one_array(test(partition_table(schema, partitions)))
    return {number for number, is_match in enumerate(matched.to_pylist()) if is_match}


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
    fields = {field.name: field for field in snapshot.schema}
    values = [
        # Spark pads the constants beside a column of char(n), which it finds in its metadata.
        from_partition_text(F.col(str(at)), fields[name]).alias(name, metadata=dict(fields[name].metadata))
        for at, name in enumerate(snapshot.partition_columns)
    ]
    return raw.select(_NUMBER, *values)
