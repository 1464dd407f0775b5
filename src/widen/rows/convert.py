"""Conversions of values to column values, as a table: exact or not at all.

If a conversion would not give the source value back, the result is `MISSING`. The column is then NULL for the value,
and another column of the field holds it.

Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, TypeAlias

from widen.evolution.policy import EpochUnit
from widen.evolution.type_lattice import can_route
from widen.json.document import JsonDocument, JsonNumber, parse_document
from widen.json.kinds import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    NUMBER_WORDS,
    STRING_WORD,
    TIMESTAMP_WORD,
    leaf_and_dim,
    parse_date,
    parse_instant,
    parse_local_time,
    parse_temporal,
    word_of,
)
from widen.json.observation import scalar_kind
from widen.model.types import STRING, DataType, DecimalType
from widen.protocol.partition_values import is_float32

MISSING: Final = object()
"""The column cannot hold this value exactly."""

_BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Never rounds. Arrow misreads a decimal with thousands of trailing zeros, so quantize cuts them off."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_0 = _EPOCH.date()
_NANOS: Mapping[EpochUnit, int] = {
    EpochUnit.SECONDS: 10**9,
    EpochUnit.MILLISECONDS: 10**6,
    EpochUnit.MICROSECONDS: 10**3,
    EpochUnit.NANOSECONDS: 1,
}
EPOCH_UNIT_LIMITS = (
    (10**11, EpochUnit.SECONDS),
    (10**14, EpochUnit.MILLISECONDS),
    (10**17, EpochUnit.MICROSECONDS),
)
"""The magnitude below which an integer counts seconds, ms or µs since 1970; from the last limit on it counts ns."""


def word_of_value(value: JsonDocument) -> str:
    """Return the kind word of a scalar: boolean, long, double, decimal, date, timestamp, timestamp_ntz or string."""
    return scalar_kind(value)[0]


def convert(
    value: JsonDocument, word: str, to_word: str, to_type: DataType, epoch_unit: EpochUnit | None = None
) -> Any:
    """Return the column value of a scalar, or `MISSING`.

    Args:
        value: A string, a boolean, or a number as its token.
        to_type: Type of the column without arrays.
        epoch_unit: Unit of an integer that goes to a timestamp; None to infer it from the magnitude.

    Returns:
        A value that pyarrow accepts for the type: int, float, bool, str, Decimal, a date or a UTC datetime.

    Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5
    """
    if epoch_unit is not None and (word, to_word) == (LONG_WORD, TIMESTAMP_WORD):
        return epoch_to_timestamp(int(value), epoch_unit)
    conversion = CONVERSIONS.get((word, to_word))
    return MISSING if conversion is None else conversion(value, to_type)


def epoch_to_timestamp(number: int, unit: EpochUnit | None = None) -> Any:
    """Return the UTC timestamp that an integer counts to, or `MISSING` if no timestamp is equal to it.

    Args:
        number: Time since 1970-01-01.
        unit: Unit of the number; None to infer it from the magnitude.

    Source: docs/evolution-rules.md#d5
    """
    unit = unit or next((unit for limit, unit in EPOCH_UNIT_LIMITS if abs(number) < limit), EpochUnit.NANOSECONDS)
    micros, rest = divmod(number * _NANOS[unit], 1000)
    try:
        # An addition to the epoch is exact; `datetime.fromtimestamp` goes through a double and loses microseconds.
        return MISSING if rest else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return MISSING


def _identity(value: JsonDocument, _: DataType) -> Any:
    return value


def _to_text(value: JsonDocument, _: DataType) -> str:
    return str(value)


def _boolean_to_text(value: JsonDocument, _: DataType) -> str:
    return "true" if value else "false"


def _boolean_to_number(value: JsonDocument, to_type: DataType) -> Any:
    return _to_number(JsonNumber("1" if value else "0"), to_type)


def _to_number(value: JsonDocument, to_type: DataType) -> Any:
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
        # A float has no such text in Python, whose repr is that of the double, so only equal binary values count.
        return number if is_float32(number) and Decimal(value) == Decimal(number) else MISSING
    # A double is compared by its shortest text, because that is what reading the column back gives: 0.1 then counts as
    # exact.
    return number if Decimal(repr(number)) == Decimal(value) else MISSING


def _to_decimal(value: JsonDocument, to_type: DecimalType) -> Any:
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if number == 0:
        # A decimal has no negative zero. The integer -0 counts as 0, as in a column of longs.
        return MISSING if number.is_signed() and not value[1:].isdecimal() else Decimal(0)
    # Zeros at the end do not count: 2.500 fits a decimal(2,1).
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    fits = number.adjusted() + 1 <= to_type.precision - to_type.scale and exponent + trailing >= -to_type.scale
    return number.quantize(Decimal(1).scaleb(-to_type.scale), context=_EXACT) if fits else MISSING


def _to_timestamp(value: JsonDocument, _: DataType) -> Any:
    return epoch_to_timestamp(int(value))


def _to_date(value: JsonDocument, _: DataType) -> date:
    return parse_date(value)


def _to_midnight_utc(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time(), timezone.utc)


def _to_local_midnight(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time())


def _to_instant(value: JsonDocument, _: DataType) -> datetime:
    return parse_instant(value)


def _to_local_time(value: JsonDocument, _: DataType) -> datetime:
    return parse_local_time(value)


def _to_epoch_days(value: JsonDocument, to_type: DataType) -> Any:
    days = (parse_date(value) - _DAY_0).days
    return _to_number(JsonNumber(days), to_type) if can_route(to_type, DATE_WORD) else MISSING


def _to_epoch_ms(value: JsonDocument, to_type: DataType) -> Any:
    ms, rest = divmod(parse_instant(value) - _EPOCH, timedelta(milliseconds=1))
    return MISSING if rest or not can_route(to_type, TIMESTAMP_WORD) else _to_number(JsonNumber(ms), to_type)


Conversion: TypeAlias = Callable[[JsonDocument, DataType], Any]
"""Takes a value and the type of the column; returns the column value or `MISSING`."""

CONVERSIONS: Mapping[tuple[str, str], Conversion] = (
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): _identity,
        (BOOLEAN_WORD, STRING_WORD): _boolean_to_text,
        (STRING_WORD, STRING_WORD): _to_text,
        (LONG_WORD, TIMESTAMP_WORD): _to_timestamp,
        (DATE_WORD, DATE_WORD): _to_date,
        (DATE_WORD, TIMESTAMP_WORD): _to_midnight_utc,
        (DATE_WORD, NTZ_WORD): _to_local_midnight,
        (TIMESTAMP_WORD, TIMESTAMP_WORD): _to_instant,
        (NTZ_WORD, NTZ_WORD): _to_local_time,
    }
    | {(DATE_WORD, to): _to_epoch_days for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(TIMESTAMP_WORD, to): _to_epoch_ms for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(BOOLEAN_WORD, to): _boolean_to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(LONG_WORD, to): _to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, to): _to_number for word in (DOUBLE_WORD, DECIMAL_WORD) for to in (DOUBLE_WORD, DECIMAL_WORD)}
    | {(DOUBLE_WORD, DOUBLE_WORD): _double_to_double}
    | {(word, STRING_WORD): _to_text for word in (LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, STRING_WORD): _to_text for word in (DATE_WORD, TIMESTAMP_WORD, NTZ_WORD)}
)
"""The conversion for each kind of value and kind of column. There is none for other pairs."""


# Values of an evolved column in another column of the same field: exactly or not at all.
#
# ``"007"`` never becomes 7: the number would not give the text back.
#
# Source: docs/evolution-rules.md#d2


FITS, DUPLICATE, STAYS = "fits", "duplicate", "stays"
"""Outcomes for a value: it fits the other column, the other column has it already, or it stays."""

_NUMBERS = frozenset({INT_WORD, *NUMBER_WORDS})
_TEMPORAL = frozenset({DATE_WORD, TIMESTAMP_WORD, NTZ_WORD})
_TARGETS_OF_TEXT: Mapping[str, frozenset[str]] = {
    BOOLEAN_WORD: frozenset({BOOLEAN_WORD}),
    DATE_WORD: _TEMPORAL,
    TIMESTAMP_WORD: _TEMPORAL,
} | dict.fromkeys((LONG_WORD, DOUBLE_WORD, DECIMAL_WORD), _NUMBERS)
"""For each kind that a text may express: the columns that it goes to. A text that is a date is not a number of days."""


def judge_fold(value: Any, type: DataType, old: Any, into: DataType) -> tuple[str, Any]:
    """Return the outcome for a value, and the value that the other column then holds.

    Args:
        value: The value from Spark, not None.
        old: Value of the other column in the same row.
    """
    (leaf, dim), (to_leaf, to_dim) = leaf_and_dim(type), leaf_and_dim(into)
    new = _convert_back(value, (leaf, dim), (to_leaf, to_dim))
    if new is MISSING:
        return STAYS, old
    if old is None:
        return FITS, new
    return (DUPLICATE if _is_same(new, old) else STAYS), old


def _convert_back(value: Any, old_type: tuple[DataType, int], new_type: tuple[DataType, int]) -> Any:
    (leaf, dim), (to_leaf, to_dim) = old_type, new_type
    if value is None:
        return None
    if to_dim and dim:
        items = [_convert_back(item, (leaf, dim - 1), (to_leaf, to_dim - 1)) for item in value]
        return MISSING if any(item is MISSING for item in items) else items
    if to_dim:
        item = _convert_back(value, old_type, (to_leaf, to_dim - 1))
        return item if item is MISSING else [item]
    if dim:
        # Only a scalar that was wrapped when it was written comes back; an array of several items was an array in the
        # source.
        is_one = len(value) == 1 and value[0] is not None
        return _convert_back(value[0], (leaf, dim - 1), new_type) if is_one else MISSING
    return _convert_scalar(value, leaf, to_leaf)


def _convert_scalar(value: Any, leaf: DataType, to_leaf: DataType) -> Any:
    document = _parse_text(value) if leaf == STRING and to_leaf != STRING else _to_document(value)
    if document is MISSING:
        return MISSING
    word, to_word = word_of_value(document), word_of(to_leaf) or str(to_leaf)
    if leaf == STRING and to_leaf != STRING and to_word not in _TARGETS_OF_TEXT.get(word, ()):
        return MISSING
    return convert(document, word, to_word, to_leaf)


def _parse_text(text: str) -> JsonDocument:
    """Return the value of a text that is exactly what JSON would write for it, or that is a date or a timestamp."""
    document = parse_document(text.encode("utf-8", "surrogatepass"))
    if isinstance(document, bool):
        return document if text == str(document).lower() else MISSING
    if isinstance(document, JsonNumber):
        return document if text == document else MISSING
    temporal = parse_temporal(text)
    return MISSING if type(temporal) is str else temporal


def _to_document(value: Any) -> JsonDocument:
    match value:
        case bool() | str():
            return value
        case float() if not math.isfinite(value):
            return MISSING
        # A whole number is an integer to JSON, whatever column it stood in. Zero is left out, since -0.0 must keep its
        # sign.
        case float() | Decimal() if value and value == int(value):
            return JsonNumber(int(value))
        case float():
            return JsonNumber(repr(value))
        case Decimal():
            return JsonNumber(format(value, "f"))
        case date():
            return parse_temporal(value.isoformat())
    return JsonNumber(value)


def _is_same(new: Any, old: Any) -> bool:
    if isinstance(new, list):
        return len(new) == len(old) and all(map(_is_same, new, old))
    if isinstance(new, datetime):
        # PySpark gives timestamps without a zone, in local time, and `convert` in UTC, so only the instants can be
        # compared.
        return isinstance(old, datetime) and new.timestamp() == old.timestamp()
    return bool(new == old)
