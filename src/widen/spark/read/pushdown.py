"""Filters on fields of rebuilt structs, in terms of the columns of the files: Spark itself cannot push those.

They are added to the caller's own condition, and only let Spark skip row groups and rows that do not match. So old
files are skipped like new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import Path
from widen.model.types import DataType, quote_name
from widen.protocol.partition_values import Scalar
from widen.protocol.skipping.predicate import NEGATED, And, Compare, IsNull, Not, Or, Predicate, UnknownPredicate
from widen.spark.read.projection import DataColumn, data_columns, path_in_files
from widen.spark.read.scan_groups import ScanGroup, ScanPlan
from widen.spark.spark_types import DataFrame, type_to_spark

_OPERATORS: Mapping[str, Callable[[Column, Column], Column]] = {
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
    paths = (condition.path for condition in scan.conditions)
    if not any(len(path) > 1 and path[0] in columns and columns[path[0]].is_rebuilt for path in paths):
        return frame
    condition = _push_predicate(scan, group, columns, scan.predicate, truth=True)
    return frame if condition is None else frame.filter(condition)


def _push_predicate(
    scan: ScanPlan, group: ScanGroup, columns: Mapping[str, DataColumn], predicate: Predicate, *, truth: bool
) -> Column | None:
    """Return a condition that every row fulfils that makes a predicate ``truth``; None if nothing can be derived."""
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
            column = _column(scan, group, columns, path, data_type)
            return column if column is None else column.isNull() if truth else column.isNotNull()
        case Compare(path, data_type, sign, value):
            column = _column(scan, group, columns, path, data_type)
            return column if column is None else _OPERATORS[sign if truth else NEGATED[sign]](column, _literal(value))
        case UnknownPredicate():
            return None


def _column(
    scan: ScanPlan, group: ScanGroup, columns: Mapping[str, DataColumn], path: Path, data_type: DataType
) -> Column | None:
    """Return a leaf of the files, or None if they do not contain it or filters on it must not be pushed.

    A cast to the leaf's own type changes nothing. Spark unwraps the cast from an older type by its own rules.
    """
    if path[0] not in columns:
        return None
    stored = path_in_files(scan, group, path)
    if stored[1:] in columns[path[0]].guarded:
        return None
    return F.col(".".join(map(quote_name, stored))).cast(type_to_spark(data_type))


def _literal(value: Scalar) -> Column:
    if isinstance(value, datetime) and value.tzinfo is None:
        return F.lit(str(value)).cast("timestamp_ntz")
    # PySpark has no literal for an integer of more than 64 bits.
    return F.lit(Decimal(value) if isinstance(value, int) and value not in _LONGS else value)
