"""The columns of one field: existing ones, requested ones, and those to widen.

Source: docs/evolution-rules.md#algorithm, #d1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import STRING, DataType, MapType
from widen.observe.kind import Kind, leaf_and_dim
from widen.observe.observation import KindObservation

Kinds: TypeAlias = Mapping[Kind, KindObservation]
"""The kinds of one field in an interval, with what is known of their values."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """An existing column of a field, or the values of its maps.

    Args:
        leaf: The type inside its arrays.
        dim: The number of nested arrays.
        above: The steps from the column to the arrays; empty unless it is a column of maps.
    """

    name: str
    leaf: DataType
    dim: int
    above: Path = ()

    @property
    def path(self) -> Path:
        """The steps from the struct to the leaf."""
        return (self.name, *self.above, *[ELEMENT] * self.dim)

    def values(self) -> FieldColumn | None:
        """Return the values of its maps as a column; None if it is not a map with string keys."""
        if not isinstance(self.leaf, MapType) or self.leaf.key != STRING:
            return None
        return FieldColumn(self.name, *leaf_and_dim(self.leaf.value), (*self.path[1:], VALUE))


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """A column to add for a field.

    Args:
        leaf: The type inside its arrays; `RECORD` for records.
        is_plain: Whether it gets the plain name of the field.
    """

    leaf: DataType
    dim: int
    rule: str
    kinds: tuple[Kind, ...]
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class ColumnWidening:
    """A column to widen in place."""

    column: FieldColumn
    leaf: DataType
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The changes for one field.

    Args:
        requests: The columns to add, the one with the plain name first.
    """

    widened: tuple[ColumnWidening, ...] = ()
    requests: tuple[ColumnRequest, ...] = ()
