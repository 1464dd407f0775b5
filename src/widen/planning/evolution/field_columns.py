"""The columns of one field: those that it has, those that it is to get, and those that are widened for it.

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
"""What an interval brings for one field."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """A column that a field has already, or the values of one of maps.

    Args:
        name: Of the column.
        leaf: What the arrays in it hold in the end.
        dim: How many arrays there are.
        above: The steps from the column to those arrays; none unless it is a column of maps.
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
        """Return what stands at the keys of its maps, as a column; None if no JSON object is such a map."""
        if not isinstance(self.leaf, MapType) or self.leaf.key != STRING:
            return None
        return FieldColumn(self.name, *leaf_and_dim(self.leaf.value), (*self.path[1:], VALUE))


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """A column that a field is to get.

    Args:
        leaf: What its arrays hold in the end; `RECORD` for records.
        dim: How many arrays it has.
        rule: The rule that asks for it.
        kinds: The kinds that it is for.
        is_plain: Whether it takes the name of the field.
    """

    leaf: DataType
    dim: int
    rule: str
    kinds: tuple[Kind, ...]
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class ColumnWidening:
    """A column that is widened in place for some kinds.

    Args:
        column: As it is before.
        leaf: What its arrays hold in the end, then.
        kinds: The kinds that it is for.
    """

    column: FieldColumn
    leaf: DataType
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """What one field needs.

    Args:
        widened: The columns to widen.
        wants: The columns to add, the one with the plain name first.
    """

    widened: tuple[ColumnWidening, ...] = ()
    wants: tuple[ColumnRequest, ...] = ()
