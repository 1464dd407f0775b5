"""Number tokens: the kind of each, and what is needed later to say which columns hold it exactly.

Source: docs/evolution-rules.md#d1 to #d3; RFC 8259 section 6 for the tokens.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from widen.observe.kind import DECIMAL_WORD, DOUBLE_WORD, LONG_WORD, STRING_WORD

SURE_CHARS = 16
"""A fraction of so many characters, point included, is the shortest text of some double."""

MAX_DIGITS = 38
"""The digits of the largest decimal."""


class ValueFacts(NamedTuple):
    """What is known of one value, beyond its kind. The defaults say nothing against any column.

    Args:
        integer_digits: Digits before the point of the exact value; 0 for 0.5 and for what is no number.
        scale: Digits after the point of the exact value, trailing zeros apart.
        fits_int32: A long that 32 bits hold.
        exact_double: The shortest text of the nearest double says the same number.
        decimal_exact: The number, taken to a decimal of up to 38 digits and back, is the same; not so for -0.0.
        epoch_ms_exact: A timestamp that a whole number of milliseconds holds.
    """

    integer_digits: int = 0
    scale: int = 0
    fits_int32: bool = True
    exact_double: bool = True
    decimal_exact: bool = True
    epoch_ms_exact: bool = True


NO_FACTS = ValueFacts()


def number_kind(token: str) -> tuple[str, ValueFacts]:
    """Return the word of the kind of a JSON number, with its facts.

    A whole number of 64 bits is a long, a longer one a decimal. A fraction or an exponent makes a double where the
    double says exactly what the token says, else a decimal. What 38 digits do not hold is a string, so that the
    token itself is kept.

    Args:
        token: The number as the source spells it, e.g. ``-1.50e3``.

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
        return DOUBLE_WORD, _plain_facts(before.lstrip("0"), after.rstrip("0"), is_negative=digits != token)
    try:
        value = Decimal(token)
    except InvalidOperation:
        return STRING_WORD, NO_FACTS
    return _fraction_kind(value, float(token))


def long_facts(value: int) -> ValueFacts:
    """Return the facts of a whole number of 64 bits."""
    digits = len(str(abs(value))) if value else 0
    return ValueFacts(digits, 0, -(2**31) <= value < 2**31, abs(value) <= _ALL_EXACT or _is_exact_double(value))


_ALL_EXACT = 2**53
"""Up to here every whole number is a double."""


def _is_exact_double(value: int) -> bool:
    """Tell whether the shortest text of the nearest double says the number; 2**60 has one that does not."""
    return Decimal(repr(float(value))) == value


def _plain_facts(before: str, after: str, *, is_negative: bool) -> ValueFacts:
    """Return the facts of a fraction so short that a double says it exactly."""
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
    """Return the digits before and after the point, zeros at either end apart."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(text)
    text = text.lstrip("0")
    return (max(0, len(text) + exponent), max(0, -exponent)) if text else (0, 0)
