"""Bringing a column that evolved back into another one of its field, after the source is repaired.

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
    """What becomes of values that do not convert exactly."""

    REFUSE = "refuse"
    """If there is one, nothing is done."""
    KEEP = "keep"
    """They stay where they are; the others are brought back."""
    LOSE = "lose"
    """They are given up."""


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A column that goes back into another one.

    Args:
        column: Where it stands.
        type: Its type.
        into: Where the other one stands.
        into_type: The type of that.
    """

    column: Path
    type: DataType
    into: Path
    into_type: DataType

    def __str__(self) -> str:
        return f"{format_path(self.column)} into {format_path(self.into)}"


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What a fold comes to.

    Args:
        fold: What goes where.
        values: How many rows have a value in the column.
        fits: How many of those values convert exactly, and the other column has none.
        held: How many the other column holds already.
        samples: Some of the others.
        is_dropped: Whether the column goes if nothing is left in it; else it stays, and is null.
    """

    fold: FoldPlan
    values: int
    fits: int
    held: int
    samples: tuple[str, ...] = ()
    is_dropped: bool = False

    @property
    def lost(self) -> int:
        """How many values do not convert exactly, or stand beside another one."""
        return self.values - self.fits - self.held

    def to_value(self) -> dict[str, Any]:
        """Return what the fold comes to as a JSON object, without samples."""
        fold = self.fold
        places = {"column": format_path(fold.column), "into": format_path(fold.into), "type": fold.into_type.sql}
        counts = {"values": self.values, "fits": self.fits, "held": self.held, "lost": self.lost}
        return {**places, **counts, "dropsColumn": self.is_dropped}


def plan_fold(schema: StructType, column: Path, into: Path | None = None) -> FoldPlan:
    """Return where a column goes.

    Args:
        schema: Of the table, with its metadata.
        column: The column that evolved.
        into: Another one of its field; by default the one with the plain name.

    Raises:
        ColumnNotFound: there is no such column.
        FoldRefused: the two are not of one field, or their values cannot be converted one by one.
    """
    found = _LocatedColumn.at(schema, column)
    other = _LocatedColumn.at(schema, into) if into is not None else _plain_column(schema, found)
    reason = _refusal_reason(found, other)
    if reason:
        raise FoldRefused(column=format_path(found.path), into=format_path(other.path), reason=reason)
    return FoldPlan(found.path, found.field.type, other.path, other.field.type)


@dataclass(frozen=True, slots=True)
class _LocatedColumn:
    path: Path
    field: Field

    @classmethod
    def at(cls, schema: StructType, path: Path) -> _LocatedColumn:
        spelled, _ = resolve(schema, path)
        field = find_field(schema, spelled)
        if field is None or not is_struct_path(schema, spelled):
            reason = "what is inside an array or a map is not a column of its own"
            raise FoldRefused(column=format_path(path), into="another", reason=reason)
        return cls(spelled, field)


def _plain_column(schema: StructType, found: _LocatedColumn) -> _LocatedColumn:
    parent = resolve(schema, found.path[:-1])[1]
    assert isinstance(parent, StructType)
    for item in parent:
        if _is_of_same_field(item, found.field) and EVOLVED_FROM not in item.metadata:
            return _LocatedColumn((*found.path[:-1], item.name), item)
    reason = "its field has no column with the plain name; say which one is meant"
    raise FoldRefused(column=format_path(found.path), into="another", reason=reason)


def _is_of_same_field(one: Field, other: Field) -> bool:
    return source_key(one) == source_key(other) and (SOURCE in one.metadata or SOURCE in other.metadata)


def _refusal_reason(found: _LocatedColumn, other: _LocatedColumn) -> str:
    if found.path == other.path:
        return "they are the same column"
    if found.path[:-1] != other.path[:-1] or not _is_of_same_field(found.field, other.field):
        return "they do not hold the same source field"
    for item in (found.field, other.field):
        if isinstance(leaf_and_dim(item.type)[0], (StructType, MapType)):
            return f"{item.name} holds records"
    if leaf_and_dim(found.field.type)[0] in (TIMESTAMP, TIMESTAMP_NTZ):
        return f"{found.field.name} holds timestamps, which no narrower type holds"
    return ""
