"""Which files may have rows with some keys: a predicate on the smallest and the largest of the keys.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import reduce

from pyspark.sql import functions as F

from widen.model.types import BYTE, DATE, INTEGER, LONG, SHORT, STRING, DataType, DecimalType, Field
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue
from widen.protocol.skipping.predicate import And, Compare, IsNull, Or, Predicate, UnknownPredicate, to_comparable
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import Column, DataFrame, from_spark

_INTEGERS = (BYTE, SHORT, INTEGER, LONG)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def key_predicate(columns: Sequence[Field], keys: DataFrame) -> Predicate:
    """Return a predicate that every row with one of the keys fulfils.

    A key column takes part if its values and those of the keys have one order, which Python has too.

    Args:
        keys: The keys, a column for each key column, in their order.
    """
    pairs = zip(columns, from_spark(keys.schema), strict=True)
    ordered = [(field, key) for field, key in pairs if _has_one_order(field.type, key.type)]
    if not ordered:
        return UnknownPredicate()
    bounds = [_bounds(key).alias(f"key{number}") for number, (_, key) in enumerate(ordered)]
    with translate_spark_errors():
        (row,) = keys.agg(*bounds).collect()
    predicates = (_within(field, *key_bounds) for (field, _), key_bounds in zip(ordered, row, strict=True))
    return reduce(And, predicates)


def _has_one_order(column: DataType, key: DataType) -> bool:
    """Tell whether Spark compares two types as they are, or as integers."""
    if column in _INTEGERS:
        return key in _INTEGERS
    return column == key and (column in (DATE, STRING) or isinstance(column, DecimalType))


def _bounds(key: Field) -> Column:
    """Return the smallest key, the largest, and whether a key is null; dates as days since the epoch."""
    value = F.col(key.name)
    # Days since 1970, because Python has no dates past the year 9999.
    value = F.unix_date(value) if key.type == DATE else value
    return F.struct(F.min(value), F.max(value), F.max(value.isNull()))


def _within(field: Field, low: Scalar | None, high: Scalar | None, has_null: bool | None) -> Predicate:
    """Return the predicate of one column; without any key, one that files without null do not fulfil."""
    path, is_null = (field.name,), IsNull((field.name,), field.type)
    if low is None or high is None:
        return is_null
    between: Predicate = UnknownPredicate()
    constants = [_to_constant(each, field.type) for each in (low, high)]
    first, last = constants
    if not isinstance(first, UnknownValue) and not isinstance(last, UnknownValue):
        between = And(Compare(path, field.type, ">=", first), Compare(path, field.type, "<=", last))
    return Or(is_null, between) if has_null else between


def _to_constant(value: Scalar, data_type: DataType) -> Scalar | UnknownValue:
    if data_type != DATE or not isinstance(value, int):
        return to_comparable(value, data_type)
    day = value + _EPOCH_DAY
    return date.fromordinal(day) if date.min.toordinal() <= day <= date.max.toordinal() else UNKNOWN
