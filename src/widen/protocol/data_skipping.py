"""Data skipping: the selection of files by their partition values and statistics.

A file is skipped only if it certainly has no matching row.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import DataType, DecimalType, StructType, plain_name
from widen.protocol.column_mapping import physical_name, to_physical_path
from widen.protocol.file_statistics import Bounds, FileStatistics, partition_bounds
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue


@dataclass(frozen=True)
class FileSelection:
    """The files of a table that may have rows that match a predicate.

    Args:
        schema: The schema of the table, with logical names.
        partition_by: The logical names of the partition columns.
    """

    predicate: Predicate
    schema: StructType
    mode: str
    partition_by: tuple[str, ...]
    _physical: dict[Path, Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_everything(self) -> bool:
        """Whether no file can be skipped."""
        return isinstance(self.predicate, UnknownPredicate)

    @property
    def conditions(self) -> Iterator[Compare | IsNull]:
        """The conditions on single columns that the predicate is made of."""
        return _conditions(self.predicate)

    def can_match(self, values: Mapping[str, str | None], stats: str | None) -> bool:
        """Return whether a file may have a matching row.

        Args:
            values: The serialized partition values, by physical name.
        """
        return self.is_everything or self.can_be(self.predicate, values, stats, truth=True)

    def can_be(
        self, condition: Predicate, values: Mapping[str, str | None], stats: str | None = None, *, truth: bool
    ) -> bool:
        """Return whether a condition may be ``truth`` for some row of a file.

        Args:
            values: The serialized partition values, by physical name.
        """
        statistics: list[FileStatistics] = []

        def find_bounds(path: Path, data_type: DataType) -> Bounds:
            if path[0] in self.partition_by:
                return partition_bounds(values.get(self.to_physical(path)[0]), data_type)
            if not statistics:
                statistics.append(FileStatistics(stats))
            return statistics[0].bounds(self.to_physical(path), data_type)

        return condition.can_be(find_bounds, truth=truth)

    def to_physical(self, path: Path) -> Path:
        """Return the physical path of a column."""
        if path not in self._physical:
            self._physical[path] = to_physical_path(self.schema, path, self.mode)
        return self._physical[path]

    @property
    def physical_partitions(self) -> tuple[str, ...]:
        """The physical names of the partition columns, as in the log and in directory names."""
        columns = {column.name: column for column in self.schema}
        return tuple(physical_name(columns[name], self.mode) for name in self.partition_by)


def _conditions(predicate: Predicate) -> Iterator[Compare | IsNull]:
    match predicate:
        case And(left, right) | Or(left, right):
            yield from _conditions(left)
            yield from _conditions(right)
        case Not(inner):
            yield from _conditions(inner)
        case Compare() | IsNull():
            yield predicate


# Predicates on the rows of a file, evaluated on the bounds of its columns: can a row make it true, or false?
#
# A file is skipped only if certainly no row of it makes the predicate true. A condition that cannot be evaluated on
# bounds is an `UnknownPredicate`, which never skips a file, so that a read never loses a row.


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
        """Return whether the result may be ``truth`` for some row."""
        left, right = self.left.can_be(bounds_of, truth=truth), self.right.can_be(bounds_of, truth=truth)
        return (left and right) if truth else (left or right)


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of two conditions."""

    left: Predicate
    right: Predicate

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return whether the result may be ``truth`` for some row."""
        left, right = self.left.can_be(bounds_of, truth=truth), self.right.can_be(bounds_of, truth=truth)
        return (left or right) if truth else (left and right)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition; null stays null."""

    inner: Predicate

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return whether the result may be ``truth`` for some row."""
        return self.inner.can_be(bounds_of, truth=not truth)


@dataclass(frozen=True, slots=True)
class IsNull:
    """The condition that a column is null."""

    path: Path
    type: DataType

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return whether the result may be ``truth`` for some row."""
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
        """Return whether the result may be ``truth`` for some row."""
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
