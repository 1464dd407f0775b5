"""Values of Iceberg's metadata as values of Spark: initial defaults, and the values of identity partitions.

PyIceberg gives dates as days and timestamps as microseconds since 1970.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.errors import CorruptMetadata
from widen.model.column_path import KEY, Path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    Field,
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


def place_constant(column: Column, data_type: DataType, path: Path, value: Column) -> Column:
    """Return a column with a constant at a path; null structs, lists and maps stay null.

    Args:
        path: The steps below the column: fields of structs, elements of lists, keys and values of maps.
    """
    if not path:
        return value
    step, below = path[0], path[1:]
    match data_type:
        case ArrayType(element):
            return F.transform(column, lambda item: place_constant(item, element, below, value))
        case MapType(key, _) if step == KEY:
            return F.transform_keys(column, lambda item, _: place_constant(item, key, below, value))
        case MapType(_, item_type):
            return F.transform_values(column, lambda _, item: place_constant(item, item_type, below, value))
    below_type = resolve(StructType((Field("", data_type),)), ("", step))[1]
    return column.withField(quote_name(step), place_constant(column.getField(step), below_type, below, value))


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
            try:
                value = _default_of(field.field_type, field.initial_default)
            except (ValueError, ArithmeticError):
                value = None
            if value is None:
                name = f"initial-default of the column {field.name}"
                reason = f"{field.initial_default!r} is not a value of the type {field.field_type}"
                raise CorruptMetadata(location=location, name=name, reason=reason, fix=_FIX)
            defaults[number] = value
    return defaults


_FIX = "Set another default with the client that made it."


def _default_of(data_type: IcebergType, value: Any) -> Any:
    """Return a default as `to_column` takes it: in metadata, dates, times, decimals and bytes are texts.

    A default of a struct names no fields: each field has its own default.

    Source: Iceberg's table specification, "JSON single-value serialization" and "Default values"
    """
    if isinstance(data_type, ice_types.StructType):
        return {each.name: _default_of(each.field_type, each.initial_default) for each in data_type.fields}
    if not isinstance(value, str):
        return value
    match data_type:
        case ice_types.DateType():
            micros = _to_micros(value)
            return None if micros is None else micros // _DAY_MICROS
        case ice_types.TimestampType() | ice_types.TimestamptzType():
            return _to_micros(value)
        case ice_types.DecimalType():
            return Decimal(value)
        case ice_types.UUIDType():
            return UUID(value).bytes
        case ice_types.BinaryType() | ice_types.FixedType():
            return bytes.fromhex(value)
    return value


_TIME = re.compile(
    r"([+-]?\d+)-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?)?(?:Z|([+-]\d\d):(\d\d))?", re.ASCII
)
_YEARS, _DAYS_OF_YEARS = 400, 146_097
"""After so many years the calendar repeats: Python's dates end with the year 9999."""


def _to_micros(text: str) -> int | None:
    """Return the microseconds since 1970 of a date or a time; None if the text is neither."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, *time = (int(part or 0) for part in match.groups()[:6])
    cycles, year_in_cycle = divmod(year - 1, _YEARS)
    days = (date(year_in_cycle + 1, month, day) - date(1970, 1, 1)).days + cycles * _DAYS_OF_YEARS
    seconds = (time[0] * 60 + time[1]) * 60 + time[2]
    hours, minutes = match[8] or "+00", int(match[9] or 0)
    offset = int(hours) * 60 + (-minutes if hours[0] == "-" else minutes)
    return days * _DAY_MICROS + (seconds - offset * 60) * 1_000_000 + int((match[7] or "").ljust(6, "0"))


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    return (value - date(1970, 1, 1)).days if type(value) is date else value
