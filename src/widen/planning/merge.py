"""What an incoming schema asks of a table: nothing, new columns, wider types, or what cannot be.

Names are matched without case; the table's order and spelling stay.

Source: spec of Delta's schema enforcement and evolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from widen.errors import SchemaMismatch
from widen.model.path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.type import VOID, ArrayType, DataType, Field, MapType, StructType
from widen.planning.operation import AddColumn, Operation, WidenType
from widen.protocol.widening import is_widening


@dataclass(frozen=True, slots=True)
class Misfit:
    """A column of the data that a table cannot take.

    Args:
        path: The column.
        reason: Why not.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{format_path(self.path)} {self.reason}"


def merge(current: StructType, incoming: StructType, *, adds: bool, widens: bool) -> tuple[Operation, ...]:
    """Return the operations after which the data fit the table.

    Args:
        current: The schema of the table.
        incoming: The schema of the data. What is narrower than the table is cast, what is missing is null.
        adds: Whether new columns and nested fields may be added.
        widens: Whether types may become wider.

    Raises:
        SchemaMismatch: the data do not fit; the error names every column that does not, with both types.
    """
    found = tuple(_struct(current, incoming, ()))
    operations = tuple(item for item in found if not isinstance(item, Misfit))
    misfits = [item for item in found if isinstance(item, Misfit)]
    misfits += [_refused(item) for item in operations if not (adds if isinstance(item, AddColumn) else widens)]
    if misfits:
        raise SchemaMismatch(reason="; ".join(map(str, misfits)), fix=_fix(operations, adds=adds, widens=widens))
    return operations


def _fix(operations: tuple[Operation, ...], *, adds: bool, widens: bool) -> str:
    if operations and not adds:
        return "Let the table grow with merge_schema=True, or select the columns it has."
    if not widens and any(isinstance(item, WidenType) for item in operations):
        return "Let types widen with set_properties({'delta.enableTypeWidening': 'true'}) and merge_schema=True."
    return "Cast or rename the columns, or change the table with alter_column."


def _refused(operation: Operation) -> Misfit:
    match operation:
        case WidenType(path, old, new):
            return Misfit(path, f"is {old.sql} in the table and {new.sql} in the data")
        case AddColumn(_, field):
            return Misfit(operation.path, f"({field.type.sql}) is not in the table")
    return Misfit((), str(operation))


def _struct(current: StructType, incoming: StructType, at: Path) -> Iterator[Operation | Misfit]:
    folded: dict[str, str] = {}
    for field in incoming:
        other = folded.setdefault(field.name.casefold(), field.name)
        if other is not field.name:
            yield Misfit((*at, field.name), f"is there twice: another column is called {other}")
            continue
        known = current.find(field.name)
        if known is None:
            yield AddColumn(at, _open(field))
        else:
            yield from _type(known.type, field.type, (*at, known.name))
    for known in current:
        if not known.nullable and known.name.casefold() not in folded:
            yield Misfit((*at, known.name), "must not be null and is not in the data")


def _open(field: Field) -> Field:
    """Return a new field as the table gets it: it may be null, for the rows before it are."""
    return replace(field, nullable=True, metadata={k: v for k, v in field.metadata.items() if k == "comment"})


def _type(current: DataType, incoming: DataType, at: Path) -> Iterator[Operation | Misfit]:
    match current, incoming:
        case StructType(), StructType():
            yield from _struct(current, incoming, at)
        case ArrayType(), ArrayType():
            yield from _type(current.element, incoming.element, (*at, ELEMENT))
        case MapType(), MapType():
            yield from _type(current.key, incoming.key, (*at, KEY))
            yield from _type(current.value, incoming.value, (*at, VALUE))
        case _ if is_widening(current, incoming):
            yield WidenType(at, current, incoming)
        case _ if current != incoming and incoming != VOID and not is_widening(incoming, current):
            yield Misfit(at, f"is {current.sql} in the table and {incoming.sql} in the data")
