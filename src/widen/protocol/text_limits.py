"""Columns of char(n) and varchar(n), at any depth.

In the log such a column is a string, or has strings inside, and the metadata of the top-level column keep its type as
it was declared. Everything that changes columns works on the declared types, and stores the result.

Source: Spark, which stores char(n) and varchar(n) as string and keeps the declared type in the metadata; Delta Lake,
which finds the fields of a declared struct by their position, so renamed fields keep their limits.
"""

from __future__ import annotations

import re
from dataclasses import replace

from widen.errors import CorruptLog, InvalidType
from widen.model.column_path import Path, leaves, map_children
from widen.model.type_parser import parse_type
from widen.model.types import STRING, ArrayType, AtomicType, DataType, Field, MapType, StructType, compact_sql

TEXT_LIMIT = "__CHAR_VARCHAR_TYPE_STRING"

_LIMITED = re.compile(r"(char|varchar)\((\d+)\)")


def text_limit(data_type: DataType) -> tuple[str, int] | None:
    """Return the word and the maximum length of a char or varchar type; None for any other type."""
    match = _LIMITED.fullmatch(data_type.name) if isinstance(data_type, AtomicType) else None
    return (match[1], int(match[2])) if match else None


def has_limits(data_type: DataType) -> bool:
    """Tell whether a declared type has a char or varchar anywhere."""
    return any(text_limit(leaf) for _, leaf in leaves(data_type))


def text_limits(field: Field) -> dict[Path, int]:
    """Return the maximum lengths of char and varchar strings in a column, by their path relative to the column.

    Raises:
        CorruptLog: the declared type in the metadata cannot be parsed.
    """
    if TEXT_LIMIT not in field.metadata:
        return {}
    limits = ((path, text_limit(leaf)) for path, leaf in leaves(to_declared(field).type))
    return {path: limit[1] for path, limit in limits if limit}


def to_declared(field: Field) -> Field:
    """Return a column of the log with its declared type, and without the metadata that keep it.

    Raises:
        CorruptLog: the declared type in the metadata cannot be parsed.
    """
    text = field.metadata.get(TEXT_LIMIT)
    if text is None:
        return field
    try:
        declared = parse_type(str(text), allow_limits=True)
    except InvalidType as error:
        reason = f"column {field.name}: {TEXT_LIMIT} is {text!r} ({error})"
        raise CorruptLog(
            path="_delta_log", reason=reason, fix="Repair the schema with the client that wrote it."
        ) from error
    return replace(field.without_metadata(TEXT_LIMIT), type=_with_limits(field.type, declared))


def to_stored(field: Field) -> Field:
    """Return a column of a declared type as it is in the log."""
    if not has_limits(field.type):
        return field
    return replace(field, type=without_limits(field.type)).with_metadata(**{TEXT_LIMIT: compact_sql(field.type)})


def declared_schema(schema: StructType) -> StructType:
    """Return a schema of the log with declared types.

    Raises:
        CorruptLog: a declared type in the metadata cannot be parsed.
    """
    return StructType(tuple(map(to_declared, schema)))


def stored_schema(schema: StructType) -> StructType:
    """Return a schema of declared types as it is in the log."""
    return StructType(tuple(map(to_stored, schema)))


def respell_declared(schema: StructType) -> StructType:
    """Return a schema of the log whose fields have other names now, with these names in the declared types.

    Spark pads the texts of char(n) that it reads, and finds fields by the names in the declared type.
    """
    return stored_schema(declared_schema(schema)) if any(TEXT_LIMIT in field.metadata for field in schema) else schema


def without_limits(data_type: DataType) -> DataType:
    """Return a declared type with strings in place of char and varchar."""
    return STRING if text_limit(data_type) else map_children(data_type, lambda _, child: without_limits(child))


def _with_limits(stored: DataType, declared: DataType) -> DataType:
    match stored, declared:
        case StructType(), StructType():
            inner = [_with_limits(old.type, new.type) for old, new in zip(stored, declared, strict=False)]
            changed = [replace(field, type=new) for field, new in zip(stored, inner, strict=False)]
            return StructType((*changed, *stored.fields[len(changed) :]))
        case ArrayType(element), ArrayType(declared_element):
            return replace(stored, element=_with_limits(element, declared_element))
        case MapType(key, value), MapType(declared_key, declared_value):
            return replace(stored, key=_with_limits(key, declared_key), value=_with_limits(value, declared_value))
    return declared if stored == STRING and text_limit(declared) else stored
