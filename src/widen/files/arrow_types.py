"""Types of the model as Arrow types; apart from Spark's types, because local reading works without PySpark.

Source: Spark's mapping of SQL types to Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidOption
from widen.model.column_path import map_children
from widen.model.types import (
    STRING,
    VARIANT,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    MapType,
    OpaqueType,
    StructType,
    quote_name,
)
from widen.spark.spark_types import Column, DataFrame, F

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


COPIED: Mapping[str, pa.DataType] = {
    "time": pa.time64("us"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
}
"""Iceberg's types that Spark does not have, and whose values Arrow copies."""

_LONG = pa.int64()


def to_arrow(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for a type of the model.

    Raises:
        InvalidOption: Python workers cannot make values of that type (variant or an unknown type).
    """
    match data_type:
        case AtomicType(name) if name in _ATOMIC:
            return _ATOMIC[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case AtomicType("void"):  # all of its values are null, and no file has them
            return pa.null()
        case OpaqueType(name) if name in COPIED:
            return COPIED[name]
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


def count_up(count: int, first: int = 0, data_type: pa.DataType = _LONG) -> pa.Array:
    """Return consecutive integers. Arrow makes them a hundred times faster than it reads them from a `range`."""
    one = pa.scalar(1, data_type)
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count), start=first), one)


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as one array; they are copied only if they are in several."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table schema."""
    return pa.schema([pa.field(field.name, to_arrow(field.type)) for field in schema])


def stored_type(found: pa.DataType) -> pa.DataType:
    """Return the type of values of a Parquet file as Spark has it.

    Views, dictionaries and 64-bit offsets are Arrow's own. Unsigned numbers are in the next wider type, and bytes have
    any length.

    Source: Spark's ParquetSchemaConverter
    """
    if pa.types.is_struct(found):
        return pa.struct([each.with_type(stored_type(each.type)) for each in found])
    if pa.types.is_map(found):
        return pa.map_(stored_type(found.key_type), stored_type(found.item_type))
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return pa.list_(found.value_field.with_type(stored_type(found.value_type)))
    if pa.types.is_dictionary(found):
        return stored_type(found.value_type)
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_large_binary(found) or pa.types.is_binary_view(found) or pa.types.is_fixed_size_binary(found):
        return pa.binary()
    return _UNSIGNED.get(found, found)


_UNSIGNED: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


# Return variants as JSON text: Arrow would expose two opaque binary fields.


def variants_to_text(rows: DataFrame, schema: StructType) -> tuple[DataFrame, StructType]:
    """Return rows with JSON text instead of variants, at any depth, and their schema."""
    result = cast(StructType, _without_variants(schema))
    if result == schema:
        return rows, schema
    columns = [_to_text(F.col(quote_name(field.name)), field.type).alias(field.name) for field in schema]
    return rows.select(*columns), result


def _without_variants(data_type: DataType) -> DataType:
    return map_children(data_type, lambda _, child: STRING if child == VARIANT else _without_variants(child))


def _to_text(values: Column, data_type: DataType) -> Column:
    if data_type == VARIANT:
        return F.to_json(values)
    if _without_variants(data_type) == data_type:
        return values
    match data_type:
        case StructType(fields):
            inner = [_to_text(values.getField(field.name), field.type).alias(field.name) for field in fields]
            return F.when(values.isNotNull(), F.struct(*inner))
        case ArrayType(element):
            return F.transform(values, lambda item: _to_text(item, element))
        case MapType(_, value):
            return F.transform_values(values, lambda _, item: _to_text(item, value))
    return values
