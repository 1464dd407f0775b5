"""Where a field stands in its struct: first, last, or behind another one.

Source: Spark's ALTER TABLE … FIRST | AFTER.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from widen.errors import ColumnNotFound
from widen.model.types import Field, StructType, quote_name


class StructEnd(Enum):
    """One of the two ends of a struct."""

    FIRST = "FIRST"
    LAST = "LAST"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class AfterField:
    """Behind another field of the struct."""

    name: str

    def __str__(self) -> str:
        return f"AFTER {quote_name(self.name)}"


FieldPosition: TypeAlias = StructEnd | AfterField


def insert_field(struct: StructType, field: Field, place: FieldPosition) -> StructType:
    """Return the struct with a field at its place, whether it was there before or not.

    A field that is to stand behind itself stays where it is.

    Raises:
        ColumnNotFound: there is no other field of the name that it is to follow.
    """
    others = StructType(tuple(known for known in struct if known.name != field.name))
    match place:
        case StructEnd.FIRST:
            at = 0
        case StructEnd.LAST:
            at = len(others)
        case AfterField(name) if struct.find(name) == struct.find(field.name) is not None:
            return struct.with_field(field)
        case AfterField(name):
            anchor = others.find(name)
            if anchor is None:
                raise ColumnNotFound(column=quote_name(name), available=", ".join(map(quote_name, others.names)))
            at = others.names.index(anchor.name) + 1
    return StructType((*others.fields[:at], field, *others.fields[at:]))
