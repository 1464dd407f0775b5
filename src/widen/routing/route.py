"""Routes: which columns the values of each source field go to, read off the schema of the table alone.

Source: docs/evolution-rules.md#u14, #u16, #d4, #d9
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import STRING, DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, TIMESTAMP_WORD, Kind, leaf_and_dim, word_of
from widen.planning.evolution.policy import EpochUnit, FixedColumn, Policy
from widen.planning.evolution.source_metadata import role_of, source_key
from widen.planning.evolution.type_lattice import can_route, column_sort_key, is_boolean_as_number


@dataclass(frozen=True, slots=True)
class ColumnSlot:
    """A column that values of a source field go to.

    Args:
        name: The name of the column in its struct.
        word: The word of its type; ``timestamp_ntz`` and ``map`` too.
        dim: How many arrays the column has.
        type: What the arrays hold in the end.
        record: For records: where their sub-fields go.
        entries: For maps: where what stands at their keys goes; it has the name of the column.
        epoch_unit: For timestamps: what whole numbers count, if that was said.
        guard: Why the column cannot yield, if it cannot.
        keeps_booleans: Whether booleans of the field never become numbers.
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


RecordRoute: TypeAlias = dict[str, tuple[ColumnSlot, ...]]
"""For each key of a record, the columns in the order records, few dims, narrow types."""


def build_routes(schema: StructType, policy: Policy | None = None) -> RecordRoute:
    """Return where the keys of a record go, at any depth.

    Columns that hold no source field, and those whose type no value of a source has (binary, maps by numbers), are
    left out.

    Args:
        schema: The columns of the table, with their metadata.
        policy: What else is known of single fields.

    Source: docs/evolution-rules.md#u14, #d9
    """
    held = StructType(tuple(field for field in schema if role_of(field) is None))
    return _Router(policy or Policy()).record(held, (), ())


def routes_kind(slot: ColumnSlot, kind: Kind) -> bool:
    """Tell whether the values of a kind go to a column: the same or a wider type, the same or a larger dim.

    What the column cannot hold exactly is null in it, and stands in another column.

    Source: docs/evolution-rules.md#u14, #u16, #d4
    """
    return kind.dim <= slot.dim and can_route(slot.type, kind.word) and not does_bar(slot, kind.word)


def does_bar(slot: ColumnSlot, kind_word: str) -> bool:
    """Tell whether a column takes no values of a kind though its type could hold them.

    Source: docs/evolution-rules.md#d18
    """
    return slot.keeps_booleans and is_boolean_as_number(slot.type, kind_word)


@dataclass(frozen=True, slots=True)
class _Router:
    """Makes routes, by what the policy says of single fields and columns."""

    policy: Policy

    def record(self, struct: StructType, at: Path, source: Path) -> RecordRoute:
        """Return the route of the records in a struct that stands somewhere and holds a source field."""
        found: dict[str, list[ColumnSlot]] = {}
        for field in struct:
            key = source_key(field)
            slot = self._slot(field.name, field.type, (*at, field.name), (*source, key))
            if slot is not None:
                found.setdefault(key, []).append(slot)
        return {key: tuple(sorted(slots, key=_order)) for key, slots in found.items()}

    def _slot(self, name: str, data_type: DataType, at: Path, source: Path) -> ColumnSlot | None:
        leaf, dim = leaf_and_dim(data_type)
        inside = (*at, *[ELEMENT] * dim)
        guard = self.policy.guards.get(at)
        match leaf:
            case StructType():
                record = self.record(leaf, inside, source)
                return ColumnSlot(name, word_of(leaf) or "", dim, leaf, record, guard=guard)
            case MapType(key, value):
                entries = self._slot(name, value, (*inside, VALUE), source) if key == STRING else None
                return entries and ColumnSlot(name, MAP_WORD, dim, leaf, entries=entries, guard=guard)
        word = word_of(leaf) or (str(leaf) if can_route(leaf, "date") else None)
        if word is None:
            return None
        keeps_booleans = self.policy.keeps_booleans(source)
        return ColumnSlot(name, word, dim, leaf, None, None, self._unit(word, source), guard, keeps_booleans)

    def _unit(self, word: str, source: Path) -> EpochUnit | None:
        return self.policy.epoch_units.get(source) if word == TIMESTAMP_WORD else None


def _order(slot: ColumnSlot) -> tuple[Any, ...]:
    return (*column_sort_key(slot.type, slot.dim), *(_order(slot.entries) if slot.entries else ()))
