"""Values to column values: one row of the table for each way, exact or not at all.

A conversion that would not bring the source value back gives `MISSING`; the column then stays NULL for that value,
and another column of the field holds it.

Source: spec of evolution, conversion lattice, D2, D3, D5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from widen.model.type import DataType, DecimalType
from widen.observe.document import Document, Number
from widen.observe.kind import (
    BOOLEAN_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
)
from widen.observe.number import number_kind

MISSING: Final = object()
"""The column cannot hold this value exactly."""

_BITS: Mapping[str, int] = MappingProxyType({"byte": 8, "short": 16, "integer": 32, "long": 64})
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Never rounds. Arrow takes a decimal with thousands of zeros at its end for another number, so they are cut off."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_UNITS = ((10**11, 10**6), (10**14, 10**3), (10**17, 1))
"""Below which magnitude a long is taken for seconds, ms or µs since the epoch, with the µs in one; above, for ns."""


def word_of_value(value: Document) -> str:
    """Return the kind word of a scalar: boolean, long, double, decimal or string."""
    if isinstance(value, Number):
        return number_kind(value)[0]
    return STRING_WORD if isinstance(value, str) else BOOLEAN_WORD


def convert(value: Document, word: str, to_word: str, to_type: DataType) -> Any:
    """Return a scalar as a column holds it, or `MISSING`.

    Args:
        value: A text, a boolean, or a number as its token.
        word: The kind word of the value.
        to_word: The word of the column.
        to_type: The type of the column, without arrays.

    Returns:
        What pyarrow takes for that type: int, float, bool, str, Decimal or a UTC datetime.

    Source: spec of evolution, conversion lattice, D2, D3.
    """
    conversion = CONVERSIONS.get((word, to_word))
    return MISSING if conversion is None else conversion(value, to_type)


def _same(value: Document, _: DataType) -> Any:
    return value


def _text(value: Document, _: DataType) -> str:
    return str(value)


def _boolean_to_text(value: Document, _: DataType) -> str:
    return "true" if value else "false"


def _boolean_to_number(value: Document, to_type: DataType) -> Any:
    return _number(Number("1" if value else "0"), to_type)


def _number(value: Document, to_type: DataType) -> Any:
    if isinstance(to_type, DecimalType):
        return _to_decimal(value, to_type)
    if str(to_type) in _BITS:
        number, half = int(value), 2 ** (_BITS[str(to_type)] - 1)
        return number if -half <= number < half else MISSING
    return _to_double(value, to_type)


def _double_to_double(value: Document, to_type: DataType) -> Any:
    return float(value) if str(to_type) == "double" else _to_double(value, to_type)


def _to_double(value: Document, to_type: DataType) -> Any:
    number = float(value)
    if str(to_type) == "float":
        return number if _is_float32(number) and Decimal(value) == Decimal(number) else MISSING
    return number if Decimal(repr(number)) == Decimal(value) else MISSING


def _is_float32(number: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == number)
    except OverflowError:
        return False


def _to_decimal(value: Document, to_type: DecimalType) -> Any:
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number == 0:
        return MISSING if number.is_signed() and not value[1:].isdecimal() else Decimal(0)
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    fits = number.adjusted() + 1 <= to_type.precision - to_type.scale and exponent + trailing >= -to_type.scale
    return number.quantize(Decimal(1).scaleb(-to_type.scale), context=_EXACT) if fits else MISSING


def _to_timestamp(value: Document, _: DataType) -> Any:
    number = int(value)
    for limit, micros in _EPOCH_UNITS:
        if abs(number) < limit:
            number *= micros
            break
    else:
        number, rest = divmod(number, 1000)
        if rest:
            return MISSING
    try:
        return _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        return MISSING


Conversion: TypeAlias = Callable[[Document, DataType], Any]
"""Takes a value and the type of the column; gives the column's value or `MISSING`."""

CONVERSIONS: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): _same,
        (BOOLEAN_WORD, STRING_WORD): _boolean_to_text,
        (STRING_WORD, STRING_WORD): _text,
        (LONG_WORD, TIMESTAMP_WORD): _to_timestamp,
    }
    | {(BOOLEAN_WORD, to): _boolean_to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(LONG_WORD, to): _number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, to): _number for word in (DOUBLE_WORD, DECIMAL_WORD) for to in (DOUBLE_WORD, DECIMAL_WORD)}
    | {(DOUBLE_WORD, DOUBLE_WORD): _double_to_double}
    | {(word, STRING_WORD): _text for word in (LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
)
"""Which kind of value goes to which kind of column, and how. What is not here does not go."""
