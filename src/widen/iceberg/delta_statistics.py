"""Statistics of files in the log of a Delta table, as counts and bounds of Iceberg.

Source: PROTOCOL.md#per-file-statistics; Iceberg's table specification, "Binary single-value serialization"
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from widen.iceberg.file_metrics import DECIMAL, encode_value, leaf_ids
from widen.model.column_path import Path, leaves
from widen.model.types import DecimalType, StructType
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.partition_values import parse_timestamp
from widen.protocol.skipping.file_statistics import value_at


@dataclass(frozen=True)
class StatisticsColumn:
    """A column with statistics.

    Args:
        path: Its path in the statistics, in physical names.
        encode: Returns a bound in Iceberg's binary form, given the value in the log, which was decoded with decimals
            for fractions, and whether it is the upper one; None if there are no bounds of this type.
    """

    number: int
    path: Path
    encode: Callable[[Any, bool], bytes | None] | None


def statistics_columns(schema: StructType, mode: str) -> Iterator[StatisticsColumn]:
    """Yield the columns that can have statistics: leaves outside of arrays and maps.

    Args:
        schema: The columns, with field ids.
    """
    for (path, data_type), (_, number, is_repeated) in zip(leaves(schema), leaf_ids(schema), strict=True):
        if not is_repeated:
            name = str(data_type)
            encode = _decimal_encoder(data_type) if isinstance(data_type, DecimalType) else _ENCODERS.get(name)
            yield StatisticsColumn(number, to_physical_path(schema, path, mode), encode)


def null_counts(columns: Iterable[StatisticsColumn], nulls: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of nulls of each column by field id, as far as the log has it."""
    for leaf in columns:
        count = value_at(nulls, leaf.path)
        if isinstance(count, int):
            yield leaf.number, count


def bounds(columns: Iterable[StatisticsColumn], values: Any, *, is_upper: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the bounds of each column by field id in Iceberg's binary form, as far as the log has them."""
    for leaf in columns:
        value = None if leaf.encode is None else value_at(values, leaf.path)
        bound = leaf.encode(value, is_upper) if value is not None and leaf.encode is not None else None
        if bound is not None:
            yield leaf.number, bound


def _number_encoder(form: str) -> Callable[[Any, bool], bytes | None]:
    def encode(value: Any, is_upper: bool) -> bytes | None:
        return struct.pack(form, value) if isinstance(value, int) else None

    return encode


def _encode_double(value: Any, is_upper: bool) -> bytes | None:
    return struct.pack("<d", float(value)) if isinstance(value, (int, Decimal)) else None


def _encode_float(value: Any, is_upper: bool) -> bytes | None:
    """Return a bound only where it is exactly a float, for the text in the log may be rounded."""
    if not isinstance(value, (int, Decimal)) or not -3e38 < float(value) < 3e38:
        return None
    data = struct.pack("<f", float(value))
    return data if struct.unpack("<f", data)[0] == float(value) else None


def _encode_date(value: Any, is_upper: bool) -> bytes | None:
    try:
        return struct.pack("<i", (date.fromisoformat(value) - EPOCH.date()).days)
    except (ValueError, TypeError):
        return None


def _encode_time(value: Any, is_upper: bool) -> bytes | None:
    """Return a bound in microseconds. Delta cuts off what is below a millisecond, so the upper one is rounded up.

    Source: PROTOCOL.md#per-file-statistics
    """
    moment = parse_timestamp(value) if isinstance(value, str) else None
    return None if moment is None else struct.pack("<q", to_micros(moment) + (999 if is_upper else 0))


def _encode_text(value: Any, is_upper: bool) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _decimal_encoder(data_type: DecimalType) -> Callable[[Any, bool], bytes | None]:
    def encode(value: Any, is_upper: bool) -> bytes | None:
        if not isinstance(value, (int, Decimal)):
            return None
        rounding = ROUND_CEILING if is_upper else ROUND_FLOOR
        unscaled = Decimal(value).scaleb(data_type.scale).to_integral_value(rounding)
        return encode_value(DECIMAL, int(unscaled))

    return encode


_ENCODERS: Mapping[str, Callable[[Any, bool], bytes | None]] = {
    **dict.fromkeys(("byte", "short", "integer"), _number_encoder("<i")),
    "long": _number_encoder("<q"),
    "float": _encode_float,
    "double": _encode_double,
    "string": _encode_text,
    "date": _encode_date,
    "timestamp": _encode_time,
    "timestamp_ntz": _encode_time,
}
"""For each type, how a bound in the log becomes Iceberg's; None if it is not a bound."""

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_micros(moment: datetime) -> int:
    """Return a time in microseconds since 1970; UTC is the default zone."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1)
