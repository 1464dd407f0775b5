"""Where a field stands in its struct: first, last, or behind another one.

Source: Spark's ALTER TABLE … FIRST | AFTER.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from widen.errors import ColumnNotFound
from widen.model.type import Field, StructType, quoted


class End(Enum):
    """One of the two ends of a struct."""

    FIRST = "FIRST"
    LAST = "LAST"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class After:
    """Behind another field of the struct."""

    name: str

    def __str__(self) -> str:
        return f"AFTER {quoted(self.name)}"


Place: TypeAlias = End | After


def put(struct: StructType, field: Field, place: Place) -> StructType:
    """Return the struct with a field at its place, whether it was there before or not.

    A field that is to stand behind itself stays where it is.

    Raises:
        ColumnNotFound: there is no other field of the name that it is to follow.
    """
    others = StructType(tuple(known for known in struct if known.name != field.name))
    match place:
        case End.FIRST:
            at = 0
        case End.LAST:
            at = len(others)
        case After(name) if struct.find(name) == struct.find(field.name) is not None:
            return struct.with_field(field)
        case After(name):
            anchor = others.find(name)
            if anchor is None:
                raise ColumnNotFound(column=quoted(name), available=", ".join(map(quoted, others.names)))
            at = others.names.index(anchor.name) + 1
    return StructType((*others.fields[:at], field, *others.fields[at:]))
