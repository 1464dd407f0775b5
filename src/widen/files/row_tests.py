"""Conditions on rows, evaluated with Arrow as Spark evaluates them: true, false or null for each row.

What Arrow would evaluate in another way raises `Unsupported`, so that Spark does it.

Source: Spark's comparison of values, and its logic of three values
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.files.arrow_types import to_arrow
from widen.files.data_reader import find_leaf
from widen.model.types import plain_name
from widen.protocol.data_skipping import (
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
from widen.spark.engine import Unsupported

COMPARE: Mapping[str, Callable[[Any, Any], pa.ChunkedArray]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLOATING = frozenset({"float", "double"})

RowTest: TypeAlias = Callable[[pa.Table], Any]
"""Returns for each row whether it fulfils a condition: true, false or null."""


def leave_to_spark(part: Any) -> RowTest:
    """Refuse a part of a condition that was not bound."""
    raise Unsupported("the condition is not a comparison of columns with constants")


def plan_test(predicate: Predicate, test_part: Callable[[Any], RowTest] = leave_to_spark) -> RowTest:
    """Return the test of a condition on rows that have its columns; names are compared without regard to case.

    Args:
        test_part: Returns the test of a part that is not bound, or raises `Unsupported`.
    """
    _ensure_exact(predicate, test_part)
    return partial(_evaluate, predicate, test_part)


def _ensure_exact(predicate: Predicate, test_part: Callable[[Any], RowTest]) -> None:
    match predicate:
        case And(left, right) | Or(left, right):
            _ensure_exact(left, test_part)
            _ensure_exact(right, test_part)
        case Not(inner):
            _ensure_exact(inner, test_part)
        case UnknownPredicate(part):
            test_part(part)


def _evaluate(predicate: Predicate, test_part: Callable[[Any], RowTest], rows: pa.Table) -> pa.ChunkedArray:
    match predicate:
        case And(left, right):
            return pc.and_kleene(_evaluate(left, test_part, rows), _evaluate(right, test_part, rows))
        case Or(left, right):
            return pc.or_kleene(_evaluate(left, test_part, rows), _evaluate(right, test_part, rows))
        case Not(inner):
            return pc.invert(_evaluate(inner, test_part, rows))
        case IsNull(path, _):
            return pc.is_null(find_leaf(rows, path))
        case ConstantPredicate(result):
            return pa.chunked_array([pa.repeat(pa.scalar(result, pa.bool_()), len(rows))])
        case ConstantUnlessNull(path, _, result):
            return pc.if_else(pc.is_valid(find_leaf(rows, path)), pa.scalar(result, pa.bool_()), None)
        case Compare(path, data_type, operator, value) if plain_name(data_type) not in _FLOATING:
            constant = pa.scalar(value, to_arrow(data_type))
            return COMPARE[operator](find_leaf(rows, path).cast(constant.type), constant)
        case Compare(path, _, operator, value):
            # Spark compares floats as doubles, and NaN is above every number for it.
            doubles = find_leaf(rows, path).cast(pa.float64())
            result = COMPARE[operator](doubles, pa.scalar(value, pa.float64()))
            return pc.or_(result, pc.is_nan(doubles)) if operator in (">", ">=") else result
        case UnknownPredicate(part):
            return test_part(part)(rows)
