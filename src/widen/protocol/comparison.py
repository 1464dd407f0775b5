"""Comparisons of a column with a constant, bound to the column: the constant becomes a value of the column's type.

Column and constant are compared in the type that Spark uses: an integer beside 5.5 as a decimal, a bigint beside
a double as a double, a date beside a text as a date. Here the constant moves instead of the column: ``qty < 5.5`` is
``qty <= 5``, ``qty = 5.5`` is false unless ``qty`` is null, and ``n = 9007199254740992D`` is the range of bigints that
Spark rounds to that double.
Code that evaluates a bound comparison, on rows or on statistics, converts nothing.

What depends on the session, such as ANSI mode or the time zone, is an `UnknownPredicate`, and Spark evaluates it.

Source: Spark's type coercion, ANSI and not: TypeCoercion, AnsiTypeCoercion, DecimalPrecision
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import TypeAlias, TypeGuard

from widen.model.column_path import Path
from widen.model.types import DATE, DOUBLE, FLOAT, TIMESTAMP, TIMESTAMP_NTZ, VOID, DataType, DecimalType, plain_name
from widen.model.value_classes import dataclass
from widen.protocol.data_skipping import And, Compare, ConstantUnlessNull, Or, Predicate, UnknownPredicate
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue, is_float32, parse_partition_value

Constant: TypeAlias = Scalar | UnknownValue | None
"""A constant of a condition by the type that Spark gives it: an int is an integer, a Decimal a decimal, a float a
double, an aware datetime a timestamp, a naive one a timestamp_ntz, and None is NULL."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as a condition spells it, and the type that Spark gives it; the type of NULL is void."""

    value: Scalar | None
    type: DataType


_BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_MOST_DIGITS = 38
_DIGITS: Mapping[str, tuple[int, int]] = dict.fromkeys(_BITS, (20, 0))
_EXACT_DOUBLES = 2**53


def bind_comparison(path: Path, data_type: DataType, operator: str, value: Constant) -> Predicate:
    """Return the comparison of a column with a constant.

    Example:
        >>> from widen.model.types import INTEGER
        >>> bind_comparison(("qty",), INTEGER, "<", Decimal("5.5")).operator
        '<='
    """
    name = plain_name(data_type)
    if value is None:
        return ConstantUnlessNull(path, data_type, None)
    if isinstance(value, UnknownValue) or isinstance(value, bool) is not (name == "boolean"):
        return UnknownPredicate()
    if name in ("float", "double"):
        return _bind_to_doubles(path, data_type, operator, value)
    if name in _BITS or isinstance(data_type, DecimalType):
        return _bind_to_steps(path, data_type, operator, value)
    if name == "date" and type(value) is datetime and value.tzinfo is None:
        return _bind_to_days(path, data_type, operator, value)
    zoned = isinstance(value, datetime) and value.tzinfo is not None
    if _KINDS.get(name) is not type(value) or zoned != (name == "timestamp"):
        return UnknownPredicate()
    return Compare(path, data_type, operator, value)


def bind_literal(
    path: Path, data_type: DataType, operator: str, literal: Literal | None, length: int | None = None
) -> Predicate:
    """Return the comparison of a column with a literal; see `bind_comparison`.

    Args:
        literal: None if it is not one whose value is known.
        length: The length of a column of char(n); Spark pads the literal to it.
    """
    return bind_comparison(path, data_type, operator, _meet(literal, data_type, length))


def _meet(literal: Literal | None, data_type: DataType, length: int | None) -> Constant:
    """Return the constant that Spark compares with a column for a literal."""
    if literal is None or (literal.type == FLOAT and data_type not in (FLOAT, DOUBLE)):
        return UNKNOWN
    value = literal.value
    if isinstance(value, str):
        if data_type in _TIMES:
            found = parse_partition_value(value, data_type)
            return UNKNOWN if found is None else found
        # A longer one is compared with longer texts, which is the same if the rest is spaces.
        is_cut = length is not None and value[length:].strip(" ")
        return value if length is None else UNKNOWN if is_cut else value[:length].ljust(length)
    if literal.type == DATE and data_type != DATE and isinstance(value, date):
        return datetime.combine(value, time())
    return value


def bind_list(
    path: Path, data_type: DataType, literals: Sequence[Literal | None], length: int | None = None
) -> Predicate:
    """Return whether a column is one of some literals; Spark compares all of them in their widest type."""
    # Without ANSI mode, Spark compares times as texts if one is a text. That is the same for days, as it writes them.
    has_others = data_type in _TIMES and any(each is not None and each.type not in (*_TIMES, VOID) for each in literals)
    if has_others and not (data_type == DATE and all(map(_is_day, literals))):
        return UnknownPredicate()
    values = [_meet(each, data_type, length) for each in literals]
    if length is not None and None in values:
        return UnknownPredicate()
    if any(isinstance(each, float) for each in values):
        values = [float(each) if _is_exact_number(each) else each for each in values]
    elif not _fit_decimal([Decimal(each) for each in values if _is_exact_number(each)], data_type):
        return UnknownPredicate()
    return reduce(Or, (bind_comparison(path, data_type, "=", each) for each in values))


def _is_day(literal: Literal | None) -> bool:
    if literal is None or not isinstance(literal.value, str):
        return literal is not None and literal.type == DATE
    return _DAY.fullmatch(literal.value) is not None


_TIMES = frozenset({DATE, TIMESTAMP, TIMESTAMP_NTZ})
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _is_exact_number(value: Constant) -> TypeGuard[int | Decimal]:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


_KINDS: Mapping[str, type] = {
    "boolean": bool,
    "string": str,
    "date": date,
    "timestamp": datetime,
    "timestamp_ntz": datetime,
}


def _bind_to_doubles(path: Path, data_type: DataType, operator: str, value: Scalar) -> Predicate:
    """Return a comparison with a floating-point column, whose values Spark compares as doubles.

    Without ANSI mode it compares a float with an integer as floats, which is the same if the integer is a float.
    """
    if not isinstance(value, (int, float, Decimal)):
        return UnknownPredicate()
    if str(data_type) == "float" and isinstance(value, int) and not is_float32(value):
        return UnknownPredicate()
    number = float(value)
    if not math.isnan(number):
        return Compare(path, data_type, operator, number)
    # NaN is above every number, so it is the only value above infinity.
    if operator in ("<=", ">"):
        return ConstantUnlessNull(path, data_type, operator == "<=")
    return Compare(path, data_type, ">" if operator in ("=", ">=") else "<=", math.inf)


def _bind_to_steps(path: Path, data_type: DataType, operator: str, value: Scalar) -> Predicate:
    """Return a comparison with a column of integers or decimals, which are multiples of a unit."""
    is_decimal = isinstance(data_type, DecimalType)
    if isinstance(data_type, DecimalType):
        scale, highest = data_type.scale, 10**data_type.precision - 1
        lowest = -highest
    else:
        scale, highest = 0, 2 ** (_BITS[plain_name(data_type)] - 1) - 1
        lowest = -highest - 1
    if isinstance(value, float):
        first, last = _around_double(value, 10**scale, lowest, highest)
    elif _is_exact_number(value) and _is_exact(value, data_type):
        exact = Fraction(value) * 10**scale
        first, last = math.ceil(exact), math.floor(exact)
    else:
        return UnknownPredicate()

    def compare(sign: str, steps: int) -> Predicate:
        if not lowest <= steps <= highest:
            return ConstantUnlessNull(path, data_type, (steps > highest) is (sign in ("<", "<=")))
        return Compare(path, data_type, sign, _to_decimal(steps, scale) if is_decimal else steps)

    match operator:
        case "<":
            return compare("<", first) if first == last else compare("<=", first - 1)
        case ">=":
            return compare(">=", first)
        case ">":
            return compare(">", last) if first == last else compare(">=", last + 1)
        case "<=":
            return compare("<=", last)
    is_equal = operator == "="
    if first > last or last < lowest or first > highest:
        return ConstantUnlessNull(path, data_type, not is_equal)
    if first == last:
        return compare(operator, first)
    inside = And(compare(">=", first), compare("<=", last))
    return inside if is_equal else Or(compare("<", first), compare(">", last))


def _is_exact(value: int | Decimal, data_type: DataType) -> bool:
    """Return whether Spark compares a constant exactly with a column of integers or decimals.

    It replaces the comparison of an integer with one beyond the longs by a constant, for nulls as well.
    """
    is_possible = isinstance(data_type, DecimalType) or -(2**63) <= value <= 2**63 - 1
    return is_possible and _fit_decimal([Decimal(value)], data_type)


def _fit_decimal(values: Sequence[Decimal], data_type: DataType) -> bool:
    """Return whether one decimal type holds constants and all values of the column; if none does, Spark rounds."""
    whole, fraction = _DIGITS.get(plain_name(data_type), (0, 0))
    if isinstance(data_type, DecimalType):
        whole, fraction = data_type.precision - data_type.scale, data_type.scale
    for value in values:
        whole, fraction = max(value.adjusted() + 1, whole), max(-int(value.as_tuple().exponent), fraction)
    return whole + fraction <= _MOST_DIGITS


def _to_decimal(steps: int, scale: int) -> Decimal:
    """Return a number of units of a decimal type; arithmetic would round it to the precision of a context."""
    return Decimal((int(steps < 0), tuple(map(int, str(abs(steps)))), -scale))


def _around_double(value: float, unit: int, lowest: int, highest: int) -> tuple[int, int]:
    """Return the first number of units that is at least a double when rounded to one, and the last that is at most it.

    Either may be just outside of the range.

    Args:
        unit: How many of them are 1.
    """
    if math.isnan(value):  # above every number
        return highest + 1, highest
    if unit == 1 and highest < _EXACT_DOUBLES and math.isfinite(value):
        return math.ceil(value), math.floor(value)
    first = _search(lowest, highest, lambda steps: steps / unit >= value)
    return first, _search(first, highest, lambda steps: steps / unit > value) - 1


def _search(low: int, high: int, is_reached: Callable[[int], bool]) -> int:
    """Return the first number that passes a test, or one more than the last number."""
    end = high + 1
    while low < end:
        middle = (low + end) // 2
        if is_reached(middle):
            end = middle
        else:
            low = middle + 1
    return low


def _bind_to_days(path: Path, data_type: DataType, operator: str, value: datetime) -> Predicate:
    """Return a comparison of dates with a timestamp without a zone: Spark takes dates for their midnight."""
    day = value.date()
    if value.time() == time():
        return Compare(path, data_type, operator, day)
    match operator:
        case "=" | "<>":
            return ConstantUnlessNull(path, data_type, operator == "<>")
        case "<" | "<=":
            return Compare(path, data_type, "<=", day)
    return Compare(path, data_type, ">", day)
