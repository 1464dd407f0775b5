"""Scalars of one type as those of another, as expressions: exact, or null.

A conversion that would not bring the value back gives null; then another column of the field holds it.

Source: docs/evolution-rules.md#d2, #d5, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import DATE, DOUBLE, LONG, STRING, TIMESTAMP, DataType, DecimalType
from widen.observe.observe_schema import type_facts
from widen.planning.evolution.policy import EpochUnit
from widen.planning.evolution.type_lattice import can_route
from widen.protocol.type_widening import is_widening
from widen.routing.convert import UNIT_BELOW
from widen.spark.spark_types import type_to_spark
from widen.spark.write.physical_layout import partition_text

EXACT_LONG, EXACT_FLOAT = 2**53, 2**24
"""Up to here every whole number is a double, or a float."""

_DAY_MICROS = 86_400_000_000
_FIRST_MICROS, _LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 and 9999, between which a timestamp lies everywhere."""

_MICROS: Mapping[EpochUnit, tuple[int, int]] = MappingProxyType(
    {
        EpochUnit.SECONDS: (1_000_000, 1),
        EpochUnit.MILLISECONDS: (1_000, 1),
        EpochUnit.MICROSECONDS: (1, 1),
        EpochUnit.NANOSECONDS: (1, 1_000),
    }
)
"""What to multiply a number by, and what to divide it by, to count microseconds."""

Conversion: TypeAlias = Callable[[Column, DataType, DataType], Column]
"""Takes values, their type and the type to convert them to."""


def convert_exactly(values: Column, old: DataType, new: DataType, unit: EpochUnit | None = None) -> Column | None:
    """Return scalars as a column of a type holds them, null where it cannot; None if it takes none of that type.

    Args:
        values: The scalars.
        old: Their type.
        new: The type of the column.
        unit: What whole numbers count that go to a timestamp; by default their size tells.

    Source: docs/evolution-rules.md#u14, #u16, #d2
    """
    if holds_every_value(old, new):
        return values if old == new else _TOTAL.get((str(old), str(new)), _cast)(values, old, new)
    told = type_facts(old)
    if told is None or not can_route(new, told[0]):
        return None
    if (told[0], new) == ("long", TIMESTAMP):
        return epoch_to_timestamp(values, unit)
    return _PARTIAL[told[0], _family(new)](values, old, new)


def holds_every_value(old: DataType, new: DataType) -> bool:
    """Tell whether a column of a type holds every value of another type."""
    told = type_facts(old)
    if old == new or is_widening(old, new) or told is None:
        return old == new or is_widening(old, new)
    return can_route(new, told[0]) and (new == STRING or (str(old), str(new)) in _TOTAL)


def epoch_to_timestamp(values: Column, unit: EpochUnit | None = None) -> Column:
    """Return the points in time that whole numbers are.

    Source: docs/evolution-rules.md#u16, #d5
    """
    wide = values.cast("decimal(38,0)")
    if unit is not None:
        return _instant(wide, unit)
    found = _instant(wide, EpochUnit.NANOSECONDS)
    for limit, each in reversed(UNIT_BELOW):
        found = F.when(F.abs(wide) < F.lit(limit), _instant(wide, each)).otherwise(found)
    return found


def is_exact_double(values: Column, data_type: DataType) -> Column:
    """Tell of numbers whether the shortest text of the nearest double says the same number."""
    if isinstance(data_type, DecimalType):
        return values.cast("double").try_cast(type_to_spark(data_type)) == values
    is_small = (values >= F.lit(-EXACT_LONG)) & (values <= F.lit(EXACT_LONG))
    return is_small | (values.cast("double").cast("decimal(38,0)") == values.cast("decimal(38,0)"))


def is_whole_ms(values: Column) -> Column:
    """Tell of points in time whether they are whole numbers of milliseconds."""
    return F.pmod(F.unix_micros(values), F.lit(1000)) == 0


def _family(new: DataType) -> str:
    return "decimal" if isinstance(new, DecimalType) else str(new)


def _cast(values: Column, old: DataType, new: DataType) -> Column:
    return values.cast(type_to_spark(new))


def _try_cast(values: Column, old: DataType, new: DataType) -> Column:
    return values.try_cast(type_to_spark(new))


def _back(values: Column, old: DataType, new: DataType) -> Column:
    """Return what comes back as it was."""
    there = values.try_cast(type_to_spark(new))
    return F.when(there.try_cast(type_to_spark(old)) == values, there)


def _unsigned(values: Column, old: DataType, new: DataType) -> Column:
    """Return what comes back as it was, which -0.0 does not from a decimal."""
    return F.when(values.cast("string") != F.lit("-0.0"), _back(values, old, new))


def _long_to_double(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(is_exact_double(values, old), values.cast("double"))


def _small(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(F.abs(values.cast("decimal(38,0)")) <= F.lit(EXACT_FLOAT), values.cast("float"))


def _bit(values: Column, old: DataType, new: DataType) -> Column:
    return values.cast("int").try_cast(type_to_spark(new))


def _days(values: Column, old: DataType, new: DataType) -> Column:
    return F.unix_date(values).try_cast(type_to_spark(new))


def _midnight(values: Column, old: DataType, new: DataType) -> Column:
    return F.timestamp_micros(F.unix_date(values).cast("bigint") * F.lit(_DAY_MICROS))


def _ms(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(is_whole_ms(values), F.unix_millis(values)).try_cast(type_to_spark(new))


def _instant_text(values: Column, old: DataType, new: DataType) -> Column:
    return partition_text(values, old)


def _local_text(values: Column, old: DataType, new: DataType) -> Column:
    return F.replace(values.cast("string"), F.lit(" "), F.lit("T"))


def _instant(numbers: Column, unit: EpochUnit) -> Column:
    times, over = _MICROS[unit]
    micros = numbers * F.lit(times) if over == 1 else F.floor(numbers / F.lit(over))
    is_whole = F.lit(True) if over == 1 else numbers % F.lit(over) == 0
    is_there = is_whole & micros.between(_FIRST_MICROS, _LAST_MICROS)
    return F.timestamp_micros(F.when(is_there, micros.cast("bigint")))


_TOTAL: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        (str(DATE), str(TIMESTAMP)): _midnight,
        (str(DATE), "integer"): _days,
        (str(DATE), str(LONG)): _days,
        (str(DATE), str(DOUBLE)): _days,
        (str(TIMESTAMP), str(STRING)): _instant_text,
        ("timestamp_ntz", str(STRING)): _local_text,
    }
    | {("boolean", name): _bit for name in ("byte", "short", "integer", "long", "float", "double")}
)
"""The conversions of types that lose no value; where none is named, a cast is one."""

_PARTIAL: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        ("boolean", "decimal"): _bit,
        ("date", "decimal"): _days,
        ("long", "decimal"): _try_cast,
        ("long", "double"): _long_to_double,
        ("long", "float"): _small,
        ("double", "float"): _back,
        ("double", "decimal"): _unsigned,
        ("decimal", "decimal"): _back,
        ("decimal", "double"): _back,
        ("decimal", "float"): _back,
    }
    | {("long", name): _try_cast for name in ("byte", "short", "integer", "long")}
    | {("timestamp", name): _ms for name in ("long", "double", "decimal")}
)
"""The conversions that lose some values of the type, by the kind and the type to convert to: those are null."""
