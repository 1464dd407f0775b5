"""The position of a field in its struct: first, last, or after another field.

Source: Spark's ALTER TABLE … FIRST | AFTER.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from widen.errors import ColumnNotFound
from widen.model.types import Field, StructType, quote_name


class StructEnd(Enum):
    """The beginning or the end of a struct."""

    FIRST = "FIRST"
    LAST = "LAST"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class AfterField:
    """After another field of the struct."""

    name: str

    def __str__(self) -> str:
        return f"AFTER {quote_name(self.name)}"


FieldPosition: TypeAlias = StructEnd | AfterField


def find_anchor(struct: StructType, place: AfterField) -> Field:
    """Return the field of a struct after which another is to be inserted.

    Raises:
        ColumnNotFound: the struct has no field of this name.
    """
    anchor = struct.find(place.name)
    if anchor is None:
        available = ", ".join(map(quote_name, struct.names))
        raise ColumnNotFound(column=quote_name(place.name), available=available)
    return anchor


def insert_field(struct: StructType, field: Field, place: FieldPosition) -> StructType:
    """Return the struct with a field added or moved to a position. A field that is to follow itself stays in place.

    Raises:
        ColumnNotFound: the struct has no field of the name to insert after.
    """
    others = StructType(tuple([other for other in struct.fields if other.name != field.name]))
    match place:
        case StructEnd.FIRST:
            index = 0
        case StructEnd.LAST:
            index = len(others)
        case AfterField(name) if struct.find(name) == struct.find(field.name) is not None:
            return struct.with_field(field)
        case AfterField():
            index = others.names.index(find_anchor(others, place).name) + 1
    return StructType((*others.fields[:index], field, *others.fields[index:]))
