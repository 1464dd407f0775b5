"""Kinds: the sort of a value, and how many arrays contain it.

Source: docs/evolution-rules.md#kinds
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from widen.json.document import (
    DateText,
    EpochNumber,
    IntegralNumber,
    JsonDocument,
    JsonNumber,
    LocalTimeText,
    TimestampText,
)
from widen.json.time_spellings import ISO, TimeSpelling, read_time, to_moment
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    StructType,
)
from widen.model.value_classes import dataclass

BOOLEAN_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD = "boolean", "long", "double", "decimal"
DATE_WORD, TIMESTAMP_WORD, STRING_WORD, RECORD_WORD = "date", "timestamp", "string", "record"
INT_WORD, MAP_WORD, NULL_WORD = "int", "map", "null"
NTZ_WORD, BINARY_WORD = "timestamp_ntz", "binary"

KIND_WORDS = (
    *(BOOLEAN_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD),
    *(DATE_WORD, TIMESTAMP_WORD, STRING_WORD, RECORD_WORD, MAP_WORD),
    *(NTZ_WORD, BINARY_WORD),
)
"""The names of kinds. Only typed sources have values of the last two. A column may also be an ``int``, but a value is
always a ``long``. The kind ``null`` is only used for a missing value of a required column."""

NUMBER_WORDS = frozenset({LONG_WORD, DOUBLE_WORD, DECIMAL_WORD})
"""The kinds whose values have digits."""

TYPE_OF_WORD: Mapping[str, AtomicType] = {
    BOOLEAN_WORD: BOOLEAN,
    INT_WORD: INTEGER,
    LONG_WORD: LONG,
    DOUBLE_WORD: DOUBLE,
    DATE_WORD: DATE,
    TIMESTAMP_WORD: TIMESTAMP,
    STRING_WORD: STRING,
    NTZ_WORD: TIMESTAMP_NTZ,
    BINARY_WORD: BINARY,
}
"""The type of each word. Decimals and records are missing, since a word alone does not determine their type."""

_WORD_OF_NAME: Mapping[str, str] = {"byte": INT_WORD, "short": INT_WORD, "float": DOUBLE_WORD} | {
    data_type.name: word for word, data_type in TYPE_OF_WORD.items()
}


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """The sort of a value: its type and its nesting in arrays.

    Args:
        word: One of `KIND_WORDS`.
        dim: How many arrays contain the value.

    Examples:
        >>> str(Kind("long", 2))
        'long[][]'
    """

    word: str
    dim: int = 0

    def __str__(self) -> str:
        return self.word + "[]" * self.dim

    @property
    def is_record(self) -> bool:
        """Whether the values have nested fields."""
        return self.word == RECORD_WORD


def parse_kind(text: str) -> Kind:
    """Return the kind with this text."""
    return Kind(text.rstrip("[]"), text.count("[]"))


def leaf_and_dim(data_type: DataType) -> tuple[DataType, int]:
    """Return the innermost element type of nested arrays, and the number of arrays.

    Example:
        >>> leaf_and_dim(ArrayType(ArrayType(LONG)))
        (AtomicType(name='long'), 2)
    """
    dim = 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    return data_type, dim


def nest_in_arrays(leaf: DataType, dim: int) -> DataType:
    """Return a type nested in ``dim`` arrays."""
    for _ in range(dim):
        leaf = ArrayType(leaf)
    return leaf


def word_of(leaf: DataType) -> str | None:
    """Return the word of a type that is not an array; None for maps, variants and other types without a word.

    Byte, short and integer are all ``int``; float is a ``double``. The lattice decides whether such a column represents
    a value exactly.
    """
    match leaf:
        case StructType():
            return RECORD_WORD
        case DecimalType():
            return DECIMAL_WORD
        case AtomicType(name):
            return _WORD_OF_NAME.get(name)
    return None


# Number tokens: the kind of each, and the facts that decide which columns represent it exactly.
#
# Source: docs/evolution-rules.md#d1 to #d3; RFC 8259 section 6 for the tokens.


SURE_CHARS = 16
"""A fraction with at most this many characters, point included, reads back the same from a double."""

MAX_DIGITS = 38
"""The maximum precision of a decimal."""


class ValueFacts(NamedTuple):
    """What is known about one value, beyond its kind. With the defaults, every column represents it exactly.

    Args:
        integer_digits: Digits before the point of the exact value; 0 for 0.5 and for values that are not numbers.
        scale: Digits after the point of the exact value, without trailing zeros.
        fits_int32: The value is an integer of 32 bits.
        exact_double: The shortest text of the nearest double is the same number.
        decimal_exact: A decimal of up to 38 digits represents the number exactly; False for -0.0.
        epoch_ms_exact: A whole number of milliseconds represents the timestamp exactly.
    """

    integer_digits: int = 0
    scale: int = 0
    fits_int32: bool = True
    exact_double: bool = True
    decimal_exact: bool = True
    epoch_ms_exact: bool = True


NO_FACTS = ValueFacts()


def number_kind(token: str) -> tuple[str, ValueFacts]:
    """Return the kind word and the facts of a JSON number.

    An integer of 64 bits is a long, a longer one is a decimal. A number with a fraction or an exponent is a double if
    it reads back the same from a double, otherwise a decimal. Any other number with more than 38 digits is a string,
    so that its spelling is kept. NaN and Infinity, where a policy allows them, are doubles.

    Source: docs/evolution-rules.md#d1, #d3

    Example:
        >>> number_kind("2.50")[0], number_kind("0.1000000000000000000001")[0], number_kind("1e400")[0]
        ('double', 'decimal', 'string')
    """
    digits = token.lstrip("-")
    if digits.isdecimal():
        return _integer_kind(token)
    before, point, after = digits.partition(".")
    if point and len(digits) <= SURE_CHARS and after.isdecimal():
        return DOUBLE_WORD, _short_fraction_facts(before.lstrip("0"), after.rstrip("0"), is_negative=digits != token)
    try:
        value = Decimal(token)
    except InvalidOperation:
        return STRING_WORD, NO_FACTS
    if not value.is_finite():
        return DOUBLE_WORD, ValueFacts(fits_int32=False, decimal_exact=False)
    return _fraction_kind(value, float(token))


def read_integral(token: JsonNumber) -> JsonNumber:
    """Return a number with a fraction or an exponent as an `IntegralNumber` if it is an integer of 64 bits.

    Other numbers are unchanged, and so is negative zero, since an integer has no sign of zero. The digits decide as
    they are written, not the double that is nearest to them.

    Example:
        >>> [str(read_integral(JsonNumber(token))) for token in ("1.0", "1.5e1", "1.5", "-0.0", "1e400")]
        ['1', '15', '1.5', '-0.0', '1e400']
    """
    if token.lstrip("-").isdecimal():
        return token
    try:
        number = Decimal(token)
    except InvalidOperation:
        return token
    # The magnitude is compared first: `int` would write out all the digits of 1e999999.
    if not number.is_finite() or number.adjusted() > _LONG_DIGITS or (number.is_zero() and number.is_signed()):
        return token
    whole = int(number)
    if whole != number or not -(2**63) <= whole < 2**63:
        return token
    integral = IntegralNumber(whole)
    integral.spelling = str(token)
    return integral


_LONG_DIGITS = 19


def written_scale(token: str) -> int:
    """Return the digits after the point of a number as it is written; 0 for a number with an exponent.

    Example:
        >>> written_scale("12.50"), written_scale("7"), written_scale("1.5e3")
        (2, 0, 0)
    """
    fraction = token.partition(".")[2]
    return len(fraction) if fraction.isdecimal() else 0


def long_facts(value: int) -> ValueFacts:
    """Return the facts of an integer of 64 bits."""
    digits = len(str(abs(value))) if value else 0
    return ValueFacts(digits, 0, -(2**31) <= value < 2**31, abs(value) <= _MAX_EXACT_INTEGER or _is_exact_double(value))


_MAX_EXACT_INTEGER = 2**53
"""Every integer up to here is exact as a double."""


def _is_exact_double(value: int) -> bool:
    """Return whether the shortest text of the nearest double is the number; it is not for 2**60."""
    return Decimal(repr(float(value))) == value


def _short_fraction_facts(before: str, after: str, *, is_negative: bool) -> ValueFacts:
    """Return the facts of a fraction that is so short that it reads back the same from a double."""
    signed_zero = is_negative and not before and not after
    return ValueFacts(len(before), len(after), fits_int32=False, decimal_exact=not signed_zero)


def _integer_kind(token: str) -> tuple[str, ValueFacts]:
    digits = len(token.lstrip("-"))
    if digits > MAX_DIGITS:
        return STRING_WORD, NO_FACTS
    value = int(token)
    if -(2**63) <= value < 2**63:
        return LONG_WORD, long_facts(value)
    return DECIMAL_WORD, ValueFacts(digits, 0, fits_int32=False, exact_double=_is_exact_double(value))


def _fraction_kind(value: Decimal, nearest: float) -> tuple[str, ValueFacts]:
    before, after = _digits(value)
    fits = before + after <= MAX_DIGITS
    if math.isfinite(nearest) and Decimal(repr(nearest)) == value:
        signed_zero = nearest == 0 and math.copysign(1, nearest) < 0
        return DOUBLE_WORD, ValueFacts(before, after, fits_int32=False, decimal_exact=fits and not signed_zero)
    if fits:
        return DECIMAL_WORD, ValueFacts(before, after, fits_int32=False, exact_double=False)
    return STRING_WORD, NO_FACTS


def _digits(value: Decimal) -> tuple[int, int]:
    """Return the number of digits before and after the point, without leading and trailing zeros."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    text = text.lstrip("0")
    return (max(0, len(text) + exponent), max(0, -exponent)) if text else (0, 0)


# Recognize and parse strings that are dates or timestamps.
#
# A string is recognized only if a date or timestamp column keeps its full meaning: a day of the calendar, or a time
# with at most six digits after the second. A timestamp column takes instants in UTC. A column of timestamps without
# a time zone takes local times, which name no zone. Trailing zeros of the fraction and the spelling of UTC (``Z``
# or ``+00:00``) do not matter. A string with another offset has more information than either, so it stays a string,
# unless the policy asks for other spellings.
#
# Source: docs/evolution-rules.md#d6; ISO 8601-1, extended format.


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(Z|\+00:00)?"
)
_DATE_CHARS, _MIN_TIME_CHARS, _MAX_TIME_CHARS = 10, 19, 32

_FINER_THAN_MILLISECONDS = NO_FACTS._replace(epoch_ms_exact=False)


def parse_temporal(
    text: str, *, has_instants: bool = True, has_local_times: bool = False, spelling: TimeSpelling = ISO
) -> str:
    """Return a string as a `DateText`, a `TimestampText` or a `LocalTimeText` if it is one, otherwise unchanged.

    Args:
        has_local_times: Whether timestamps without a time zone are recognized.

    Example:
        >>> [type(parse_temporal(text)).__name__ for text in ("2024-05-01", "2024-05-01T10:00:00+02:00")]
        ['DateText', 'str']
    """
    match = None
    try:
        if len(text) == _DATE_CHARS and _DATE.fullmatch(text):
            date.fromisoformat(text)
            return DateText(text)
        match = _TIME.fullmatch(text) if _MIN_TIME_CHARS <= len(text) <= _MAX_TIME_CHARS else None
        if match is not None and (has_instants if match[3] else has_local_times):
            datetime.fromisoformat(match[1])
            return TimestampText(text) if match[3] else LocalTimeText(text)
    except ValueError:
        pass
    if not (spelling.is_any or (spelling.zone and match is not None)):
        return text
    return _parse_spelled(text, has_instants=has_instants, has_local_times=has_local_times, zone=spelling.zone)


def _parse_spelled(text: str, *, has_instants: bool, has_local_times: bool, zone: str) -> str:
    """Return a string in another spelling, or without a time zone, as what it is; see `parse_temporal`."""
    found = read_time(text)
    if found is None:
        return text
    local, offset = found
    if offset is None and has_local_times:
        local_time = LocalTimeText(text)
        local_time.moment = local
        return local_time
    is_instant = has_instants and (offset is not None or bool(zone))
    moment = to_moment(local, offset, zone) if is_instant else None
    if moment is None:
        return text
    instant = TimestampText(text)
    instant.moment = moment
    return instant


def parse_date(text: DateText) -> date:
    """Return the date of a `DateText`."""
    return date.fromisoformat(text)


def parse_instant(text: TimestampText) -> datetime:
    """Return the instant of a `TimestampText`, in UTC."""
    return parse_local_time(text).replace(tzinfo=timezone.utc)


def parse_local_time(text: str) -> datetime:
    """Return the date and time of a `LocalTimeText` or a `TimestampText`, without a time zone."""
    moment: datetime | None = getattr(text, "moment", None)
    if moment is not None:
        return moment
    match = _TIME.fullmatch(text)
    assert match is not None
    return datetime.fromisoformat(match[1]).replace(microsecond=int((match[2] or "").ljust(6, "0")))


def read_epoch(number: JsonNumber, unit_nanos: int) -> JsonDocument:
    """Return an integer of 64 bits as an `EpochNumber` if a timestamp is equal to it, otherwise unchanged.

    Args:
        unit_nanos: The unit of the integer.

    Source: docs/evolution-rules.md#d5
    """
    is_long = number.lstrip("-").isdecimal() and len(number) <= _MAX_LONG_CHARS and -(2**63) <= int(number) < 2**63
    moment = count_to_moment(int(number), unit_nanos) if is_long else None
    if moment is None:
        return number
    epoch = EpochNumber(number)
    epoch.moment = moment
    return epoch


_MAX_LONG_CHARS = 20


def count_to_moment(number: int, unit_nanos: int) -> datetime | None:
    """Return the time in UTC, without a time zone, that an integer counts to; None if no timestamp is equal to it.

    Args:
        number: Time since 1970-01-01.
        unit_nanos: The unit of the integer.
    """
    micros, rest = divmod(number * unit_nanos, 1000)
    try:
        # An addition to the epoch is exact; `datetime.fromtimestamp` goes through a double and loses microseconds.
        return None if rest else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


_EPOCH = datetime(1970, 1, 1)


def timestamp_facts(text: TimestampText) -> ValueFacts:
    """Return the facts of a timestamp: whether a whole number of milliseconds represents it exactly."""
    return _FINER_THAN_MILLISECONDS if parse_instant(text).microsecond % 1000 else NO_FACTS
