"""Types of the model as Arrow types, for what Python workers hand to Spark.

Source: Spark's mapping of SQL types to Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from widen.errors import InvalidOption
from widen.model.types import ArrayType, AtomicType, DataType, DecimalType, MapType, StructType

_ATOMIC: Mapping[str, pa.DataType] = MappingProxyType(
    {
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
)


def to_arrow(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for a type.

    Raises:
        InvalidOption: Python workers cannot make values of that type (void, variant, an unknown one).
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
        option="the type", value=data_type.sql, expected="Columns of that type cannot be ingested into."
    )


def to_utc(values: pa.Array) -> pa.Array:
    """Return values of Spark with their points in time in UTC, where Python has all of them.

    Spark hands them over in the time zone of the session, in which the first day of the year 1 may be one before it,
    and of which Python need not know the name.
    """
    wanted = _column_to_utc(values.type)
    return values if wanted == values.type else values.cast(wanted)


def _column_to_utc(found: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(found):
        return found if found.tz is None else pa.timestamp(found.unit, tz="UTC")
    if pa.types.is_struct(found):
        return pa.struct([_with_utc(field) for field in found])
    if pa.types.is_map(found):
        return pa.map_(found.key_field, _with_utc(found.item_field))
    return pa.list_(_with_utc(found.value_field)) if pa.types.is_list(found) else found


def _with_utc(field: pa.Field) -> pa.Field:
    return field.with_type(_column_to_utc(field.type))


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table schema.

    Raises:
        InvalidOption: as for `to_arrow`.
    """
    return pa.schema([pa.field(item.name, to_arrow(item.type)) for item in schema])
