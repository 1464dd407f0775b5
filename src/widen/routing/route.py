"""Routes: the columns that the values of each source field go to, from the schema of the table alone.

Source: docs/evolution-rules.md#u14, #u16, #d4, #d9
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import DOUBLE, STRING, DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, TIMESTAMP_WORD, Kind, leaf_and_dim, word_of
from widen.planning.evolution.policy import EpochUnit, FixedColumn, Numbers, Policy
from widen.planning.evolution.source_metadata import role_of, source_key
from widen.planning.evolution.type_lattice import (
    can_route,
    column_sort_key,
    is_boolean_as_number,
    is_epoch,
    rounded_kinds,
)


@dataclass(frozen=True, slots=True)
class ColumnSlot:
    """A column that values of a source field go to.

    Args:
        name: Name of the column in its struct.
        word: Kind word of the leaf type; also ``timestamp_ntz`` and ``map``.
        dim: Number of arrays around the leaf type.
        record: For records: the route of their fields.
        entries: For maps: the slot of the values, which has the name of the column.
        epoch_unit: For timestamps: unit of integers, if the policy names one.
        rounds: For doubles: the kinds whose values are rounded where the column cannot hold them.
    """

    name: str
    word: str
    dim: int
    type: DataType
    record: RecordRoute | None = None
    entries: ColumnSlot | None = None
    epoch_unit: EpochUnit | None = None
    guard: FixedColumn | None = None
    keeps_booleans: bool = False
    rounds: frozenset[str] = frozenset()


RecordRoute: TypeAlias = dict[str, tuple[ColumnSlot, ...]]
"""For each key of a record its columns in order: records first, then few arrays, then narrow types."""


def build_routes(schema: StructType, policy: Policy | None = None) -> RecordRoute:
    """Return the route of a record, at all depths.

    Columns without a source field are left out, and so are columns whose type no value has, such as variant.

    Source: docs/evolution-rules.md#u14, #d9
    """
    source_columns = StructType(tuple(field for field in schema if role_of(field) is None))
    return _RouteBuilder(policy or Policy()).record(source_columns, (), ())


def routes_kind(slot: ColumnSlot, kind: Kind) -> bool:
    """Tell whether the values of a kind go to a column: it has the same or a wider type, and at least as many arrays.

    Values that the column cannot hold exactly are null in it and stand in another column.

    Source: docs/evolution-rules.md#u14, #u16, #d4
    """
    return kind.dim <= slot.dim and can_route(slot.type, kind.word) and not is_excluded_kind(slot, kind.word)


def is_excluded_kind(slot: ColumnSlot, kind_word: str) -> bool:
    """Tell whether a column takes no values of a kind although its type could hold them.

    Source: docs/evolution-rules.md#d18
    """
    return slot.keeps_booleans and is_boolean_as_number(slot.type, kind_word)


def stores_kind(slot: ColumnSlot, kind_word: str) -> bool:
    """Tell whether a column that holds a value of a kind is enough, so that the value needs no other column.

    A timestamp is not enough for a long, which another column or the rescue column keeps. Only a fixed column may hold
    it alone, if the policy names its unit: it then converts back.

    Source: docs/evolution-rules.md#u16, #d5, #d12
    """
    has_known_unit = slot.guard is not None and slot.epoch_unit is not None
    return not is_excluded_kind(slot, kind_word) and (has_known_unit or not is_epoch(slot.type, kind_word))


@dataclass(frozen=True, slots=True)
class _RouteBuilder:
    """Builds routes by the policy of single fields and columns."""

    policy: Policy

    def record(self, struct: StructType, path: Path, source: Path) -> RecordRoute:
        """Return the route of the records in a struct, given its path and that of its source field."""
        slots_by_key: dict[str, list[ColumnSlot]] = {}
        for field in struct:
            key = source_key(field)
            slot = self._slot(field.name, field.type, (*path, field.name), (*source, key))
            if slot is not None:
                slots_by_key.setdefault(key, []).append(slot)
        return {
            key: tuple(map(self._with_rounding(slots), sorted(slots, key=_slot_order)))
            for key, slots in slots_by_key.items()
        }

    def _with_rounding(self, slots: Sequence[ColumnSlot]) -> Callable[[ColumnSlot], ColumnSlot]:
        """Return a function that lets a column of doubles round, if the policy and the other columns allow it."""
        rounds = rounded_kinds(slot.type for slot in slots if self.policy.numbers is Numbers.DOUBLE)
        return lambda slot: replace(slot, rounds=rounds) if rounds and slot.type == DOUBLE else slot

    def _slot(self, name: str, data_type: DataType, path: Path, source: Path) -> ColumnSlot | None:
        leaf, dim = leaf_and_dim(data_type)
        inside = (*path, *[ELEMENT] * dim)
        guard = self.policy.fixed_columns.get(path)
        match leaf:
            case StructType():
                record = self.record(leaf, inside, source)
                return ColumnSlot(name, word_of(leaf) or "", dim, leaf, record, guard=guard)
            case MapType(key, value):
                entries = self._slot(name, value, (*inside, VALUE), source) if key == STRING else None
                return entries and ColumnSlot(name, MAP_WORD, dim, leaf, entries=entries, guard=guard)
        word = word_of(leaf)
        if word is None:
            return None
        keeps_booleans = self.policy.keeps_booleans(source)
        return ColumnSlot(name, word, dim, leaf, None, None, self._unit(word, source), guard, keeps_booleans)

    def _unit(self, word: str, source: Path) -> EpochUnit | None:
        return self.policy.epoch_units.get(source) if word == TIMESTAMP_WORD else None


def _slot_order(slot: ColumnSlot) -> tuple[Any, ...]:
    return (*column_sort_key(slot.type, slot.dim), *(_slot_order(slot.entries) if slot.entries else ()))
