"""Scalars of a table back in the types of their source, with Arrow: the proof's own way back from each column.

Nothing here is shared with `widen.files.conversions`, which makes the values of the columns.

Source: docs/evolution-rules.md#u1, #u2, #d5, #d6, #d16
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.evolution.policy import EpochUnit
from widen.files.arrow_types import to_arrow
from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    AtomicType,
    DataType,
    DecimalType,
)
from widen.model.value_classes import dataclass
from widen.proof.rules import FieldColumns


class Contradiction(Exception):
    """Columns hold what no record has."""


def ensure(is_right: bool) -> None:
    """Check what holds for the columns of every record.

    Raises:
        Contradiction: it does not hold.
    """
    if not is_right:
        raise Contradiction


# ---- strings that stand for something else ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeText(AtomicType):
    """The type of strings of a source that are partly read as dates or timestamps."""

    name: str = STRING.name


@dataclass(frozen=True, slots=True)
class VariantText(AtomicType):
    """The type of variants, which tasks get as JSON."""

    name: str = STRING.name


_SECONDS = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_UTC = rf"^({_SECONDS}(?:\.[0-9]+)?)\+00:00$"
_ZEROS = rf"^({_SECONDS})(?:(\.[0-9]*[1-9])0*|\.0+)?(Z?)$"
_MS = rf"^{_SECONDS}(?:\.[0-9]{{1,3}})?Z$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_COUNT = "count "
"""Stands before a number that a column has for a date or a time."""

_NUMBERS_OF_DATES = frozenset({"integer", "long", "double", "decimal"})
"""The columns of numbers that take dates, and but for integers of 32 bits timestamps."""

_MIDNIGHTS: Mapping[str, str] = {"timestamp_ntz": "T00:00:00", "timestamp": "T00:00:00Z"}
"""What the columns of timestamps give back for a date, sorted as the proof reads them."""

TIMES_FIRST = {name: place for place, name in enumerate(("string", "date", "timestamp_ntz", "timestamp"))}
"""The sequence of columns that may give back a string that is read as a date: most text preserved first."""


def comparable_times(texts: pa.Array) -> pa.Array:
    """Return texts with ``Z`` and without zeros at the end of fractions, which no column of timestamps keeps."""
    texts = pc.replace_substring_regex(texts, _UTC, r"\1Z")
    return pc.replace_substring_regex(texts, _ZEROS, r"\1\2\3")


def times_as_stored(texts: pa.Array, columns: FieldColumns, dim: int) -> pa.Array:
    """Return strings that are read as dates as the columns of their field give them back.

    That is the midnight of a date, or the count of its days, and the count of the milliseconds of a timestamp.

    Source: docs/evolution-rules.md#d6
    """
    texts = comparable_times(texts)
    types = {column.type_name for column in columns if column.dim >= dim}
    if "string" in types:
        return texts
    midnight, has_numbers = (
        next((_MIDNIGHTS[name] for name in _MIDNIGHTS if name in types), None),
        bool(types & _NUMBERS_OF_DATES),
    )
    if "timestamp" not in types and has_numbers:
        texts = _replace(texts, _MS, _count_of_time)
    if "date" not in types and midnight is not None:
        return pc.replace_substring_regex(texts, f"({_DAY[:-1]})$", rf"\1{midnight}")
    return _replace(texts, _DAY, _count_of_day) if "date" not in types and has_numbers else texts


def _replace(texts: pa.Array, pattern: str, replace: Callable[[str], str]) -> pa.Array:
    is_found = pc.fill_null(pc.match_substring_regex(texts, pattern), False)
    if not pc.any(is_found).as_py():
        return texts
    pairs = zip(texts.to_pylist(), is_found.to_pylist(), strict=True)
    return pa.array([replace(text) if found else text for text, found in pairs], pa.string())


def _count_of_day(text: str) -> str:
    try:
        return f"{_COUNT}{days_of(text)}"
    except (Contradiction, ValueError):  # no day of the calendar
        return text


def _count_of_time(text: str) -> str:
    try:
        return f"{_COUNT}{micros_of(text) // 1000}"
    except (Contradiction, ValueError):
        return text


def are_same_times(given: pa.Array, values: pa.Array) -> pa.Array:
    """Return whether texts of two columns of a field are the same date or time: also a date and its midnight."""
    same = pc.equal(given, values)
    if pc.all(same, min_count=0).as_py():
        return same
    pairs = zip(given.to_pylist(), values.to_pylist(), strict=True)
    return pa.array([one == other or bool(_readings(one) & _readings(other)) for one, other in pairs], pa.bool_())


def _readings(text: str) -> set[str]:
    """Return the dates and times that a text of a column may stand for."""
    if text.startswith(_COUNT):
        number = int(text.removeprefix(_COUNT))
        days, micros = (pa.array([each], pa.int64()) for each in (number, number * 1000))
        found = []
        if abs(number) < 2**31:
            found.append(days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())[0].as_py())
        if _YEARS_MS[0] <= number <= _YEARS_MS[1]:
            found.append(spell_times(micros.cast(pa.timestamp("us")), TIMESTAMP)[0].as_py())
        return {text, *(re.sub("T00:00:00Z?$", "", each) for each in found)}
    return {text, re.sub("T00:00:00Z?$", "", text)}


def spell_times(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return timestamps as `comparable_times` spells them."""
    # Through an integer: Arrow would look up the zone to write a time with one.
    texts = values.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T")
    return comparable_times(pc.binary_join_element_wise(texts, "Z", "") if data_type == TIMESTAMP else texts)


_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats after so many years."""

_DATE = re.compile(r"([+-]?)([0-9]{4,9})(-[0-9]{2}-[0-9]{2})")
_TIME = re.compile(rf"({_DATE.pattern})T([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]{{1,6}}))?(Z?)")


def days_of(text: str) -> int:
    """Return the days from 1970 to a date; its year may have a sign and more than four digits.

    Raises:
        Contradiction: the text is not a date.
        ValueError: its day is not in the calendar.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise Contradiction
    year = int(match[1] + match[2])
    cycles, rest = divmod(year, _CYCLE_YEARS)
    return date.fromisoformat(f"{rest + 2000}{match[3]}").toordinal() - _EPOCH + (cycles - 5) * _CYCLE_DAYS


_EPOCH = date(1970, 1, 1).toordinal()


def micros_of(text: str, data_type: DataType = TIMESTAMP) -> int:
    """Return the microseconds from 1970 to a timestamp; see `days_of`.

    Raises:
        Contradiction: the text is not a timestamp of this type.
        ValueError: its day or time is not in the calendar.
    """
    match = _TIME.fullmatch(text)
    if match is None or bool(match[9]) is not (data_type == TIMESTAMP):
        raise Contradiction
    moment = datetime.fromisoformat(f"2000-01-01T{match[5]}:{match[6]}:{match[7]}")
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    return days_of(match[1]) * _DAY_MICROS + seconds * 1_000_000 + int((match[8] or "").ljust(6, "0"))


# ---- scalars back to the types of the source -------------------------------------------------------

_DAY_MICROS = 86_400_000_000
_YEARS_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, whose milliseconds fit into columns of numbers."""

_NANOS = 1000

_MICROS: Mapping[EpochUnit, int] = MappingProxyType(
    {EpochUnit.SECONDS: 1_000_000, EpochUnit.MILLISECONDS: 1_000, EpochUnit.MICROSECONDS: 1}
)
"""How many microseconds a unit has; the other one is nanoseconds."""

_EPOCH_LIMITS = ((10**11, EpochUnit.SECONDS), (10**14, EpochUnit.MILLISECONDS), (10**17, EpochUnit.MICROSECONDS))
"""The upper bounds of integers that count seconds, ms or µs; a larger integer counts ns (D5)."""


def family_of(data_type: DataType) -> str:
    """Return the key of a type in `BACKWARD_CONVERSIONS`: one word for all numbers, else the type."""
    if isinstance(data_type, TimeText):
        return _TIME_TEXT
    if isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS:
        return "number"
    return str(data_type)


_TIME_TEXT = "time text"
_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def restore_values(values: pa.Array, stored: DataType, original: DataType) -> pa.Array | None:
    """Return scalars of a column in their type in the source; None if no column of its type holds such values.

    Raises:
        Contradiction: no value of the source has become one of these.
        pyarrow.ArrowException: the same.
    """
    if stored == original:
        return values
    convert = BACKWARD_CONVERSIONS.get((family_of(stored), family_of(original)))
    return None if convert is None else convert(values, stored, original)


def _to_number(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    kind = to_arrow(original)
    if isinstance(original, DecimalType):
        return _to_decimal(values, kind)
    if isinstance(stored, DecimalType) and pa.types.is_floating(kind):
        numbers = values.cast(pa.string()).cast(kind)
        ensure(_to_decimal(numbers, values.type).equals(values))
        return numbers
    if (stored, original) == (DOUBLE, LONG):
        # A double that is an integer stands for the integer of its text.
        return values.cast(pa.string()).cast(pa.decimal128(38, 0)).cast(kind)
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        numbers = values.cast(kind, safe=False)
        ensure(pc.all(pc.or_(pc.equal(numbers.cast(values.type), values), pc.is_nan(values)), min_count=0).as_py())
        return numbers
    return values.cast(kind)


def _to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numbers as decimals; a floating-point number stands for its text."""
    if pa.types.is_floating(values.type):
        return values.cast(pa.string()).cast(kind)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return values.cast(kind)


def _to_boolean(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    numbers = _to_number(values, stored, LONG)
    ensure(pc.all(pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, 1)), min_count=0).as_py())
    return pc.equal(numbers, 1)


def _parse_text(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return values.cast(to_arrow(original))


def _parse_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    try:
        return values.cast(pa.date32())
    except pa.ArrowInvalid:  # Arrow reads the years 1 to 9999 only
        days = _parse_each(values, days_of)
        return days.cast(pa.int32()).cast(pa.date32())


def _parse_time(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    # Arrow would also read the text of a date.
    ensure(pc.all(pc.match_substring(values, "T"), min_count=0).as_py())
    try:
        return values.cast(to_arrow(original))
    except pa.ArrowInvalid:
        return _parse_each(values, lambda text: micros_of(text, original)).cast(to_arrow(original))


def _parse_each(texts: pa.Array, parse: Callable[[str], int]) -> pa.Array:
    try:
        return pa.array([None if text is None else parse(text) for text in texts.to_pylist()], pa.int64())
    except (ValueError, OverflowError) as error:
        raise Contradiction from error


def _to_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return _to_number(values, stored, LONG).cast(pa.int32()).cast(pa.date32())


def _time_to_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    """Return the dates of midnights; a date has no other time."""
    micros = values.cast(pa.int64())
    days = _divide(micros, _DAY_MICROS)
    return days.cast(pa.int32()).cast(pa.date32())


def _to_timestamp(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    ms = _to_number(values, stored, LONG)
    first, last = _YEARS_MS
    ensure(pc.all(pc.and_(pc.greater_equal(ms, first), pc.less_equal(ms, last)), min_count=0).as_py())
    return pc.multiply(ms, 1000).cast(to_arrow(original))


def to_counts(values: pa.Array, unit: EpochUnit, original: DataType) -> pa.Array:
    """Return the integers that count to timestamps in a unit."""
    micros = values.cast(pa.int64())
    counts = _divide(micros, _MICROS[unit]) if unit in _MICROS else pc.multiply_checked(micros, _NANOS)
    return counts.cast(to_arrow(original))


def _divide(numbers: pa.Array, divisor: int) -> pa.Array:
    quotients = pc.divide(numbers, divisor)
    ensure(pc.multiply(quotients, divisor).equals(numbers))
    return quotients


def are_epochs(micros: pa.Array, numbers: pa.Array, unit: EpochUnit | None) -> pa.Array:
    """Return whether integers count to timestamps, in their unit or in the unit that their size implies."""
    if unit is not None:
        return _is_count(micros, numbers, unit)
    result = _is_count(micros, numbers, EpochUnit.NANOSECONDS)
    for limit, each in reversed(_EPOCH_LIMITS):
        is_small = pc.and_(pc.greater(numbers, -limit), pc.less(numbers, limit))
        result = pc.if_else(is_small, _is_count(micros, numbers, each), result)
    return result


def _is_count(micros: pa.Array, numbers: pa.Array, unit: EpochUnit) -> pa.Array:
    if unit not in _MICROS:
        quotients = pc.divide(numbers, _NANOS)
        return pc.and_(pc.equal(pc.multiply(quotients, _NANOS), numbers), pc.equal(quotients, micros))
    quotients = pc.divide(micros, _MICROS[unit])
    return pc.and_(pc.equal(pc.multiply(quotients, _MICROS[unit]), micros), pc.equal(quotients, numbers))


def _text_of_time(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return spell_times(values, stored)


def _text_of_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return values.cast(pa.string())


def _text_of_string(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return comparable_times(values)


def _text_of_count(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    """Return what stands for a date or a timestamp: a number does not say whether it counts days or milliseconds."""
    counts = _to_number(values, stored, LONG).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(_COUNT), counts, "")


Back: TypeAlias = Callable[[pa.Array, DataType, DataType], pa.Array]
"""Converts values, given their type in the table and their type in the source."""

BACKWARD_CONVERSIONS: Mapping[tuple[str, str], Back] = MappingProxyType(
    {
        ("number", "number"): _to_number,
        ("number", str(BOOLEAN)): _to_boolean,
        ("number", str(DATE)): _to_date,
        ("number", str(TIMESTAMP)): _to_timestamp,
        (str(TIMESTAMP), str(DATE)): _time_to_date,
        (str(TIMESTAMP_NTZ), str(DATE)): _time_to_date,
        (str(STRING), str(DATE)): _parse_date,
        (str(STRING), str(TIMESTAMP)): _parse_time,
        (str(STRING), str(TIMESTAMP_NTZ)): _parse_time,
        (str(STRING), _TIME_TEXT): _text_of_string,
        (str(DATE), _TIME_TEXT): _text_of_date,
        (str(TIMESTAMP_NTZ), _TIME_TEXT): _text_of_time,
        (str(TIMESTAMP), _TIME_TEXT): _text_of_time,
        ("number", _TIME_TEXT): _text_of_count,
    }
    | {(str(STRING), original): _parse_text for original in ("number", str(BOOLEAN))}
)
"""The conversions back, by stored and source type; a timestamp does not convert back to a number (U16)."""
