"""Predicates on the rows of a file, evaluated on the bounds of its columns: can a row make it true, or false?

A file is skipped only if certainly no row of it makes the predicate true. A condition that cannot be evaluated on
bounds is an `UnknownPredicate`, which never skips a file, so that a read never loses a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import DataType, DecimalType, plain_name
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue
from widen.protocol.skipping.file_statistics import Bounds

BoundsLookup: TypeAlias = Callable[[Path, DataType], Bounds]
"""Returns the bounds of a column, given its path and its current type."""

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""Every comparison operator, with the one that is true when it is false."""


@dataclass(frozen=True, slots=True)
class UnknownPredicate:
    """A condition that cannot be evaluated on bounds."""

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return True: any result is possible."""
        return True


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of two conditions."""

    left: Predicate
    right: Predicate

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether the result may be ``truth`` for some row."""
        left, right = self.left.can_be(bounds_of, truth=truth), self.right.can_be(bounds_of, truth=truth)
        return (left and right) if truth else (left or right)


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of two conditions."""

    left: Predicate
    right: Predicate

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether the result may be ``truth`` for some row."""
        left, right = self.left.can_be(bounds_of, truth=truth), self.right.can_be(bounds_of, truth=truth)
        return (left or right) if truth else (left and right)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition; null stays null."""

    inner: Predicate

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether the result may be ``truth`` for some row."""
        return self.inner.can_be(bounds_of, truth=not truth)


@dataclass(frozen=True, slots=True)
class IsNull:
    """The condition that a column is null."""

    path: Path
    type: DataType

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether the result may be ``truth`` for some row."""
        bounds = bounds_of(self.path, self.type)
        return bounds.may_be_null if truth else bounds.may_be_value


@dataclass(frozen=True, slots=True)
class Compare:
    """The comparison of a column with a constant.

    Args:
        path: The path of the column, spelled as in the schema.
        operator: A key of `NEGATED`.
        value: The constant, as `to_comparable` returns it.
    """

    path: Path
    type: DataType
    operator: str
    value: Scalar

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether the result may be ``truth`` for some row."""
        bounds = bounds_of(self.path, self.type)
        return bounds.may_be_value and _can_compare(
            bounds, self.operator if truth else NEGATED[self.operator], self.value
        )


Predicate: TypeAlias = UnknownPredicate | And | Or | Not | IsNull | Compare


def to_comparable(value: Scalar, data_type: DataType) -> Scalar | UnknownValue:
    """Return a constant in the type in which Spark compares it with a column, or `UNKNOWN` if that is not certain.

    The comparison of a string with another type, or of a timestamp without a zone, depends on the session.

    Source: Spark's type coercion
    """
    name = plain_name(data_type)
    if isinstance(value, bool) or name == "boolean":
        return value if isinstance(value, bool) and name == "boolean" else UNKNOWN
    if name in ("float", "double"):
        return float(value) if isinstance(value, (int, float, Decimal)) and _is_number(value) else UNKNOWN
    if name in ("byte", "short", "integer", "long", "decimal"):
        return _exact(value, data_type)
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    kind = _KINDS.get(name)
    fits = kind is type(value) and zoned == (name == "timestamp")
    return value if fits else UNKNOWN


def _exact(value: Scalar, data_type: DataType) -> Scalar | UnknownValue:
    """Return a number that Spark compares exactly, without rounding the column to double first.

    An integer out of range for long is `UNKNOWN`: Spark replaces such a comparison by a constant, also for null.
    """
    if not isinstance(value, (int, Decimal)):
        return UNKNOWN
    if not isinstance(data_type, DecimalType) and not _LONGS[0] <= value <= _LONGS[1]:
        return UNKNOWN
    number = Decimal(value)
    scale = max(-int(number.as_tuple().exponent), 0) if number.is_finite() else 99
    digits = max(number.adjusted() + 1, 1) if number.is_finite() else 99
    column = (data_type.precision - data_type.scale, data_type.scale) if isinstance(data_type, DecimalType) else (20, 0)
    return value if max(digits, column[0]) + max(scale, column[1]) <= _MAX_PRECISION else UNKNOWN


_MAX_PRECISION = 38
_LONGS = (-(2**63), 2**63 - 1)


def _is_number(value: float | Decimal) -> bool:
    return value == value


def _can_compare(bounds: Bounds, operator: str, value: Scalar) -> bool:
    if bounds.may_be_nan and operator in (">", ">=", "<>"):
        return True
    less = bounds.low is UNKNOWN or bounds.low < value  # type: ignore[operator]
    greater = bounds.high is UNKNOWN or bounds.high > value  # type: ignore[operator]
    at_most = bounds.low is UNKNOWN or bounds.low <= value  # type: ignore[operator]
    at_least = bounds.high is UNKNOWN or bounds.high >= value  # type: ignore[operator]
    return {
        "=": at_most and at_least,
        "<>": less or greater,
        "<": less,
        "<=": at_most,
        ">": greater,
        ">=": at_least,
    }[operator]


_KINDS: Mapping[str, type] = {"string": str, "date": date, "timestamp": datetime, "timestamp_ntz": datetime}
