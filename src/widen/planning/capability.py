"""What each table format can widen in place, in one table.

Source: PROTOCOL.md#type-widening; Iceberg's table specification, "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType

from widen.model.type import DATE, DOUBLE, FLOAT, INTEGER, LONG, TIMESTAMP_NTZ, DataType, DecimalType
from widen.protocol.widening import is_iceberg_compatible, is_widening


class TableFormat(str, Enum):
    """The formats that a table may have to satisfy."""

    DELTA = "delta"
    DELTA_FIXED = "delta-without-type-widening"
    DELTA_ICEBERG_COMPAT = "delta-iceberg-compat"
    ICEBERG_V2 = "iceberg-v2"
    ICEBERG_V3 = "iceberg-v3"


ICEBERG_V2_PROMOTIONS = frozenset({(INTEGER, LONG), (FLOAT, DOUBLE)})
"""Iceberg's promotions of every version; of decimals the precision may grow too."""

ICEBERG_V3_PROMOTIONS = ICEBERG_V2_PROMOTIONS | {(DATE, TIMESTAMP_NTZ)}
"""What version 3 adds; Iceberg's ``timestamp`` is the one without a zone."""


def _in_iceberg_v2(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V2_PROMOTIONS or _is_longer_decimal(old, new)


def _in_iceberg_v3(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V3_PROMOTIONS or _is_longer_decimal(old, new)


def _is_longer_decimal(old: DataType, new: DataType) -> bool:
    both = isinstance(old, DecimalType) and isinstance(new, DecimalType)
    return both and old.scale == new.scale and old.precision < new.precision  # type: ignore[union-attr]


def _never(old: DataType, new: DataType) -> bool:
    return False


CAPABILITIES: Mapping[TableFormat, Callable[[DataType, DataType], bool]] = MappingProxyType(
    {
        TableFormat.DELTA: is_widening,
        TableFormat.DELTA_FIXED: _never,
        TableFormat.DELTA_ICEBERG_COMPAT: is_iceberg_compatible,
        TableFormat.ICEBERG_V2: _in_iceberg_v2,
        TableFormat.ICEBERG_V3: _in_iceberg_v3,
    }
)
"""For each format: whether it widens a leaf from one type to the other without rewriting."""


def can_widen(table_format: TableFormat, old: DataType, new: DataType) -> bool:
    """Tell whether tables of the format can widen a leaf from one type to the other in place."""
    return CAPABILITIES[table_format](old, new)
