"""The type change history in a schema: record, read, check and strip it.

Source: PROTOCOL.md#type-change-metadata
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from widen.errors import CorruptLog, InvalidType, UnsupportedTypeChange
from widen.model.column_path import Path, children, fields, format_path, map_fields
from widen.model.schema_json import TYPE_CHANGES as TYPE_CHANGES
from widen.model.schema_json import parse_type
from widen.model.types import STRING, DataType, DecimalType, Field, OpaqueType, StructType, is_atomic, plain_name
from widen.model.value_classes import dataclass

FROM_TYPE, TO_TYPE, FIELD_PATH, TABLE_VERSION = "fromType", "toType", "fieldPath", "tableVersion"

_TEXT = re.compile(r"(?:var)?char\(\d+\)|string collate \w+", re.IGNORECASE)
"""String types with a length limit or a collation; a change between them is not a type widening."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One entry in the type change history of a field.

    Args:
        path: The path from the field with the entry to the changed leaf, in steps of element, key and value; empty
            for the field itself.
        table_version: The version of the change; only in tables with the preview feature.
    """

    path: Path
    old: DataType
    new: DataType
    table_version: int | None = None


def type_changes(field: Field) -> tuple[TypeChange, ...]:
    """Return the recorded changes of one field, oldest first, without changes of nested fields."""
    return tuple(_from_value(field, entry) for entry in _entries(field))


def record_type_change(field: Field, change: TypeChange) -> Field:
    """Return the field with an entry appended to its history.

    Earlier entries and unknown metadata are kept as they are.

    Source: PROTOCOL.md#type-change-metadata
    """
    return field.with_metadata(**{TYPE_CHANGES: [*_entries(field), _to_value(change)]})


def record_type_changes(old: StructType, new: StructType, table_version: int | None = None) -> StructType:
    """Return the new schema with every widened leaf type recorded on the nearest field.

    Fields of structs are matched by their exact names. Nothing is recorded for a new field or for a change from void,
    which is not a type widening.

    Source: PROTOCOL.md#type-change-metadata
    """
    before = dict(fields(old))

    def record(path: Path, field: Field) -> Field:
        previous = before.get(path)
        for change in _differences(previous.type, field.type) if previous else ():
            field = record_type_change(field, TypeChange(change.path, change.old, change.new, table_version))
        return field

    return map_fields(new, record)


def renumber_type_changes(schema: StructType, old_version: int, new_version: int) -> StructType:
    """Return the schema with the entries of one version changed to another, for a commit that is retried.

    Entries without a version, and entries of other versions, stay as they are.

    Source: Delta Spark, for tables with the preview feature.
    """

    def change(_: Path, field: Field) -> Field:
        entries = _entries(field)
        if all(entry.get(TABLE_VERSION) != old_version for entry in entries):
            return field
        later = [{**e, TABLE_VERSION: new_version} if e.get(TABLE_VERSION) == old_version else e for e in entries]
        return field.with_metadata(**{TYPE_CHANGES: later})

    return map_fields(schema, change)


def strip_type_changes(schema: StructType) -> StructType:
    """Return the schema without type change history."""
    return map_fields(schema, lambda _, field: field.without_metadata(TYPE_CHANGES))


def has_type_changes(schema: StructType) -> bool:
    """Return whether any field has a type change history, even an empty one."""
    return any(TYPE_CHANGES in field.metadata for _, field in fields(schema))


def all_type_changes(schema: StructType) -> Iterator[tuple[Path, TypeChange]]:
    """Yield every recorded change with the full path of the changed leaf, in schema order."""
    for path, field in fields(schema):
        for change in type_changes(field):
            yield (*path, *change.path), change


def ensure_changes_readable(schema: StructType) -> None:
    """Check that every recorded change is a type widening of the protocol.

    Raises:
        UnsupportedTypeChange: a change is not; the error has the column and both types.

    Source: PROTOCOL.md#reader-requirements-for-type-widening
    """
    for path, change in all_type_changes(schema):
        if change.old != change.new and not is_widening(change.old, change.new) and not _is_text(change):
            raise UnsupportedTypeChange(
                column=format_path(path), old=change.old.sql.upper(), new=change.new.sql.upper()
            )


def _is_text(change: TypeChange) -> bool:
    return str(change.old) == str(change.new) == "string"


def _differences(old: DataType, new: DataType, prefix: Path = ()) -> Iterator[TypeChange]:
    if isinstance(old, StructType) or isinstance(new, StructType):
        return
    if is_atomic(old) and is_atomic(new):
        if is_widening(old, new):
            yield TypeChange(prefix, old, new)
        return
    for (step, before), (_, after) in zip(children(old), children(new), strict=False):
        yield from _differences(before, after, (*prefix, step))


def _entries(field: Field) -> list[dict[str, Any]]:
    entries = field.metadata.get(TYPE_CHANGES, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _unreadable(field, "it is not a list of objects")
    return entries


def _from_value(field: Field, entry: dict[str, Any]) -> TypeChange:
    texts = [entry.get(key) for key in (FROM_TYPE, TO_TYPE, FIELD_PATH)]
    old, new, path = (text if isinstance(text, str) else "" for text in texts)
    if not old or not new:
        raise _unreadable(field, f"an entry lacks {FROM_TYPE} or {TO_TYPE}")
    return TypeChange(tuple(path.split(".")) if path else (), _to_type(old), _to_type(new), entry.get(TABLE_VERSION))


def _unreadable(field: Field, reason: str) -> CorruptLog:
    return CorruptLog(
        path="_delta_log",
        reason=f"the type history of column {field.name} cannot be read: {reason}",
        fix="Repair the schema with the client that wrote it.",
    )


@lru_cache(1024)  # every read checks all entries, and a table has few different types
def _to_type(text: str) -> DataType:
    """Return the type in an entry; an unknown one becomes opaque, which is never part of a type widening."""
    if _TEXT.fullmatch(text.strip()):
        return STRING
    try:
        return parse_type(text)
    except InvalidType:
        return OpaqueType(text)


def _to_value(change: TypeChange) -> dict[str, Any]:
    value: dict[str, Any] = {FROM_TYPE: str(change.old), TO_TYPE: str(change.new)}
    if change.path:
        value[FIELD_PATH] = ".".join(change.path)
    if change.table_version is not None:
        value[TABLE_VERSION] = change.table_version
    return value


# The type widening matrix: which atomic types can be widened to other types.
#
# `WIDENINGS` is the complete rule; docs/type-widening.md shows it. It applies to leaves: columns, struct fields,
# array elements, map keys and map values. The caller walks nested types.
#
# Source: PROTOCOL.md#type-widening


DECIMAL = "decimal"
"""Any decimal type in a row of the matrix; `_has_room` checks precision and scale."""


@dataclass(frozen=True, slots=True)
class Widening:
    """One row of the matrix.

    Args:
        old: The names of the old types in the schema JSON.
        new: The names of the new types in the schema JSON.
        same_family: Whether automatic widening that is limited to one family of types applies it.
        integer_digits: The minimum number of digits before the decimal point, for integer to decimal.
        keeps_scale: Whether the scale must stay the same, for decimal to decimal.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    same_family: bool
    iceberg: bool
    integer_digits: int = 0
    keeps_scale: bool = False


WIDENINGS = (
    Widening(("byte",), ("short", "integer", "long"), same_family=True, iceberg=True),
    Widening(("short",), ("integer", "long"), same_family=True, iceberg=True),
    Widening(("integer",), ("long",), same_family=True, iceberg=True),
    Widening(("float",), ("double",), same_family=True, iceberg=True),
    Widening(("byte", "short", "integer"), ("double",), same_family=False, iceberg=False),
    Widening(("date",), ("timestamp_ntz",), same_family=True, iceberg=False),
    Widening((DECIMAL,), (DECIMAL,), same_family=True, iceberg=True, keeps_scale=True),
    Widening((DECIMAL,), (DECIMAL,), same_family=True, iceberg=False),
    Widening(("byte", "short", "integer"), (DECIMAL,), same_family=False, iceberg=False, integer_digits=10),
    Widening(("long",), (DECIMAL,), same_family=False, iceberg=False, integer_digits=20),
)


def find_widening(old: DataType, new: DataType) -> Widening | None:
    """Return the row of the matrix that widens one type to the other, or None.

    Equal types are not a widening. Struct, array and map types are never in the matrix.

    Source: PROTOCOL.md#type-widening
    """
    if old == new:
        return None
    for row in WIDENINGS:
        if plain_name(old) in row.old and plain_name(new) in row.new and _has_room(old, new, row):
            return row
    return None


def is_widening(old: DataType, new: DataType) -> bool:
    """Return whether the change from one type to the other is in the matrix."""
    return find_widening(old, new) is not None


def is_same_family(old: DataType, new: DataType) -> bool:
    """Return whether automatic widening that is limited to one family of types applies the change."""
    row = find_widening(old, new)
    return row is not None and row.same_family


def is_iceberg_compatible(old: DataType, new: DataType) -> bool:
    """Return whether Iceberg V2 supports the change too; of decimals, only the precision may grow.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    row = find_widening(old, new)
    return row is not None and row.iceberg


def _has_room(old: DataType, new: DataType, row: Widening) -> bool:
    if not isinstance(new, DecimalType):
        return True
    digits, scale = row.integer_digits, 0
    if isinstance(old, DecimalType):
        digits, scale = old.precision - old.scale, old.scale
        if row.keeps_scale and new.scale != scale:
            return False
    return new.precision - new.scale >= digits and new.scale >= scale
