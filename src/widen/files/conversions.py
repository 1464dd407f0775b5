"""Values of one type as values of another: exactly, or null."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import SourceContentError
from widen.evolution.policy import EpochUnit
from widen.evolution.type_lattice import can_route
from widen.files.arrow_types import to_arrow
from widen.json.kinds import LONG_WORD
from widen.json.observation import TemporalString, type_facts
from widen.model.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, DecimalType, plain_name
from widen.protocol.type_widening import is_widening
from widen.rows.row import EPOCH_UNIT_LIMITS


def convert_values(values: pa.Array, old: DataType, new: DataType, unit: EpochUnit | None = None) -> pa.Array | None:
    """Return scalars as values of a column, null where it cannot hold them exactly; None if the types do not convert.

    Source: docs/evolution-rules.md#u14, #u16, #d2
    """
    if old == new:
        return values
    facts = type_facts(old)
    if isinstance(old, TemporalString):
        return values if new == STRING else _temporal_to(values, old, new)
    if facts is None or not (is_widening(old, new) or can_route(new, facts[0])):
        return None
    if new == TIMESTAMP and facts[0] == LONG_WORD:
        return _epoch_to_timestamp(values, unit)
    return CONVERSIONS[plain_name(old), plain_name(new)](values, old, new)


def holds_every_value(old: DataType, new: DataType) -> bool:
    """Return whether a column of a type holds every value of another type."""
    facts = type_facts(old)
    if old == new or is_widening(old, new) or facts is None:
        return old == new or is_widening(old, new)
    return can_route(new, facts[0]) and (new == STRING or (str(old), str(new)) in TOTAL_CONVERSIONS)


Conversion: TypeAlias = Callable[[pa.Array, DataType, DataType], pa.Array]
"""Converts values, given their type and the type to convert to; null where that is not exact."""


_WIDE = 76
"""The most digits of a decimal in Arrow."""


def _cast(values: pa.Array, _: DataType, new: DataType) -> pa.Array:
    return values.cast(to_arrow(new))


def _only(values: pa.Array, is_kept: pa.Array) -> pa.Array:
    """Return the values with a mark, and null for the others."""
    return pc.if_else(is_kept, values, pa.scalar(None, values.type))


def _to_integer(values: pa.Array, _: DataType, new: DataType) -> pa.Array:
    kind = to_arrow(new)
    least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    wide = values.cast(pa.int64())
    return _only(wide, _is_between(wide, least, most)).cast(kind)


def _integer_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _decimal_to_decimal(values.cast(pa.int64()).cast(pa.decimal128(19, 0)), DecimalType(19, 0), new)


def _boolean_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _integer_to_decimal(values.cast(pa.int32()), old, new)


def _date_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _integer_to_decimal(values.cast(pa.int32()), old, new)


def _decimal_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    assert isinstance(new, DecimalType)
    wide = values.cast(pa.decimal256(_WIDE - 1, values.type.scale))
    return _round_to(wide, new)


def _round_to(wide: pa.Array, new: DecimalType) -> pa.Array:
    """Return decimals of many digits that a type holds exactly."""
    scaled = wide.cast(pa.decimal256(_WIDE, new.scale), safe=False)
    limit = pa.scalar(10 ** (new.precision - new.scale), pa.decimal256(_WIDE, 0)).cast(scaled.type)
    is_held = pc.and_(pc.equal(scaled.cast(wide.type, safe=False), wide), pc.less(pc.abs(scaled), limit))
    return _only(scaled, is_held).cast(pa.decimal128(new.precision, new.scale))


def are_exact_doubles(values: pa.Array) -> pa.Array:
    """Return whether the shortest text of the nearest double denotes the same number, for integers and decimals."""
    if pa.types.is_integer(values.type):
        wide = values.cast(pa.int64())
        is_small = _is_between(wide, -EXACT_LONG, EXACT_LONG)
        if pc.all(is_small).as_py() is not False:
            return is_small
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    text = values.cast(pa.string()).cast(pa.float64()).cast(pa.string())
    kind = pa.decimal256(_WIDE, values.type.scale)
    return pc.equal(text.cast(kind), values.cast(kind))


def _long_to_double(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _only(values, are_exact_doubles(values)).cast(pa.float64(), safe=False)


def _long_to_float(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    wide = values.cast(pa.int64())
    return _only(wide, _is_between(wide, -EXACT_FLOAT, EXACT_FLOAT)).cast(pa.float32())


def _decimal_to_double(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _only(values, are_exact_doubles(values)).cast(pa.string()).cast(pa.float64())


def _double_to_float(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    narrow = values.cast(pa.float32(), safe=False)
    return _only(narrow, pc.or_(pc.equal(narrow.cast(pa.float64()), values), pc.is_nan(values)))


def _double_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    """Return numbers whose shortest text is a decimal of the type; -0.0 becomes 0."""
    assert isinstance(new, DecimalType)
    is_zero = pc.equal(values, 0.0)
    is_negative_zero = pc.and_(is_zero, pc.less(pc.divide(1.0, values), 0.0))
    size = pc.abs(values)
    # A number below the last digit is lost, and the text of any other one has at most 17 digits more than that.
    is_near = pc.and_(pc.less(size, 10.0 ** (new.precision - new.scale)), pc.greater_equal(size, 10.0**-new.scale / 2))
    is_possible = pc.or_(pc.and_(is_near, pc.is_finite(values)), pc.and_(is_zero, pc.invert(is_negative_zero)))
    text = _only(values, is_possible).cast(pa.string())
    return _round_to(text.cast(pa.decimal256(_WIDE, new.scale + 18)), new)


def _epoch_to_timestamp(values: pa.Array, unit: EpochUnit | None) -> pa.Array:
    """Return integers as timestamps.

    Source: docs/evolution-rules.md#u16, #d5
    """
    wide = values.cast(pa.int64())
    micros = _to_micros(wide, unit or EpochUnit.NANOSECONDS)
    for limit, each in reversed(EPOCH_UNIT_LIMITS if unit is None else ()):
        micros = pc.if_else(_is_between(wide, 1 - limit, limit - 1), _to_micros(wide, each), micros)
    return micros.cast(to_arrow(TIMESTAMP))


def _to_micros(numbers: pa.Array, unit: EpochUnit) -> pa.Array:
    factor, divisor = MICROS_PER_UNIT[unit]
    if divisor > 1:
        quotients = pc.divide(numbers, divisor)
        is_whole = pc.equal(pc.multiply(quotients, divisor), numbers)
        return _only(quotients, pc.and_(is_whole, _is_between(quotients, FIRST_MICROS, LAST_MICROS)))
    return pc.multiply(_only(numbers, _is_between(numbers, -(-FIRST_MICROS // factor), LAST_MICROS // factor)), factor)


def _is_between(values: pa.Array, first: int, last: int) -> pa.Array:
    return pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))


def _date_to_timestamp(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    days = values.cast(pa.int32()).cast(pa.int64())
    if pc.any(pc.invert(_is_between(days, -_MOST_DAYS, _MOST_DAYS))).as_py():
        # The column takes dates, so no other one would hold them.
        reason = "it has a date that is more than 292,000 years away, which no timestamp can hold"
        raise SourceContentError(source="source", reason=reason, fix="Repair the date, or load it as a string.")
    return pc.multiply(days, _DAY_MICROS).cast(to_arrow(new))


def _date_to_number(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return values.cast(pa.int32()).cast(to_arrow(new))


def are_whole_ms(values: pa.Array) -> pa.Array:
    """Return whether timestamps are whole milliseconds."""
    micros = values.cast(pa.int64())
    return pc.equal(pc.multiply(pc.divide(micros, 1000), 1000), micros)


def _whole_ms(values: pa.Array) -> pa.Array:
    return pc.divide(_only(values, are_whole_ms(values)).cast(pa.int64()), 1000)


def _timestamp_to_number(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _whole_ms(values).cast(to_arrow(new), safe=False)


def _timestamp_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return _integer_to_decimal(_whole_ms(values), old, new)


def _date_to_text(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return date_texts(values)


def _time_to_text(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    text = time_texts(values, old)
    text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0*(Z?)$", r"\1\2")
    return pc.replace_substring_regex(text, r"\.0+(Z?)$", r"\1")


def date_texts(values: pa.Array) -> pa.Array:
    """Return dates as texts; years above 9999 have a plus before them."""
    days = values.cast(pa.int32()).cast(pa.int64())
    return _with_years(days, _CYCLE_DAYS, lambda each: each.cast(pa.int32()).cast(pa.date32()).cast(pa.string()))


def time_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return timestamps as texts with six digits of the second, e.g. 2026-05-01T12:30:00.250000Z; see `date_texts`."""

    def spell(micros: pa.Array) -> pa.Array:
        return pc.replace_substring(micros.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")

    text = _with_years(values.cast(pa.int64()), _CYCLE_DAYS * _DAY_MICROS, spell)
    return pc.binary_join_element_wise(text, "Z", "") if data_type == TIMESTAMP else text


_DAY_MICROS = 86_400_000_000
_MOST_DAYS = (2**63 - 1) // _DAY_MICROS
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The calendar repeats after so many years."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999 in days since 1970."""


def _with_years(numbers: pa.Array, cycle: int, spell: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return days or times as texts, in years that Arrow does not spell, too.

    Args:
        numbers: How many days or microseconds they are after 1970.
        cycle: How many of these 400 years have.
        spell: Returns the texts of values in the years 1 to 9999.
    """
    unit = cycle // _CYCLE_DAYS
    first, last = _FIRST_DAY * unit, _LAST_DAY * unit + unit - 1
    bounds = pc.min_max(numbers)
    if bounds["min"].as_py() is None or first <= bounds["min"].as_py() <= bounds["max"].as_py() <= last:
        return spell(numbers)
    found: list[str | None] = []
    for number in numbers.to_pylist():
        if number is None:
            found.append(None)
            continue
        cycles, rest = divmod(number - first, cycle)
        [text] = spell(pa.array([rest + first], pa.int64())).to_pylist()
        year = int(text[:4]) + cycles * _CYCLE_YEARS
        sign = "-" if year < 0 else "+" if year > _LAST_YEAR else ""
        found.append(f"{sign}{abs(year):04}{text[4:]}")
    return pa.array(found, pa.string())


_LAST_YEAR = 9999


def _decimal_to_text(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    """Return decimals as texts without an exponent."""
    assert isinstance(old, DecimalType)
    scale = old.scale
    if scale <= _PLAIN_SCALE:
        return values.cast(pa.string())
    whole = pa.decimal128(values.type.precision, 0)
    digits = pa.Array.from_buffers(whole, len(values), values.buffers(), offset=values.offset).cast(pa.string())
    is_negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    head, tail = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(is_negative, "-", "")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, head, ""), tail, ".")


_PLAIN_SCALE = 6
"""Arrow writes smaller fractions with an exponent."""


def _float_to_decimal(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    """Return the decimals that give the numbers of 32 bits back; none is -0.0."""
    assert isinstance(new, DecimalType)
    rounded = _nearest_decimals(values, new)
    is_negative_zero = pc.and_(pc.equal(values, 0.0), pc.less(pc.divide(pa.scalar(1.0, values.type), values), 0.0))
    back = rounded.cast(pa.string()).cast(pa.float32())
    is_same = pc.fill_null(pc.and_(pc.equal(back, values), pc.invert(is_negative_zero)), False)
    return _only(rounded, is_same)


def _decimal_to_float(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    assert isinstance(old, DecimalType)
    numbers = values.cast(pa.string()).cast(pa.float32())
    return _only(numbers, pc.fill_null(pc.equal(_nearest_decimals(numbers, old), values), False))


def _nearest_decimals(values: pa.Array, new: DecimalType) -> pa.Array:
    """Return numbers of 32 bits as the nearest decimals of a type; null where they are too large, or no numbers."""
    doubles = values.cast(pa.float64())
    size = pc.abs(doubles)
    is_near = pc.and_(pc.is_finite(doubles), pc.less_equal(size, 10.0 ** (new.precision - new.scale)))
    # Below the last digit nothing is left but zero.
    is_tiny = pc.less(size, 10.0 ** -(new.scale + 1))
    text = pc.if_else(is_tiny, pa.scalar(0.0), _only(doubles, is_near)).cast(pa.string())
    wide = text.cast(pa.decimal256(_WIDE, new.scale + 18))
    rounded = pc.round(wide, ndigits=new.scale, round_mode="half_towards_infinity")
    return _round_to(rounded, new)


# ---- texts as dates and times ----------------------------------------------------------------------


def temporal_values(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Return strings as dates or timestamps, null where they are not or a column would not keep all of them.

    Args:
        data_type: What to read them as: date, timestamp or timestamp_ntz.

    Source: docs/evolution-rules.md#d6
    """
    kind = to_arrow(data_type)
    parts = pc.extract_regex(texts, _TEMPORAL_PATTERNS[data_type])
    year, month, day = (pc.struct_field(parts, name).cast(pa.int32()) for name in ("y", "m", "d"))
    is_leap = pc.and_(
        _is_multiple(year, 4), pc.or_(pc.invert(_is_multiple(year, 100)), _is_multiple(year, _CYCLE_YEARS))
    )
    is_month = pc.and_(pc.greater(year, 0), _is_between(month, 1, 12))
    months = pa.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], pa.int32())
    days = months.take(_only(month, is_month))
    days = pc.add(days, pc.and_(is_leap, pc.equal(month, 2)).cast(pa.int32()))
    is_valid = pc.and_(pc.greater_equal(day, 1), pc.less_equal(day, days))
    valid = _only(texts, pc.fill_null(is_valid, False))
    if data_type == TIMESTAMP:
        valid = pc.replace_substring_regex(valid, r"(?:Z|\+00:00)$", "")
        return valid.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    return valid.cast(kind)


def _is_multiple(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.equal(pc.multiply(pc.divide(numbers, divisor), divisor), numbers)


_DAY = "(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
_TIME = rf"{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,6}})?"
_TEMPORAL_PATTERNS: Mapping[DataType, str] = MappingProxyType(
    {DATE: rf"\A{_DAY}\z", TIMESTAMP: rf"\A{_TIME}(?:Z|\+00:00)\z", TIMESTAMP_NTZ: rf"\A{_TIME}\z"}
)


def _temporal_to(texts: pa.Array, old: TemporalString, new: DataType) -> pa.Array | None:
    parts = (convert_values(temporal_values(texts, each), each, new) for each in old.types)
    found = [part for part in parts if part is not None]
    return pc.coalesce(*found) if found else None


_NUMBER = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<rest>[0-9]+))?(?:e(?P<power>[+-]?[0-9]+))?$"


def number_texts(values: pa.Array) -> pa.Array:
    """Return floating-point numbers as Java writes them; see `widen.files.data_reader.java_number`."""
    parts = pc.extract_regex(values.cast(pa.string()), _NUMBER)
    sign, whole, rest, power = (pc.struct_field(parts, name) for name in ("sign", "whole", "rest", "power"))
    size = pc.abs(values)
    least, most, zero = (pa.scalar(each, values.type) for each in (1e-3, 1e7, 0.0))
    is_plain = pc.or_(pc.and_(pc.greater_equal(size, least), pc.less(size, most)), pc.equal(size, zero))
    plain = pc.binary_join_element_wise(sign, whole, ".", _or_zero(rest), "")
    if pc.all(is_plain).as_py() is not False:
        return plain
    is_small = pc.equal(whole, "0")
    leading = pc.utf8_ltrim(rest, "0")
    digits = pc.if_else(is_small, leading, pc.binary_join_element_wise(whole, rest, ""))
    first = pc.if_else(
        is_small,
        pc.negate(pc.add(pc.subtract(pc.utf8_length(rest), pc.utf8_length(leading)), 1)),
        pc.subtract(pc.utf8_length(whole), 1),
    )
    power = pc.replace_substring(pc.if_else(pc.equal(power, ""), "0", power), "+", "")
    exponent = pc.add(first, power.cast(pa.int32())).cast(pa.string())
    digits = pc.utf8_rtrim(digits, "0")
    head, tail = pc.utf8_slice_codeunits(digits, 0, 1), pc.utf8_slice_codeunits(digits, 1)
    long = pc.binary_join_element_wise(sign, head, ".", _or_zero(tail), "")
    long = pc.binary_join_element_wise(long, exponent, "E")
    special = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
    text = pc.if_else(is_plain, plain, pc.if_else(pc.is_finite(values), long, special))
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _or_zero(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), "0", texts)


def _number_to_text(values: pa.Array, old: DataType, new: DataType) -> pa.Array:
    return number_texts(values)


_INTEGERS = ("byte", "short", "integer", "long")


CONVERSIONS: Mapping[tuple[str, str], Conversion] = {
    ("float", "double"): _cast,
    ("double", "float"): _double_to_float,
    ("double", "decimal"): _double_to_decimal,
    ("double", "string"): _number_to_text,
    ("float", "string"): _number_to_text,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "double"): _decimal_to_double,
    ("decimal", "string"): _decimal_to_text,
    ("decimal", "float"): _decimal_to_float,
    ("float", "decimal"): _float_to_decimal,
    ("date", "timestamp"): _date_to_timestamp,
    ("date", "timestamp_ntz"): _date_to_timestamp,
    ("date", "string"): _date_to_text,
    ("date", "decimal"): _date_to_decimal,
    ("boolean", "decimal"): _boolean_to_decimal,
    ("timestamp", "long"): _timestamp_to_number,
    ("timestamp", "double"): _timestamp_to_number,
    ("timestamp", "decimal"): _timestamp_to_decimal,
    ("timestamp", "string"): _time_to_text,
    ("timestamp_ntz", "string"): _time_to_text,
    **{("date", name): _date_to_number for name in ("integer", "long", "double")},
    **{("boolean", name): _cast for name in (*_INTEGERS, "float", "double", "string")},
    **{(name, "string"): _cast for name in _INTEGERS},
    **{(name, "decimal"): _integer_to_decimal for name in _INTEGERS},
    **{(name, "double"): _long_to_double for name in _INTEGERS},
    **{(name, "float"): _long_to_float for name in _INTEGERS},
    **{(old, new): _to_integer for old in _INTEGERS for new in _INTEGERS if old != new},
}
"""The conversions of scalars by old and new type."""

TOTAL_CONVERSIONS = frozenset(
    {
        *(("date", name) for name in ("timestamp", "integer", "long", "double")),
        *(("boolean", name) for name in (*_INTEGERS, "float", "double")),
    }
)
"""The conversions that hold every value of the old type, beside those to text and those that widen a type."""


EXACT_LONG, EXACT_FLOAT = 2**53, 2**24
"""Up to these absolute values, a double, or a float, represents every integer."""


FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, the range of timestamps that all systems support."""


MICROS_PER_UNIT: Mapping[EpochUnit, tuple[int, int]] = MappingProxyType(
    {
        EpochUnit.SECONDS: (1_000_000, 1),
        EpochUnit.MILLISECONDS: (1_000, 1),
        EpochUnit.MICROSECONDS: (1, 1),
        EpochUnit.NANOSECONDS: (1, 1_000),
    }
)
"""The factor and the divisor that turn a number of each unit into microseconds."""
