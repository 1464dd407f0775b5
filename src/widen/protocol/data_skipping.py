"""Data skipping: the selection of files by their partition values and statistics.

A file is skipped only if it certainly has no matching row.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any, TypeAlias

from widen.model.column_path import Path
from widen.model.types import DataType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import physical_name, to_physical_path
from widen.protocol.column_metadata import char_lengths
from widen.protocol.file_statistics import Bounds, FileStatistics, partition_bounds
from widen.protocol.partition_values import UNKNOWN, Scalar


@dataclass(frozen=True)
class FileSelection:
    """The files of a table that may have rows that match a predicate."""

    predicate: Predicate
    schema: StructType
    mode: str
    partition_by: tuple[str, ...]
    _physical: dict[Path, Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_everything(self) -> bool:
        return isinstance(self.predicate, UnknownPredicate)

    @cached_property
    def char_lengths(self) -> Mapping[Path, int]:
        """The lengths that texts of char(n) columns are padded to, by path."""
        return char_lengths(self.schema)

    @property
    def conditions(self) -> Iterator[ColumnCondition]:
        """The conditions on single columns that the predicate is made of."""
        return column_conditions(self.predicate)

    def can_match(self, values: Mapping[str, str | None], stats: str | None) -> bool:
        """Return whether a file may have a matching row."""
        return self.is_everything or self.can_be(self.predicate, values, stats, truth=True)

    def can_be(
        self, condition: Predicate, values: Mapping[str, str | None], stats: str | None = None, *, truth: bool
    ) -> bool:
        """Return whether a condition may be ``truth`` for some row of a file."""
        statistics: list[FileStatistics] = []

        def find_bounds(path: Path, data_type: DataType) -> Bounds:
            length = self.char_lengths.get(path)
            if path[0] in self.partition_by:
                text = values.get(self.to_physical(path)[0])
                return partition_bounds(text.ljust(length) if text and length else text, data_type)
            if not statistics:
                statistics.append(FileStatistics(stats))
            found = statistics[0].bounds(self.to_physical(path), data_type)
            # Padded texts may be in another order than the texts in files.
            return found if length is None else replace(found, low=UNKNOWN, high=UNKNOWN)

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


def column_conditions(predicate: Predicate) -> Iterator[ColumnCondition]:
    """Yield the conditions on single columns that a predicate is made of."""
    match predicate:
        case And(left, right) | Or(left, right):
            yield from column_conditions(left)
            yield from column_conditions(right)
        case Not(inner):
            yield from column_conditions(inner)
        case Compare() | IsNull() | ConstantUnlessNull():
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
    """A condition that cannot be evaluated on bounds.

    Args:
        part: What of a condition it stands for, as the parser has it, if rows may tell whether it holds.
    """

    part: Any = field(default=None, compare=False, repr=False)

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
        value: The constant, a value of the type; see `widen.protocol.comparison`.
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


@dataclass(frozen=True, slots=True)
class ConstantUnlessNull:
    """A comparison that has the same result for all values of a column; for null it is null.

    Args:
        result: The result; None if it is null for values as well.
    """

    path: Path
    type: DataType
    result: bool | None

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return whether the result may be ``truth`` for some row."""
        return self.result is truth and bounds_of(self.path, self.type).may_be_value


@dataclass(frozen=True, slots=True)
class ConstantPredicate:
    """A condition with the same result for all rows, such as a comparison with a column that does not exist yet.

    Args:
        result: The result; None for null.
    """

    result: bool | None

    def can_be(self, bounds_of: BoundsLookup, *, truth: bool) -> bool:
        """Return whether the result is ``truth``."""
        return self.result is truth


Predicate: TypeAlias = UnknownPredicate | And | Or | Not | IsNull | Compare | ConstantUnlessNull | ConstantPredicate
ColumnCondition: TypeAlias = IsNull | Compare | ConstantUnlessNull
"""A condition on one column."""


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
