"""Routes: which columns the values of each source field go to, read off the schema of the table alone.

Source: spec of evolution, U14, U16, D4, D9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from widen.model.type import DataType, Field, StructType
from widen.observe.kind import Kind, leaf_and_dim, word_of
from widen.planning.lattice import does_take, specificity
from widen.planning.name import role_of, source_key


@dataclass(frozen=True, slots=True)
class Slot:
    """A column that values of a source field go to.

    Args:
        name: The name of the column in its struct.
        word: The word of its type; ``timestamp_ntz`` too.
        dim: How many arrays the column has.
        type: What the arrays hold in the end.
        record: For records: where their sub-fields go.
    """

    name: str
    word: str
    dim: int
    type: DataType
    record: RecordRoute | None = None


RecordRoute: TypeAlias = dict[str, tuple[Slot, ...]]
"""For each key of a record, the columns in the order records, few dims, narrow types."""


def routes(schema: StructType) -> RecordRoute:
    """Return where the keys of a record go, at any depth.

    Columns that hold no source field, and those whose type no value of a source has (maps, binary), are left out.

    Args:
        schema: The columns of the table, with their metadata.

    Source: spec of evolution, U14, D9.
    """
    return _routes(StructType(tuple(field for field in schema if role_of(field) is None)))


def does_route(slot: Slot, kind: Kind) -> bool:
    """Tell whether the values of a kind go to a column: the same or a wider type, the same or a larger dim.

    What the column cannot hold exactly is null in it, and stands in another column.

    Source: spec of evolution, U14, U16, D4.
    """
    return kind.dim <= slot.dim and does_take(slot.type, kind.word)


def _routes(struct: StructType) -> RecordRoute:
    found: dict[str, list[Slot]] = {}
    for field in struct:
        slot = _slot(field)
        if slot is not None:
            found.setdefault(source_key(field), []).append(slot)
    return {key: tuple(sorted(slots, key=_order)) for key, slots in found.items()}


def _slot(field: Field) -> Slot | None:
    leaf, dim = leaf_and_dim(field.type)
    word = word_of(leaf) or (str(leaf) if does_take(leaf, "date") else None)
    if word is None:
        return None
    return Slot(field.name, word, dim, leaf, _routes(leaf) if isinstance(leaf, StructType) else None)


def _order(slot: Slot) -> tuple[bool, int, int]:
    return specificity(slot.type, slot.dim)
