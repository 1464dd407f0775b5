"""Number tokens: the kind of each, and the facts that decide which columns represent it exactly.

Source: docs/evolution-rules.md#d1 to #d3; RFC 8259 section 6 for the tokens.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from widen.observe.kind import DECIMAL_WORD, DOUBLE_WORD, LONG_WORD, STRING_WORD

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
    so that its spelling is kept.

    Args:
        token: The number in the spelling of the source, e.g. ``-1.50e3``.

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
    return _fraction_kind(value, float(token))


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
