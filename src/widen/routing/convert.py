"""Values to column values: one row of the table for each way, exact or not at all.

A conversion that would not bring the source value back gives `MISSING`; the column then stays NULL for that value,
and another column of the field holds it.

Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from widen.model.types import DataType, DecimalType
from widen.observe.date_text import parse_date, parse_instant
from widen.observe.json_document import JsonDocument, JsonNumber
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
)
from widen.observe.observe_document import scalar_kind
from widen.planning.evolution.policy import EpochUnit
from widen.planning.evolution.type_lattice import can_route

MISSING: Final = object()
"""The column cannot hold this value exactly."""

_BITS: Mapping[str, int] = MappingProxyType({"byte": 8, "short": 16, "integer": 32, "long": 64})
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Never rounds. Arrow takes a decimal with thousands of zeros at its end for another number, so they are cut off."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_0 = _EPOCH.date()
_NANOS: Mapping[EpochUnit, int] = MappingProxyType(
    {
        EpochUnit.SECONDS: 10**9,
        EpochUnit.MILLISECONDS: 10**6,
        EpochUnit.MICROSECONDS: 10**3,
        EpochUnit.NANOSECONDS: 1,
    }
)
UNIT_BELOW = (
    (10**11, EpochUnit.SECONDS),
    (10**14, EpochUnit.MILLISECONDS),
    (10**17, EpochUnit.MICROSECONDS),
)
"""Below which magnitude a long is taken for seconds, ms or µs since the epoch; above, for ns."""


def word_of_value(value: JsonDocument) -> str:
    """Return the kind word of a scalar: boolean, long, double, decimal, date, timestamp or string."""
    return scalar_kind(value)[0]


def convert(
    value: JsonDocument, word: str, to_word: str, to_type: DataType, epoch_unit: EpochUnit | None = None
) -> Any:
    """Return a scalar as a column holds it, or `MISSING`.

    Args:
        value: A text, a boolean, or a number as its token.
        word: The kind word of the value.
        to_word: The word of the column.
        to_type: The type of the column, without arrays.
        epoch_unit: What a whole number that goes to a timestamp counts; by default its size tells.

    Returns:
        What pyarrow takes for that type: int, float, bool, str, Decimal, a date or a UTC datetime.

    Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5
    """
    if epoch_unit is not None and (word, to_word) == (LONG_WORD, TIMESTAMP_WORD):
        return epoch_to_timestamp(int(value), epoch_unit)
    conversion = CONVERSIONS.get((word, to_word))
    return MISSING if conversion is None else conversion(value, to_type)


def epoch_to_timestamp(number: int, unit: EpochUnit | None = None) -> Any:
    """Return the point in time that a whole number says, in UTC, or `MISSING` if no timestamp is it.

    Args:
        number: What has passed since the beginning of 1970.
        unit: What it counts; by default its size tells.

    Source: docs/evolution-rules.md#d5
    """
    unit = unit or next((unit for limit, unit in UNIT_BELOW if abs(number) < limit), EpochUnit.NANOSECONDS)
    micros, rest = divmod(number * _NANOS[unit], 1000)
    try:
        return MISSING if rest else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return MISSING


def _same(value: JsonDocument, _: DataType) -> Any:
    return value


def _text(value: JsonDocument, _: DataType) -> str:
    return str(value)


def _boolean_to_text(value: JsonDocument, _: DataType) -> str:
    return "true" if value else "false"


def _boolean_to_number(value: JsonDocument, to_type: DataType) -> Any:
    return _number(JsonNumber("1" if value else "0"), to_type)


def _number(value: JsonDocument, to_type: DataType) -> Any:
    if isinstance(to_type, DecimalType):
        return _to_decimal(value, to_type)
    if str(to_type) in _BITS:
        number, half = int(value), 2 ** (_BITS[str(to_type)] - 1)
        return number if -half <= number < half else MISSING
    return _to_double(value, to_type)


def _double_to_double(value: JsonDocument, to_type: DataType) -> Any:
    return float(value) if str(to_type) == "double" else _to_double(value, to_type)


def _to_double(value: JsonDocument, to_type: DataType) -> Any:
    number = float(value)
    if str(to_type) == "float":
        return number if _is_float32(number) and Decimal(value) == Decimal(number) else MISSING
    return number if Decimal(repr(number)) == Decimal(value) else MISSING


def _is_float32(number: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == number)
    except OverflowError:
        return False


def _to_decimal(value: JsonDocument, to_type: DecimalType) -> Any:
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number == 0:
        return MISSING if number.is_signed() and not value[1:].isdecimal() else Decimal(0)
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    fits = number.adjusted() + 1 <= to_type.precision - to_type.scale and exponent + trailing >= -to_type.scale
    return number.quantize(Decimal(1).scaleb(-to_type.scale), context=_EXACT) if fits else MISSING


def _to_timestamp(value: JsonDocument, _: DataType) -> Any:
    return epoch_to_timestamp(int(value))


def _day(value: JsonDocument, _: DataType) -> date:
    return parse_date(value)


def _midnight(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time(), timezone.utc)


def _midnight_anywhere(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time())


def _instant(value: JsonDocument, _: DataType) -> datetime:
    return parse_instant(value)


def _days(value: JsonDocument, to_type: DataType) -> Any:
    days = (parse_date(value) - _DAY_0).days
    return _number(JsonNumber(days), to_type) if can_route(to_type, DATE_WORD) else MISSING


def _milliseconds(value: JsonDocument, to_type: DataType) -> Any:
    ms, rest = divmod(parse_instant(value) - _EPOCH, timedelta(milliseconds=1))
    return MISSING if rest or not can_route(to_type, TIMESTAMP_WORD) else _number(JsonNumber(ms), to_type)


Conversion: TypeAlias = Callable[[JsonDocument, DataType], Any]
"""Takes a value and the type of the column; gives the column's value or `MISSING`."""

CONVERSIONS: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): _same,
        (BOOLEAN_WORD, STRING_WORD): _boolean_to_text,
        (STRING_WORD, STRING_WORD): _text,
        (LONG_WORD, TIMESTAMP_WORD): _to_timestamp,
        (DATE_WORD, DATE_WORD): _day,
        (DATE_WORD, TIMESTAMP_WORD): _midnight,
        (DATE_WORD, "timestamp_ntz"): _midnight_anywhere,
        (TIMESTAMP_WORD, TIMESTAMP_WORD): _instant,
    }
    | {(DATE_WORD, to): _days for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(TIMESTAMP_WORD, to): _milliseconds for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(BOOLEAN_WORD, to): _boolean_to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(LONG_WORD, to): _number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, to): _number for word in (DOUBLE_WORD, DECIMAL_WORD) for to in (DOUBLE_WORD, DECIMAL_WORD)}
    | {(DOUBLE_WORD, DOUBLE_WORD): _double_to_double}
    | {(word, STRING_WORD): _text for word in (LONG_WORD, DOUBLE_WORD, DECIMAL_WORD, DATE_WORD, TIMESTAMP_WORD)}
)
"""Which kind of value goes to which kind of column, and how. What is not here does not go."""
