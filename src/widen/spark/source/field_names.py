"""The names by which Spark reads the fields of typed records.

In most sessions Spark does not distinguish field names that differ only in case. If a record has such names, its fields
are named by their positions while Spark reads it.

Source: docs/evolution-rules.md#d9, #d16
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from pyspark.sql import Column

from widen.model.column_path import Path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, similarity_key

Typed: TypeAlias = tuple[Column, DataType]
"""Values with their type; the names of record fields are those of `with_field_steps`."""


def field_steps(record: StructType) -> list[str]:
    """Return the names by which Spark reads the fields of a record."""
    is_plain = len({similarity_key(name) for name in record.names}) == len(record.fields)
    return list(record.names) if is_plain else [str(position) for position in range(len(record.fields))]


def with_field_steps(data_type: DataType) -> DataType:
    """Return a type with these names in all its records."""
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
    """Return the fields of records in a column, by their names in the source."""
    named = zip(data_type, field_steps(data_type), strict=True)
    return {field.name: (values.getField(name), field.type) for field, name in named}


def duplicate_fields(data_type: DataType, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of fields with exactly the same name as another field of their record."""
    match data_type:
        case StructType(fields):
            names: set[str] = set()
            for field in fields:
                if field.name in names:
                    yield (*path, field.name)
                names.add(field.name)
                yield from duplicate_fields(field.type, (*path, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from duplicate_fields(inner, path)
