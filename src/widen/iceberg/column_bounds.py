"""The ids of leaf columns, and their bounds in manifests as Python values.

Source: Iceberg's table specification, "Binary single-value serialization"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

from widen.model.column_path import ELEMENT, KEY, VALUE, Path
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg import conversions as ice_conversions
    from pyiceberg import types as ice_types
    from pyiceberg.schema import Schema
else:
    ice_types = import_lazily("pyiceberg.types")
    ice_conversions = import_lazily("pyiceberg.conversions")

_NARROW_BYTES = 4
"""The length of bounds that were written before the column became a long or a double."""


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """A leaf column as manifests know it."""

    number: int
    type: Any


def column_ids(schema: Schema) -> Mapping[Path, ColumnIds]:
    """Return the leaf columns of a schema by their paths in the model."""
    return dict(_below((), schema.as_struct(), -1))


def _below(path: Path, data_type: Any, number: int) -> Iterator[tuple[Path, ColumnIds]]:
    match data_type:
        case ice_types.StructType(fields=fields):
            for each in fields:
                yield from _below((*path, each.name), each.field_type, each.field_id)
        case ice_types.ListType():
            yield from _below((*path, ELEMENT), data_type.element_type, data_type.element_id)
        case ice_types.MapType():
            yield from _below((*path, KEY), data_type.key_type, data_type.key_id)
            yield from _below((*path, VALUE), data_type.value_type, data_type.value_id)
        case _:
            yield path, ColumnIds(number, data_type)


def read_bound(column: ColumnIds, bound: bytes | None) -> Any:
    """Return a bound as a Python value; None if there is none, or it has no simple value.

    Args:
        bound: The bound in the manifest.

    Example:
        >>> from pyiceberg.types import LongType
        >>> read_bound(ColumnIds(1, LongType()), bytes([7, 0, 0, 0]))
        7
    """
    if bound is None:
        return None
    data_type = column.type
    if len(bound) == _NARROW_BYTES:
        narrow = {ice_types.LongType(): ice_types.IntegerType(), ice_types.DoubleType(): ice_types.FloatType()}
        data_type = narrow.get(data_type, data_type)
    try:
        value: Any = ice_conversions.from_bytes(data_type, bound)
    except (ValueError, UnicodeDecodeError):  # a truncated string may end within a character
        return None
    match data_type:
        case ice_types.DateType():
            return date.fromordinal(date(1970, 1, 1).toordinal() + value)
        case ice_types.TimestampType() | ice_types.TimestamptzType():
            return _to_datetime(value, has_zone=isinstance(data_type, ice_types.TimestamptzType))
        case ice_types.BinaryType() | ice_types.FixedType() | ice_types.UUIDType():
            return None
    return value


def _to_datetime(micros: int, *, has_zone: bool) -> datetime | None:
    try:
        moment = datetime.fromtimestamp(micros // 1_000_000, timezone.utc).replace(microsecond=micros % 1_000_000)
    except (ValueError, OverflowError):
        return None
    return moment if has_zone else moment.replace(tzinfo=None)
