"""The values that cannot become partition values: their rows are refused, or quarantined.

Source: Iceberg's table specification, "Partition Transforms".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from widen.iceberg.partitions import IDENTITY, PartitionField, decode_partition
from widen.model.column_path import format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import INTEGER, LONG, DataType, DecimalType, StructType

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

iceberg_typedef = import_lazily("pyiceberg.typedef")


def truncation_limits(fields: Iterable[PartitionField], schema: StructType) -> Mapping[str, str]:
    """Return the conditions in SQL under which numbers can be truncated, by the partition field.

    A type does not hold the multiple of the width below its smallest values. Iceberg for Spark lets integers overflow
    there, and then skips their files although they have rows that it looks for.

    Args:
        schema: The columns of the table.

    Source: Iceberg's table specification, "Truncate Transform Details".
    """
    limits = {}
    for each in fields:
        data_type = resolve(schema, each.source)[1] if each.transform == "truncate" else None
        decimals = data_type.scale if isinstance(data_type, DecimalType) else 0
        smallest = 1 - 10**data_type.precision if isinstance(data_type, DecimalType) else _SMALLEST.get(data_type)
        if smallest is not None and smallest % each.size:
            limit = Decimal((1, tuple(map(int, str(-smallest // each.size * each.size))), -decimals))
            column = format_path(each.source)
            limits[f"partition field {each.name}"] = f"{column} IS NULL OR {column} >= {limit:f}"
    return limits


_SMALLEST: Mapping[DataType | None, int] = {INTEGER: -(2**31), LONG: -(2**63)}


def calendar_limits(fields: Iterable[PartitionField], schema: StructType) -> Mapping[str, str]:
    """Return the conditions in SQL under which PyIceberg can commit dates and times, by the partition field.

    It writes days, hours and the values themselves with Python's calendar into the summary of a snapshot.

    Args:
        schema: The columns of the table.
    """
    limits = {}
    for each in fields:
        data_type = resolve(schema, each.source)[1] if each.transform in _IN_CALENDAR else None
        condition = _CALENDAR.get(str(data_type))
        if condition is not None:
            column = format_path(each.source)
            limits[f"partition field {each.name}"] = f"{column} IS NULL OR {column} BETWEEN {condition}"
    return limits


_IN_CALENDAR = frozenset({IDENTITY, "day", "hour"})
_CALENDAR: Mapping[str, str] = {
    "date": "DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def are_in_calendar(partitions: Iterable[str], metadata: TableMetadata) -> bool:
    """Tell whether PyIceberg can commit files with these partition values; see `calendar_limits`.

    Args:
        partitions: The values of files as `encode_partition` returns them.
    """
    spec, schema = metadata.spec(), metadata.schema()
    try:
        for text in dict.fromkeys(partitions):
            spec.partition_to_path(iceberg_typedef.Record(*decode_partition(text)), schema)
    except OverflowError:
        return False
    return True
