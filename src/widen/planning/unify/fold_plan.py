"""FOLD: move the values of an evolved column back into another column of its field, after the source is repaired.

Source: docs/evolution-rules.md#u3
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from widen.errors import FoldRefused
from widen.model.column_path import Path, find_field, format_path, is_struct_path, resolve
from widen.model.types import TIMESTAMP, TIMESTAMP_NTZ, DataType, Field, MapType, StructType
from widen.observe.kind import leaf_and_dim
from widen.planning.evolution.source_metadata import EVOLVED_FROM, SOURCE, source_key


class Rest(str, Enum):
    """What happens to values that do not convert exactly."""

    REFUSE = "refuse"
    """If there is any, the fold is refused."""
    KEEP = "keep"
    """They stay in their column; the others are moved."""
    LOSE = "lose"
    """They are discarded."""


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A fold of one column into another."""

    column: Path
    type: DataType
    into: Path
    into_type: DataType

    def __str__(self) -> str:
        return f"{format_path(self.column)} into {format_path(self.into)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """The result of a fold.

    Args:
        values: The number of rows with a value in the column.
        fits: How many of the values convert exactly, where the target column is null.
        duplicates: The number of values that the target column has already.
        samples: Samples of the other values.
        is_dropped: Whether the column is dropped if it is empty afterwards; else it stays, and is null.
    """

    fold: FoldPlan
    values: int
    fits: int
    duplicates: int
    samples: tuple[str, ...] = ()
    is_dropped: bool = False

    @property
    def lost(self) -> int:
        """The number of values that do not convert exactly, or whose row has another value in the target column."""
        return self.values - self.fits - self.duplicates

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object, without samples."""
        fold = self.fold
        places = {"column": format_path(fold.column), "into": format_path(fold.into), "type": fold.into_type.sql}
        counts = {"values": self.values, "fits": self.fits, "held": self.duplicates, "lost": self.lost}
        return {**places, **counts, "dropsColumn": self.is_dropped}


def plan_fold(schema: StructType, column: Path, into: Path | None = None) -> FoldPlan:
    """Plan the fold of a column.

    Args:
        into: Another column of its field; by default the one with the plain name.

    Raises:
        ColumnNotFound: a column does not exist.
        FoldRefused: the columns do not hold the same field, or their values cannot be converted one by one.
    """
    sibling = _LocatedColumn.at(schema, column)
    other = _LocatedColumn.at(schema, into) if into is not None else _plain_column(schema, sibling)
    reason = _refusal_reason(sibling, other)
    if reason:
        raise FoldRefused(column=format_path(sibling.path), into=format_path(other.path), reason=reason)
    return FoldPlan(sibling.path, sibling.field.type, other.path, other.field.type)


@dataclass(frozen=True, slots=True)
class _LocatedColumn:
    path: Path
    field: Field

    @classmethod
    def at(cls, schema: StructType, path: Path) -> _LocatedColumn:
        spelled, _ = resolve(schema, path)
        field = find_field(schema, spelled)
        if field is None or not is_struct_path(schema, spelled):
            reason = "a field inside an array or a map cannot be folded"
            raise FoldRefused(column=format_path(path), into="another", reason=reason)
        return cls(spelled, field)


def _plain_column(schema: StructType, sibling: _LocatedColumn) -> _LocatedColumn:
    parent = resolve(schema, sibling.path[:-1])[1]
    assert isinstance(parent, StructType)
    for item in parent:
        if _is_of_same_field(item, sibling.field) and EVOLVED_FROM not in item.metadata:
            return _LocatedColumn((*sibling.path[:-1], item.name), item)
    reason = "its field has no column with the plain name; name the target column"
    raise FoldRefused(column=format_path(sibling.path), into="another", reason=reason)


def _is_of_same_field(one: Field, other: Field) -> bool:
    return source_key(one) == source_key(other) and (SOURCE in one.metadata or SOURCE in other.metadata)


def _refusal_reason(sibling: _LocatedColumn, other: _LocatedColumn) -> str:
    if sibling.path == other.path:
        return "they are the same column"
    if sibling.path[:-1] != other.path[:-1] or not _is_of_same_field(sibling.field, other.field):
        return "they do not hold the same source field"
    for item in (sibling.field, other.field):
        if isinstance(leaf_and_dim(item.type)[0], (StructType, MapType)):
            return f"{item.name} holds records"
    if leaf_and_dim(sibling.field.type)[0] in (TIMESTAMP, TIMESTAMP_NTZ):
        return f"{sibling.field.name} holds timestamps, which no narrower type holds"
    return ""
