"""Predicates over the rows of a file, judged by what is known of its columns: can a row be true, can one be false?

A file is skipped only if certainly no row of it makes the predicate true. What is not understood is `UnknownPredicate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import DataType, DecimalType
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue
from widen.protocol.skipping.file_statistics import Bounds

BoundsLookup: TypeAlias = Callable[[Path, DataType], Bounds]
"""Gives what is known of a column, by its path and current type."""

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""Every comparison, with the one that is true where it is false."""


@dataclass(frozen=True, slots=True)
class UnknownPredicate:
    """A condition that is not understood."""

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it that; it always may."""
        return True


@dataclass(frozen=True, slots=True)
class And:
    """Both conditions."""

    left: Predicate
    right: Predicate

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it true, or false."""
        left, right = self.left.can_be(of, truth=truth), self.right.can_be(of, truth=truth)
        return (left and right) if truth else (left or right)


@dataclass(frozen=True, slots=True)
class Or:
    """Either condition."""

    left: Predicate
    right: Predicate

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it true, or false."""
        left, right = self.left.can_be(of, truth=truth), self.right.can_be(of, truth=truth)
        return (left or right) if truth else (left and right)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    inner: Predicate

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it true, or false."""
        return self.inner.can_be(of, truth=not truth)


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null."""

    path: Path
    type: DataType

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it true, or false."""
        bounds = of(self.path, self.type)
        return bounds.may_be_null if truth else bounds.may_be_value


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a constant.

    Args:
        path: The column, spelled as in the schema.
        type: Its current type.
        sign: One of the keys of `NEGATED`.
        value: The constant, of the kind that `to_comparable` gives.
    """

    path: Path
    type: DataType
    sign: str
    value: Scalar

    def can_be(self, of: BoundsLookup, *, truth: bool) -> bool:
        """Tell whether some row may make it true, or false."""
        bounds = of(self.path, self.type)
        return bounds.may_be_value and _may_hold(bounds, self.sign if truth else NEGATED[self.sign], self.value)


Predicate: TypeAlias = UnknownPredicate | And | Or | Not | IsNull | Compare


def can_match(predicate: Predicate, of: BoundsLookup) -> bool:
    """Tell whether some row of a file may make the predicate true.

    Args:
        predicate: The condition.
        of: What is known of the columns of that file.
    """
    return predicate.can_be(of, truth=True)


def to_comparable(value: Scalar, data_type: DataType) -> Scalar | UnknownValue:
    """Return a constant in the kind in which Spark compares it with a column, or `UNKNOWN` where that is in doubt.

    Source: Spark's type coercion; a text against another type, or a time without a zone, depends on the session.
    """
    name = "decimal" if isinstance(data_type, DecimalType) else str(data_type)
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
    """Return a number that is compared digit by digit; a double would round the column first.

    A whole number that no column holds is left to Spark, which finds it greater or less than null too.
    """
    if not isinstance(value, (int, Decimal)):
        return UNKNOWN
    if not isinstance(data_type, DecimalType) and not _LONGS[0] <= value <= _LONGS[1]:
        return UNKNOWN
    number = Decimal(value)
    scale = max(-int(number.as_tuple().exponent), 0) if number.is_finite() else 99
    digits = max(number.adjusted() + 1, 1) if number.is_finite() else 99
    own = (data_type.precision - data_type.scale, data_type.scale) if isinstance(data_type, DecimalType) else (20, 0)
    return value if max(digits, own[0]) + max(scale, own[1]) <= _MAX_PRECISION else UNKNOWN


_MAX_PRECISION = 38
_LONGS = (-(2**63), 2**63 - 1)


def _is_number(value: float | Decimal) -> bool:
    return value == value


def _may_hold(bounds: Bounds, sign: str, value: Scalar) -> bool:
    if bounds.may_be_nan and sign in (">", ">=", "<>"):
        return True
    above = bounds.low is UNKNOWN or bounds.low < value  # type: ignore[operator]
    below = bounds.high is UNKNOWN or bounds.high > value  # type: ignore[operator]
    reaches_down = bounds.low is UNKNOWN or bounds.low <= value  # type: ignore[operator]
    reaches_up = bounds.high is UNKNOWN or bounds.high >= value  # type: ignore[operator]
    return {
        "=": reaches_down and reaches_up,
        "<>": above or below,
        "<": above,
        "<=": reaches_down,
        ">": below,
        ">=": reaches_up,
    }[sign]


_KINDS: Mapping[str, type] = {"string": str, "date": date, "timestamp": datetime, "timestamp_ntz": datetime}
