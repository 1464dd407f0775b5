"""All columns at once: what becomes of those that were there, and how the two schemas differ.

Fields are matched by name, without case; arrays and maps by position.

Source: Delta Lake's REPLACE COLUMNS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from widen.errors import AmbiguousReplacement
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.operation import AddColumn, DropColumn, SetNotNull, WidenType

Difference: TypeAlias = AddColumn | DropColumn | SetNotNull | WidenType


def replace_schema(old: StructType, given: StructType) -> StructType:
    """Return the columns in the order and with the types given; those that were there keep name and metadata.

    A comment is taken over where one is given. Whether items of arrays and maps may be null stays as it is.
    """
    result = _merge_type(old, given)
    assert isinstance(result, StructType)
    return result


def schema_differences(old: StructType, given: StructType, at: Path = ()) -> Iterator[Difference]:
    """Yield what the columns given ask for, as single operations: what is new, gone, of another type, never null.

    Args:
        old: The columns as they are.
        given: The columns as they are to be.
        at: The path of the struct that both stand in; empty for the table itself.

    Raises:
        AmbiguousReplacement: in one struct fields would come and others go, which might be a change of names.

    Source: Delta Lake: adding and dropping in one struct is ambiguous.
    """
    names = {field.name.casefold() for field in given}
    dropped = [field.name for field in old if field.name.casefold() not in names]
    added = [field for field in given if old.find(field.name) is None]
    if dropped and added:
        raise AmbiguousReplacement(
            place=format_path(at) or "the table",
            dropped=", ".join(dropped),
            added=", ".join(field.name for field in added),
        )
    for name in dropped:
        yield DropColumn((*at, name))
    for field in given:
        known, path = old.find(field.name), (*at, field.name)
        if known is None:
            yield AddColumn(at, field)
            continue
        path = (*at, known.name)
        if known.nullable and not field.nullable:
            yield SetNotNull(path)
        yield from _below(known.type, field.type, path)


def _below(old: DataType, given: DataType, at: Path) -> Iterator[Difference]:
    match old, given:
        case StructType(), StructType():
            yield from schema_differences(old, given, at)
        case ArrayType(), ArrayType():
            if old.contains_null and not given.contains_null:
                yield SetNotNull((*at, ELEMENT))
            yield from _below(old.element, given.element, (*at, ELEMENT))
        case MapType(), MapType():
            yield from _below(old.key, given.key, (*at, KEY))
            if old.value_contains_null and not given.value_contains_null:
                yield SetNotNull((*at, VALUE))
            yield from _below(old.value, given.value, (*at, VALUE))
        case _ if old != given:
            yield WidenType(at, old, given)


def _merge_type(old: DataType, given: DataType) -> DataType:
    match old, given:
        case StructType(), StructType():
            return StructType(tuple(_field(old.find(field.name), field) for field in given))
        case ArrayType(), ArrayType():
            return replace(old, element=_merge_type(old.element, given.element))
        case MapType(), MapType():
            return replace(old, key=_merge_type(old.key, given.key), value=_merge_type(old.value, given.value))
    return given


def _field(old: Field | None, given: Field) -> Field:
    if old is None:
        return given
    said = {key: text for key, text in given.metadata.items() if key == COMMENT}
    return replace(old, type=_merge_type(old.type, given.type), nullable=given.nullable).with_metadata(**said)
