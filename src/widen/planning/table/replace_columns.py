"""REPLACE COLUMNS: the resulting schema, and how it differs from the old one.

Fields are matched by name, case-insensitively; elements, keys and values by position.

Source: Delta Lake's REPLACE COLUMNS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from widen.errors import AmbiguousReplacement
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, name_key
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.operation import AddColumn, DropColumn, SetNotNull, WidenType
from widen.protocol.text_limits import text_limit

Difference: TypeAlias = AddColumn | DropColumn | SetNotNull | WidenType


def replace_schema(old: StructType, given: StructType) -> StructType:
    """Return the given columns, in their order and with their types; existing ones keep their spelling and metadata.

    A given comment replaces the old one. The nullability of elements and map values does not change.
    """
    result = _merge_type(old, given)
    assert isinstance(result, StructType)
    return result


def schema_differences(old: StructType, given: StructType, parent: Path = ()) -> Iterator[Difference]:
    """Yield the difference between two schemas as operations: columns added, dropped, retyped, or made NOT NULL.

    Args:
        parent: The path of the struct that contains both; empty for the table itself.

    Raises:
        AmbiguousReplacement: fields of one struct would be added and others dropped, which might be a rename.

    Source: Delta Lake's REPLACE COLUMNS: adding and dropping in one struct is ambiguous.
    """
    names = {name_key(field.name) for field in given}
    dropped = [field.name for field in old if name_key(field.name) not in names]
    added = [field for field in given if old.find(field.name) is None]
    if dropped and added:
        raise AmbiguousReplacement(
            place=format_path(parent) or "the table",
            dropped=", ".join(dropped),
            added=", ".join(field.name for field in added),
        )
    for name in dropped:
        yield DropColumn((*parent, name))
    for field in given:
        current, path = old.find(field.name), (*parent, field.name)
        if current is None:
            yield AddColumn(parent, field)
            continue
        path = (*parent, current.name)
        if current.nullable and not field.nullable:
            yield SetNotNull(path)
        yield from _below(current.type, field.type, path)


def _below(old: DataType, given: DataType, parent: Path) -> Iterator[Difference]:
    match old, given:
        case StructType(), StructType():
            yield from schema_differences(old, given, parent)
        case ArrayType(), ArrayType():
            if old.contains_null and not given.contains_null:
                yield SetNotNull((*parent, ELEMENT))
            yield from _below(old.element, given.element, (*parent, ELEMENT))
        case MapType(), MapType():
            yield from _below(old.key, given.key, (*parent, KEY))
            if old.value_contains_null and not given.value_contains_null:
                yield SetNotNull((*parent, VALUE))
            yield from _below(old.value, given.value, (*parent, VALUE))
        case _ if old != given:
            yield WidenType(parent, old, given)


def _merge_type(old: DataType, given: DataType) -> DataType:
    match old, given:
        case StructType(), StructType():
            return StructType(tuple(_field(old.find(field.name), field) for field in given))
        case ArrayType(), ArrayType():
            return replace(old, element=_merge_type(old.element, given.element))
        case MapType(), MapType():
            return replace(old, key=_merge_type(old.key, given.key), value=_merge_type(old.value, given.value))
    return old if text_limit(old) else given


def _field(old: Field | None, given: Field) -> Field:
    if old is None:
        return given
    comment = {key: text for key, text in given.metadata.items() if key == COMMENT}
    return replace(old, type=_merge_type(old.type, given.type), nullable=given.nullable).with_metadata(**comment)
