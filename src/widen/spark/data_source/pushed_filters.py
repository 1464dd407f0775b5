"""Filters that Spark pushes to a Python data source, as predicates on the rows of files.

A filter that is not known exactly skips nothing.

Source: Spark's Python Data Source API, `pushFilters`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from widen.model.column_path import Path
from widen.model.types import DataType, StructType
from widen.protocol.partition_values import UnknownValue
from widen.protocol.skipping.predicate import (
    Compare,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
    to_comparable,
)

_UNKNOWN = UnknownPredicate()


def to_predicate(pushed: Any, schema: StructType) -> Predicate:
    """Return a filter of Spark as a predicate.

    Args:
        pushed: An instance of a subclass of ``pyspark.sql.datasource.Filter``, which Spark 4.0 does not have.
    """
    name = type(pushed).__name__
    if name == "Not":
        return Not(to_predicate(pushed.child, schema))
    translate = _FILTERS.get(name)
    column = _find(schema, pushed.attribute) if translate else None
    return translate(*column, pushed) if translate and column else _UNKNOWN


def _find(schema: StructType, names: Sequence[str]) -> tuple[Path, DataType] | None:
    path: Path = ()
    inner: DataType = schema
    for name in names:
        field = next((field for field in inner if field.name == name), None) if isinstance(inner, StructType) else None
        if field is None:
            return None
        path, inner = (*path, name), field.type
    return path, inner


def _compare(path: Path, data_type: DataType, operator: str, value: Any) -> Predicate:
    if value is None:
        return _UNKNOWN
    comparable = to_comparable(value, data_type)
    return _UNKNOWN if isinstance(comparable, UnknownValue) else Compare(path, data_type, operator, comparable)


def _comparison(operator: str) -> Callable[[Path, DataType, Any], Predicate]:
    return lambda path, data_type, pushed: _compare(path, data_type, operator, pushed.value)


def _equal_or_null(path: Path, data_type: DataType, pushed: Any) -> Predicate:
    # A negated comparison that is null-safe is true for nulls, which a plain one is not.
    return IsNull(path, data_type) if pushed.value is None else _UNKNOWN


def _in(path: Path, data_type: DataType, pushed: Any) -> Predicate:
    parts = [_compare(path, data_type, "=", value) for value in pushed.value]
    return reduce(Or, parts) if parts else _UNKNOWN


_FILTERS: Mapping[str, Callable[[Path, DataType, Any], Predicate]] = {
    "EqualTo": _comparison("="),
    "EqualNullSafe": _equal_or_null,
    "GreaterThan": _comparison(">"),
    "GreaterThanOrEqual": _comparison(">="),
    "LessThan": _comparison("<"),
    "LessThanOrEqual": _comparison("<="),
    "In": _in,
    "IsNull": lambda path, data_type, _: IsNull(path, data_type),
    "IsNotNull": lambda path, data_type, _: Not(IsNull(path, data_type)),
}
"""The filters that are known, by the names of their classes."""
