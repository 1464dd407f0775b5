"""The history of type changes in a schema: recorded, read, validated, stripped.

Source: PROTOCOL.md#type-change-metadata
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from widen.errors import CorruptLog, InvalidType, UnsupportedTypeChange
from widen.model.column_path import Path, children, fields, format_path, map_fields
from widen.model.type_parser import parse_type
from widen.model.types import STRING, DataType, Field, OpaqueType, StructType, is_atomic
from widen.protocol.type_widening import is_widening

TYPE_CHANGES = "delta.typeChanges"
FROM_TYPE, TO_TYPE, FIELD_PATH, TABLE_VERSION = "fromType", "toType", "fieldPath", "tableVersion"

_TEXT = re.compile(r"(?:var)?char\(\d+\)|string collate \w+", re.IGNORECASE)
"""Texts of a limited length or of an order of their own; no change between them is a widening."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One entry of the history of a field.

    Args:
        path: From the field that holds the entry to the changed leaf, in steps of element, key and value;
            empty for the field itself.
        old: The type before the change.
        new: The type after it.
        table_version: Only in tables of the preview feature; kept for ever.
    """

    path: Path
    old: DataType
    new: DataType
    table_version: int | None = None


def type_changes(field: Field) -> tuple[TypeChange, ...]:
    """Return the recorded changes of one field, oldest first; none of the fields nested in it.

    Raises:
        CorruptLog: the history is no list of entries, or an entry lacks a type.
    """
    return tuple(_from_value(field, entry) for entry in _entries(field))


def record_type_change(field: Field, change: TypeChange) -> Field:
    """Return the field with one more entry at the end of its history.

    Earlier entries and unknown metadata are kept as they are.

    Raises:
        CorruptLog: what is there is no list of entries.

    Source: PROTOCOL.md#type-change-metadata
    """
    return field.with_metadata(**{TYPE_CHANGES: [*_entries(field), _to_value(change)]})


def record_type_changes(old: StructType, new: StructType, table_version: int | None = None) -> StructType:
    """Return the new schema with every difference of leaf types to the old one recorded on its nearest field.

    Structs are compared by the exact names of their fields, arrays and maps by position. A field without a
    counterpart is new and records nothing; neither do changes from void, which are no widening.

    Raises:
        CorruptLog: the history of a changed field is no list of entries.

    Source: PROTOCOL.md#type-change-metadata
    """
    before = dict(fields(old))

    def recorded(path: Path, field: Field) -> Field:
        known = before.get(path)
        for change in _differences(known.type, field.type) if known else ():
            field = record_type_change(field, TypeChange(change.path, change.old, change.new, table_version))
        return field

    return map_fields(new, recorded)


def renumber_type_changes(schema: StructType, old_version: int, new_version: int) -> StructType:
    """Return the schema with the entries of one version said to be of another one, for a commit that lost a race.

    Entries without a version, and those of other versions, stay as they are.

    Raises:
        CorruptLog: a history is no list of entries.

    Source: Delta Spark, for tables of the preview feature.
    """

    def change(_: Path, field: Field) -> Field:
        entries = _entries(field)
        if all(entry.get(TABLE_VERSION) != old_version for entry in entries):
            return field
        later = [{**e, TABLE_VERSION: new_version} if e.get(TABLE_VERSION) == old_version else e for e in entries]
        return field.with_metadata(**{TYPE_CHANGES: later})

    return map_fields(schema, change)


def strip_type_changes(schema: StructType) -> StructType:
    """Return the schema without any history, as it is shown to users and given to other writers."""
    return map_fields(schema, lambda _, field: field.without_metadata(TYPE_CHANGES))


def has_type_changes(schema: StructType) -> bool:
    """Tell whether any field carries the key, even with an empty list."""
    return any(TYPE_CHANGES in field.metadata for _, field in fields(schema))


def all_type_changes(schema: StructType) -> Iterator[tuple[Path, TypeChange]]:
    """Yield every recorded change with the full path of the leaf it changed, in the order of the schema.

    Raises:
        CorruptLog: a history cannot be read.
    """
    for path, field in fields(schema):
        for change in type_changes(field):
            yield (*path, *change.path), change


def ensure_readable(schema: StructType) -> None:
    """Check that every recorded change is one that readers can follow.

    Raises:
        UnsupportedTypeChange: an entry is not in the matrix; the error has the column and both types.
        CorruptLog: a history cannot be read.

    Source: PROTOCOL.md#reader-requirements-for-type-widening
    """
    for path, change in all_type_changes(schema):
        if change.old != change.new and not is_widening(change.old, change.new) and not _is_text(change):
            raise UnsupportedTypeChange(
                column=format_path(path), old=change.old.sql.upper(), new=change.new.sql.upper()
            )


def _is_text(change: TypeChange) -> bool:
    return str(change.old) == str(change.new) == "string"


def _differences(old: DataType, new: DataType, at: Path = ()) -> Iterator[TypeChange]:
    if isinstance(old, StructType) or isinstance(new, StructType):
        return
    if is_atomic(old) and is_atomic(new):
        if is_widening(old, new):
            yield TypeChange(at, old, new)
        return
    for (step, before), (_, after) in zip(children(old), children(new), strict=False):
        yield from _differences(before, after, (*at, step))


def _entries(field: Field) -> list[dict[str, Any]]:
    found = field.metadata.get(TYPE_CHANGES, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _unreadable(field, "it is no list of objects")
    return found


def _from_value(field: Field, entry: dict[str, Any]) -> TypeChange:
    texts = [entry.get(key) for key in (FROM_TYPE, TO_TYPE, FIELD_PATH)]
    old, new, at = (text if isinstance(text, str) else "" for text in texts)
    if not old or not new:
        raise _unreadable(field, f"an entry lacks {FROM_TYPE} or {TO_TYPE}")
    return TypeChange(tuple(at.split(".")) if at else (), _to_type(old), _to_type(new), entry.get(TABLE_VERSION))


def _unreadable(field: Field, reason: str) -> CorruptLog:
    return CorruptLog(
        path="_delta_log",
        reason=f"the type history of column {field.name} cannot be read: {reason}",
        fix="Repair the schema with the client that wrote it.",
    )


def _to_type(text: str) -> DataType:
    """Return the type that an entry names; one that is not known has no way in the matrix."""
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
