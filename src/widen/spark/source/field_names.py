"""Steps into records: the names by which Spark takes the fields out of records that have types.

Spark does not tell fields apart whose names differ only in case, in most sessions. Where a record has such fields, its
fields are called by their numbers while it is taken in.

Source: docs/evolution-rules.md#d9, #d16
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pyspark.sql import Column

from widen.model.column_path import Path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType

Typed: TypeAlias = tuple[Column, DataType]
"""Values, and their type; their records are as `with_field_steps` says."""


def field_steps(record: StructType) -> list[str]:
    """Return by what names the fields of records are taken out."""
    is_plain = len({name.casefold() for name in record.names}) == len(record.fields)
    return list(record.names) if is_plain else [str(at) for at in range(len(record.fields))]


def with_field_steps(data_type: DataType) -> DataType:
    """Return a type with those names in all records in it."""
    match data_type:
        case StructType(fields):
            names = field_steps(data_type)
            return StructType(
                tuple(Field(name, with_field_steps(f.type)) for name, f in zip(names, fields, strict=True))
            )
        case ArrayType(element):
            return ArrayType(with_field_steps(element))
        case MapType(key, value):
            return MapType(key, with_field_steps(value))
    return data_type


def fields_of(values: Column, data_type: StructType) -> dict[str, Typed]:
    """Return the fields of records that stand in a column, by the names that the source gives."""
    named = zip(data_type, field_steps(data_type), strict=True)
    return {field.name: (values.getField(name), field.type) for field, name in named}


def duplicate_fields(data_type: DataType, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of fields that stand in a record of a type more than once, under the very same name."""
    match data_type:
        case StructType(fields):
            seen: set[str] = set()
            for field in fields:
                if field.name in seen:
                    yield (*at, field.name)
                seen.add(field.name)
                yield from duplicate_fields(field.type, (*at, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from duplicate_fields(inner, at)
