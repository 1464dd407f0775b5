"""Numbers of JSON and of columns in one form: equal numbers have equal bytes.

An integer of 64 bits is an int. Another number that equals the shortest text of a double is a float. Every other number
is the text of its digits. Negative zero is the float -0.0.

Source: docs/evolution-rules.md#d1, #d2, #d3
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TypeAlias

from msgspec.msgpack import Ext

from widen.proof.record_digest import LONG_NUMBER, SPELLED_NUMBER

Canonical: TypeAlias = int | float | Ext

EXACT_WHOLE = 2**53
"""Largest magnitude up to which a double holds every integer."""

MAX_DIGITS = 38

_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LONG_DIGITS = 19


def to_decimal(token: str) -> Decimal | None:
    """Return the number of a JSON token, or None if its exponent is too large for every column."""
    try:
        return Decimal(token)
    except InvalidOperation:
        return None


def canonical_number(number: Decimal) -> Canonical:
    """Return the canonical form of a number.

    Example:
        >>> canonical_number(Decimal("1e3")), canonical_number(Decimal("2.50")), canonical_number(Decimal("-0"))
        (1000, 2.5, -0.0)
    """
    if not number.is_finite():
        return Ext(LONG_NUMBER, str(number).encode())
    if number.is_zero():
        return -0.0 if number.is_signed() else 0
    # The magnitude is compared first: `int` would write out all the digits of 1e999999.
    if number.adjusted() < _LONG_DIGITS and number == (whole := int(number)) and -(2**63) <= whole < 2**63:
        return whole
    nearest = exact_double(number)
    if nearest is not None:
        return nearest
    return Ext(LONG_NUMBER, str(number.normalize(_EXACT)).encode())


def number_kind(number: Decimal) -> str:
    """Return the kind of a number that is not a double; a string, if a decimal of 38 digits cannot hold it."""
    exponent = number.normalize(_EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    if max(0, number.adjusted() + 1) + max(0, -exponent) > MAX_DIGITS:
        return "string"
    return "long" if exponent >= 0 and -(2**63) <= number < 2**63 else "decimal"


def canonical_double(value: float) -> Canonical:
    """Return the canonical form of a double: that of the number in its shortest text."""
    return canonical_number(Decimal(repr(value)))


def canonical_token(token: str) -> Canonical:
    """Return the canonical form of a JSON number."""
    number = to_decimal(token)
    return Ext(LONG_NUMBER, token.encode()) if number is None else canonical_number(number)


def canonical_spelling(token: str) -> Canonical:
    """Return a form of a JSON number that only the same spelling has; the rescue column keeps spellings."""
    number = canonical_token(token)
    return number if repr(number) == token else Ext(SPELLED_NUMBER, token.encode())


def has_canonical_spelling(token: str) -> bool:
    """Tell whether a column of numbers gives back the spelling of a JSON number; ``5`` and ``5.0`` count as one."""
    number = to_decimal(token)
    if number is None:
        return True
    canonical = canonical_number(number)
    if isinstance(canonical, Ext):
        return format(number.normalize(_EXACT), "f") == token if abs(number.adjusted()) < len(token) else False
    return token in (repr(canonical), f"{canonical}.0", "-0" if token == "-0" else "")


def exact_double(number: Decimal) -> float | None:
    """Return the double whose shortest text is a number, or None."""
    try:
        nearest = float(number)
    except OverflowError:
        return None
    return nearest if Decimal(repr(nearest)) == number else None
