"""Values of Iceberg's metadata as values of Spark: initial defaults, and the values of identity partitions.

PyIceberg gives dates of partitions as days and times as microseconds since 1970, those of defaults as Python's.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.errors import CorruptMetadata
from widen.model.column_path import KEY, Path
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    StructType,
    quote_name,
)
from widen.spark.arrow_types import to_arrow
from widen.spark.spark_types import type_to_spark

if TYPE_CHECKING:
    from pyiceberg import types as ice_types
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType
else:
    ice_types = import_lazily("pyiceberg.types")

_COUNTED = {DATE: pa.int32(), TIMESTAMP: pa.int64(), TIMESTAMP_NTZ: pa.int64()}
_DAY_MICROS = 86_400_000_000


def to_values(values: Iterable[Any], data_type: DataType) -> pa.Array:
    """Return values as an Arrow column of a type."""
    plain = [_plain(value) for value in values]
    if data_type in _COUNTED:
        return pa.array(plain, _COUNTED[data_type]).cast(to_arrow(data_type))
    return pa.array(plain, to_arrow(data_type))


def to_column(value: Any, data_type: DataType) -> Column:
    """Return a value as a constant of a type. A struct is a dict of its fields by name, in their order."""
    plain = _plain(value)
    match data_type:
        case StructType():
            fields = [to_column(plain[field.name], field.type).alias(field.name) for field in data_type]
            return F.struct(*fields).cast(type_to_spark(data_type))
        case AtomicType() if plain is None:
            return F.lit(None).cast(type_to_spark(data_type))
    if data_type == DATE:
        return F.date_from_unix_date(F.lit(plain))
    if data_type == TIMESTAMP:
        return F.timestamp_micros(F.lit(plain))
    if data_type == TIMESTAMP_NTZ:
        # As an interval since 1970: texts and Python's times end with the year 9999.
        days, micros = divmod(plain, _DAY_MICROS)
        seconds = F.lit(Decimal(micros) / 1_000_000).cast("decimal(18,6)")
        return F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(F.lit(days), secs=seconds)
    return F.lit(plain).cast(type_to_spark(data_type))


def place_constants(column: Column, data_type: DataType, values: Mapping[Path, Column]) -> Column:
    """Return a column with constants at paths; null structs, lists and maps stay null.

    All at once: Spark repeats an expression for each time that a column is changed and read again.

    Args:
        values: The constants by the steps below the column: fields of structs, elements of lists, keys and values of
            maps. A path without steps is the only one.
    """
    if () in values:
        return values[()]
    below: dict[str, dict[Path, Column]] = {}
    for path, value in values.items():
        below.setdefault(path[0], {})[path[1:]] = value
    if isinstance(data_type, StructType):
        return _place_in_struct(column, data_type, below)
    for step, inner in below.items():
        column = _place_in_items(column, data_type, step, inner)
    return column


def _place_in_items(column: Column, data_type: DataType, step: str, inner: Mapping[Path, Column]) -> Column:
    match data_type:
        case ArrayType(element):
            return F.transform(column, lambda item: place_constants(item, element, inner))
        case MapType(key, _) if step == KEY:
            return F.transform_keys(column, lambda item, _: place_constants(item, key, inner))
        case MapType(_, value):
            return F.transform_values(column, lambda _, item: place_constants(item, value, inner))
    return column


def _place_in_struct(column: Column, data_type: StructType, below: Mapping[str, Mapping[Path, Column]]) -> Column:
    types = {field.name: field.type for field in data_type}
    changed = column
    for step, inner in below.items():
        changed = changed.withField(quote_name(step), place_constants(column.getField(step), types[step], inner))
    return changed


# ---- initial defaults -----------------------------------------------------------------------------


def initial_defaults(schema: Schema, location: str) -> dict[int, Any]:
    """Return the values that old rows have in columns that their files lack, by field id.

    Args:
        location: The table, for the error.

    Raises:
        CorruptMetadata: a default is not a value of the type of its column.
    """
    defaults = {}
    for number in schema.field_ids:
        field = schema.find_field(number)
        if field.initial_default is not None:
            value = _default_of(field.field_type, field.initial_default)
            if value is None:
                name = f"initial-default of the column {field.name}"
                reason = f"{field.initial_default!r} is not a value of the type {field.field_type}"
                raise CorruptMetadata(location=location, name=name, reason=reason, fix=_FIX)
            defaults[number] = value
    return defaults


_FIX = "Set another default with the client that made it."


def _default_of(data_type: IcebergType, value: Any) -> Any:
    """Return a default as `to_column` takes it; None if it is not a value of its type.

    A default of a struct names no fields: each field has its own default.

    Source: Iceberg's table specification, "Default values"
    """
    if isinstance(data_type, ice_types.StructType):
        return {
            each.name: None if each.initial_default is None else _default_of(each.field_type, each.initial_default)
            for each in data_type.fields
        }
    plain = _plain(value)
    expected = _TYPES.get(type(data_type).__name__, ())
    return plain if type(plain) in expected else None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "BooleanType": (bool,),
    **dict.fromkeys(("IntegerType", "LongType", "DateType", "TimestampType", "TimestamptzType"), (int,)),
    **dict.fromkeys(("FloatType", "DoubleType"), (int, float)),
    "DecimalType": (Decimal, int),
    "StringType": (str,),
    **dict.fromkeys(("BinaryType", "FixedType", "UUIDType"), (bytes,)),
}
"""The types of the values that `_plain` returns for each type of Iceberg."""


def _plain(value: Any) -> Any:
    """Return a value of PyIceberg with dates as days and times as microseconds since 1970."""
    match value:
        case UUID():
            return value.bytes
        case datetime():
            return (value.replace(tzinfo=value.tzinfo or timezone.utc) - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH.date()).days
    return value


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
