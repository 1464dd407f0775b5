"""Values of Iceberg's metadata as values of Spark: initial defaults, and the values of identity partitions.

PyIceberg gives dates as days and timestamps as microseconds since 1970.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType
from widen.spark.arrow_types import to_arrow
from widen.spark.spark_types import type_to_spark

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_COUNTED = {DATE: pa.int32(), TIMESTAMP: pa.int64(), TIMESTAMP_NTZ: pa.int64()}


def to_values(values: Iterable[Any], data_type: DataType) -> pa.Array:
    """Return values as an Arrow column of a type."""
    plain = [_plain(value) for value in values]
    if data_type in _COUNTED:
        return pa.array(plain, _COUNTED[data_type]).cast(to_arrow(data_type))
    return pa.array(plain, to_arrow(data_type))


def to_column(value: Any, data_type: DataType) -> Column:
    """Return a value as a constant of a type."""
    plain = _plain(value)
    if data_type == DATE:
        return F.date_from_unix_date(F.lit(plain))
    if data_type == TIMESTAMP:
        return F.timestamp_micros(F.lit(plain))
    if data_type == TIMESTAMP_NTZ:
        return F.lit(str(to_values([plain], data_type)[0].as_py())).cast("timestamp_ntz")
    return F.lit(plain).cast(type_to_spark(data_type))


def initial_defaults(schema: Schema) -> dict[int, Any]:
    """Return the values that old rows have in columns that their files lack, by field id."""
    fields = (schema.find_field(number) for number in schema.field_ids)
    return {field.field_id: field.initial_default for field in fields if field.initial_default is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    return (value - date(1970, 1, 1)).days if type(value) is date else value
