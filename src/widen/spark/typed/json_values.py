"""Typed values as documents of JSON, and back: with the names that the source gives, and texts for the keys of maps.

Source: docs/evolution-rules.md#d10, #d16
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType
from widen.spark.source.field_names import field_steps, fields_of, with_field_steps
from widen.spark.typed.exact_cast import convert_exactly

_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""How times are written in JSON: with every digit that they have."""


def to_json_text(values: Column) -> Column:
    """Return documents as texts of JSON; what is null in a record is left out."""
    return F.to_json(values, _JSON)


def to_document(values: Column, data_type: DataType) -> Column:
    """Return values as they are to be written in JSON.

    Args:
        values: The values.
        data_type: Their type.
    """
    if document_type(data_type) == with_field_steps(data_type):
        return values
    match data_type:
        case StructType():
            told = fields_of(values, data_type)
            parts = (to_document(inner, inner_type).alias(name) for name, (inner, inner_type) in told.items())
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: to_document(item, element))
        case MapType(key, value):
            found = F.transform_values(values, lambda _, item: to_document(item, value))
            return found if key == STRING else F.transform_keys(found, lambda each, _: _key_text(each, key))
    return values


def from_document(values: Column, data_type: DataType) -> Column:
    """Return what `to_document` made of values of a type.

    Args:
        values: Of the type that `document_type` tells; their records are as `stepped` says.
        data_type: That they had.
    """
    if with_field_steps(document_type(data_type)) == with_field_steps(data_type):
        return values
    match data_type:
        case StructType(fields):
            names = field_steps(data_type)
            parts = (from_document(values.getField(n), f.type).alias(n) for n, f in zip(names, fields, strict=True))
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: from_document(item, element))
        case MapType(key, value):
            found = F.transform_values(values, lambda _, item: from_document(item, value))
            return found if key == STRING else F.transform_keys(found, lambda each, _: each.try_cast(key.sql))
    return values


def document_type(data_type: DataType) -> DataType:
    """Return the type of what `to_document` makes of values."""
    match data_type:
        case StructType(fields):
            return StructType(tuple(Field(field.name, document_type(field.type)) for field in fields))
        case ArrayType(element):
            return ArrayType(document_type(element))
        case MapType(_, value):
            return MapType(STRING, document_type(value))
    return data_type


def _key_text(key: Column, data_type: DataType) -> Column:
    text = convert_exactly(key, data_type, STRING)
    assert text is not None
    return text
