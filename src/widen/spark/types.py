"""Conversions between types of the model and types of Spark, through the schema JSON that both share.

Source: PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types

from widen.errors import InvalidOption, SimilarStoredNames, UnsupportedColumnType
from widen.model.column_path import as_nullable, format_path, map_fields
from widen.model.schema_json import type_from_value, type_to_value
from widen.model.types import ArrayType, AtomicType, DataType, DecimalType, Field, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID, similar_stored_names
from widen.protocol.column_metadata import parse_columns, visible_schema

__all__ = [
    "Column",
    "DataFrame",
    "SchemaLike",
    "SparkSession",
    "as_nullable",
    "from_spark",
    "to_schema",
    "to_spark",
    "type_to_spark",
    "visible_schema",
    "with_field_ids",
]

SchemaLike: TypeAlias = StructType | spark_types.StructType | str
"""A schema as a value, as Spark's, or as SQL: ``"id bigint not null, tags array<string>"``."""

_UNKNOWN = (PySparkException, AssertionError, AttributeError, KeyError, TypeError, ValueError)
"""Raised by PySpark for types and collations that it does not know, and for metadata of a wrong shape."""

FIELD_ID = "parquet.field.id"
"""The metadata key from which Spark takes the field id that it writes into Parquet."""


def to_schema(schema: SchemaLike) -> StructType:
    """Return a schema in any of its forms as a schema of the model.

    Raises:
        InvalidType: the SQL text cannot be parsed.
        InvalidOption: it is not a schema.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return parse_columns(schema)
    if not isinstance(schema, spark_types.StructType):
        raise InvalidOption(option="schema", value=schema, expected="Must be a StructType or columns in SQL.")
    return from_spark(schema)


def to_spark(schema: StructType) -> spark_types.StructType:
    """Return the schema as a Spark schema, metadata included.

    Raises:
        UnsupportedColumnType: Spark has no type for a column, or does not know its collation.
    """
    try:
        # A copy, because PySpark changes the metadata of collated columns, which is the metadata of the table.
        return spark_types.StructType.fromJson(deepcopy(type_to_value(schema)))
    except _UNKNOWN as error:
        if len(schema) > 1:
            for field in schema:  # to find the column that it is about
                to_spark(StructType((field,)))
        column, given = ", ".join(schema.names), ", ".join(field.type.sql for field in schema)
        reason = f"Spark cannot represent it ({error or type(error).__name__})"
        raise UnsupportedColumnType(column=column, type=given, reason=reason) from error


def type_to_spark(data_type: DataType) -> spark_types.DataType:
    """Return the type as a Spark type, the metadata of nested fields included."""
    return to_spark(StructType((Field("only", data_type),)))["only"].dataType


def from_spark(schema: spark_types.StructType) -> StructType:
    """Return a Spark schema as a schema of the model, metadata included."""
    result = type_from_value(json.loads(schema.json()))
    assert isinstance(result, StructType)
    return result


def with_field_ids(schema: StructType) -> StructType:
    """Return the schema with only the column ids as metadata, under the key that Spark's Parquet writer reads.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return map_fields(schema, lambda _, field: Field(field.name, field.type, field.nullable, _field_id(field)))


def _field_id(field: Field) -> dict[str, int]:
    return {FIELD_ID: field.metadata[COLUMN_ID]} if COLUMN_ID in field.metadata else {}


# Types of the model as Arrow types, for the batches that Python workers return to Spark.
#
# Source: Spark's mapping of SQL types to Arrow.


_ATOMIC: Mapping[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def to_arrow(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for a type of the model.

    Raises:
        InvalidOption: Python workers cannot make values of that type (void, variant or an unknown type).
    """
    match data_type:
        case AtomicType(name) if name in _ATOMIC:
            return _ATOMIC[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element):
            return pa.list_(to_arrow(element))
        case MapType(key, value):
            return pa.map_(to_arrow(key), to_arrow(value))
        case StructType():
            return pa.struct(list(to_arrow_schema(data_type)))
    raise InvalidOption(
        option="the type", value=data_type.sql, expected="Ingestion does not support columns of this type."
    )


def to_utc(values: pa.Array) -> pa.Array:
    """Return Arrow values from Spark with all timestamps in UTC, so that Python can represent every one of them.

    Spark delivers timestamps in the time zone of the session. There the first day of the year 1 may fall into the year
    0, which Python does not support, and Python may not know the name of the zone.
    """
    utc_type = _column_to_utc(values.type)
    return values if utc_type == values.type else values.cast(utc_type)


def _column_to_utc(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return data_type if data_type.tz is None else pa.timestamp(data_type.unit, tz="UTC")
    if pa.types.is_struct(data_type):
        return pa.struct([_with_utc(field) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_field, _with_utc(data_type.item_field))
    return pa.list_(_with_utc(data_type.value_field)) if pa.types.is_list(data_type) else data_type


def _with_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_column_to_utc(field.type))


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table schema.

    Raises:
        InvalidOption: as for `to_arrow`.
    """
    return pa.schema([pa.field(field.name, to_arrow(field.type)) for field in schema])


# Names that differ only in case, which Spark cannot tell apart unless the session compares names exactly.
#
# Source: docs/spark-facts.md#names


def compares_names_exactly(spark: SparkSession) -> bool:
    """Tell whether a session takes names that differ only in case for different names."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def ensure_distinct_names(spark: SparkSession, location: str, schema: StructType, mode: str) -> None:
    """Check that Spark can tell the columns in the files of a Delta table apart.

    Args:
        mode: The mode of column mapping.

    Raises:
        SimilarStoredNames: two columns have physical names that differ only in case, and the session ignores case.
    """
    similar = similar_stored_names(schema, mode)
    if similar is not None and not compares_names_exactly(spark):
        column, other = map(format_path, similar)
        raise SimilarStoredNames(location=location, column=column, other=other)
