"""Values as JSON documents, as Spark expressions."""

from __future__ import annotations

from widen.evolution.unify import EXACT_JSON
from widen.frames.physical_layout import partition_text
from widen.model.types import (
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
)
from widen.sources.file_ranges import field_steps, fields_of, with_field_steps
from widen.spark.spark_types import Column, F


def json_text_column(values: Column) -> Column:
    """Return documents as JSON texts, without the null fields of records."""
    return F.to_json(values, dict(EXACT_JSON))


def to_document(values: Column, data_type: DataType) -> Column:
    """Return values in the form that is written as JSON."""
    if document_type(data_type) == with_field_steps(data_type):
        return values
    match data_type:
        case StructType():
            inner_fields = fields_of(values, data_type)
            parts = (to_document(inner, inner_type).alias(name) for name, (inner, inner_type) in inner_fields.items())
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: to_document(item, element))
        case MapType(key, value):
            entries = F.transform_values(values, lambda _, item: to_document(item, value))
            return entries if key == STRING else F.transform_keys(entries, lambda each, _: _key_text(each, key))
    return values


def from_document(values: Column, data_type: DataType) -> Column:
    """Return the values that `to_document` turned into documents.

    Args:
        values: Documents of the type `document_type`, with the field names of `with_field_steps`.
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
            entries = F.transform_values(values, lambda _, item: from_document(item, value))
            return entries if key == STRING else F.transform_keys(entries, lambda each, _: each.try_cast(key.sql))
    return values


def document_type(data_type: DataType) -> DataType:
    """Return the type of the documents that `to_document` returns."""
    match data_type:
        case StructType(fields):
            return StructType(tuple(Field(field.name, document_type(field.type)) for field in fields))
        case ArrayType(element):
            return ArrayType(document_type(element))
        case MapType(_, value):
            return MapType(STRING, document_type(value))
    return data_type


def _key_text(key: Column, data_type: DataType) -> Column:
    if data_type == TIMESTAMP:
        return partition_text(key, data_type)
    text = key.cast("string")
    return F.replace(text, F.lit(" "), F.lit("T")) if data_type == TIMESTAMP_NTZ else text
