"""Numbers of JSON and of columns in one form, in which equal numbers are equal bytes.

A whole number of 64 bits is an int, another number that the shortest text of a double says is a float, and every other
one is the text of its digits. Zero with a sign is the float -0.0.

Source: docs/evolution-rules.md#d1, #d2, #d3
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TypeAlias

from msgspec.msgpack import Ext

from widen.proof.record_digest import LONG_NUMBER, SPELLED_NUMBER

Canonical: TypeAlias = int | float | Ext

EXACT_WHOLE = 2**53
"""Up to this magnitude every whole number is a double."""

_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LONG_DIGITS = 19


def to_decimal(token: str) -> Decimal | None:
    """Return the number that a token spells; None if its exponent is too large for every column."""
    try:
        return Decimal(token)
    except InvalidOperation:
        return None


def canonical_number(number: Decimal) -> Canonical:
    """Return a number in the form of this module.

    Example:
        >>> canonical(Decimal("1e3")), canonical(Decimal("2.50")), canonical(Decimal("-0"))
        (1000, 2.5, -0.0)
    """
    if not number.is_finite():
        return Ext(LONG_NUMBER, str(number).encode())
    if number.is_zero():
        return -0.0 if number.is_signed() else 0
    if number.adjusted() < _LONG_DIGITS and number == (whole := int(number)) and -(2**63) <= whole < 2**63:
        return whole
    nearest = _nearest(number)
    if nearest is not None:
        return nearest
    return Ext(LONG_NUMBER, str(number.normalize(_EXACT)).encode())


def canonical_double(value: float) -> Canonical:
    """Return what a double says: the number that its shortest text spells."""
    return canonical_number(Decimal(repr(value)))


def canonical_token(token: str) -> Canonical:
    """Return the number that a token spells."""
    number = to_decimal(token)
    return Ext(LONG_NUMBER, token.encode()) if number is None else canonical_number(number)


def spelled(token: str) -> Canonical:
    """Return a number that must keep its very text, as it does in JSON."""
    found = canonical_token(token)
    return found if repr(found) == token else Ext(SPELLED_NUMBER, token.encode())


def is_shortest(token: str) -> bool:
    """Tell whether a number comes back with the very text that it has in the source; ``5`` and ``5.0`` are one."""
    number = to_decimal(token)
    if number is None:
        return True
    found = canonical_number(number)
    if isinstance(found, Ext):
        return format(number.normalize(_EXACT), "f") == token if abs(number.adjusted()) < len(token) else False
    return token in (repr(found), f"{found}.0", "-0" if token == "-0" else "")


def _nearest(number: Decimal) -> float | None:
    try:
        nearest = float(number)
    except OverflowError:
        return None
    return nearest if Decimal(repr(nearest)) == number else None
