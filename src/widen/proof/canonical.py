"""The form that the proof uses to compare a source record with a table row, and the digest of a form.

A form holds what both can express: dicts without nulls and without order, lists, strings, booleans, and numbers in the
form of `widen.proof.canonical`. The form of a text that is not a record is a list with a marker.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from msgspec import Raw
from msgspec.json import Encoder, encode
from msgspec.msgpack import Ext

Form: TypeAlias = Any
"""A dict, list, string, boolean, None or canonical number."""

EncodedRecord: TypeAlias = tuple[bytes, int, int]
"""The encoded form of a row, a number of values, and how many of them the table has in another form than the source."""

LONG_NUMBER, SPELLED_NUMBER, CONTRADICTION_CODE, BINARY_CODE, SPELLING = 1, 2, 3, 4, 5
"""MessagePack extension types for values that MessagePack does not have."""

CONTRADICTION: Final = Ext(CONTRADICTION_CODE, b"")
"""Marks columns of one field with different values. No record has this form, so the row matches no record."""

DIGEST_BYTES = 16

EXTENSION_MARK = "~"
"""The first character of an extension in an encoded form. No JSON value begins with it."""


def _encode_extension(value: Any) -> Raw:
    assert isinstance(value, Ext)
    return Raw(f"{EXTENSION_MARK}{value.code}".encode() + encode(bytes(value.data).decode("latin-1")))


encode_form = Encoder(order="sorted", enc_hook=_encode_extension).encode
"""Encodes a form as JSON with sorted keys and without spaces; only equal forms have equal bytes."""


def digest(form: Form) -> bytes:
    """Return the digest of a form; only equal forms share one."""
    return digest_text(encode_form(form))


def digest_text(text: bytes) -> bytes:
    """Return the digest of an encoded form."""
    # 16 bytes: that two among 10^12 records share a digest has a chance of about 1 in 10^15. With a checksum, a source
    # could be made whose lost record has the digest of a row.
    return blake2b(text, digest_size=DIGEST_BYTES).digest()


def unmarked(form: Form) -> Form:
    """Return a form without marks of spellings: all spellings of a number are the same."""
    if isinstance(form, dict):
        return {key: unmarked(item) for key, item in form.items()}
    if isinstance(form, list):
        return [unmarked(item) for item in form]
    if not isinstance(form, Ext) or form.code != SPELLING:
        return form
    text = bytes(form.data).decode()
    return int(text == "true") if text in ("true", "false") else canonical_token(text.removesuffix("."))


def to_corrupt_form(text: str) -> Form:
    """Return the form of a text that is not a record."""
    return ["not a record", text]


def find_differences(form: Form, other: Form, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the paths where two forms differ, each with the number of values that the first form has there.

    Args:
        path: Path of both forms; indexes of arrays are in brackets.
    """
    if isinstance(form, dict) and isinstance(other, dict):
        for key in sorted(form.keys() | other.keys()):
            yield from find_differences(form.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(form, list) and isinstance(other, list) and len(form) == len(other):
        for index, (item, other_item) in enumerate(zip(form, other, strict=True)):
            yield from find_differences(item, other_item, f"{path}[{index}]")
    # Encoded, because Python says that 1 == True and that 0.0 == -0.0.
    elif encode_form(form) != encode_form(other):
        yield path, count_values(form)


def count_values(form: Form) -> int:
    """Return the number of values in a form: scalars that are not null, and empty containers."""
    if isinstance(form, dict):
        return sum(map(count_values, form.values())) if form else 1
    if isinstance(form, list):
        return sum(map(count_values, form)) if form else 1
    return int(form is not None)


def count_form(form: Form) -> int:
    """Return the number of values in the form of a record or a row; 0 for an empty one."""
    return count_values(form) if form else 0


# Numbers of JSON and of columns in one form: equal numbers have equal bytes.
#
# An integer of 64 bits is an int. Another number that equals the shortest text of a double is a float. Every other
# number is the text of its digits. Negative zero is the float -0.0.
#
# Source: docs/evolution-rules.md#d1, #d2, #d3


Canonical: TypeAlias = int | float | Ext

EXACT_WHOLE = 2**53
"""Up to this magnitude, a double holds every integer."""

MAX_DIGITS = 38

NON_FINITE = ("NaN", "Infinity", "-Infinity")
"""The doubles that are not JSON numbers, as `allow_nan` spells them; their forms are these texts with a mark."""

# The default context of Python rounds to 28 digits, and a JSON number may have any number of them.
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


def number_kind_of(token: str, number: Decimal) -> str:
    """Return the kind of a number that is not a double; a string, if a decimal of 38 digits cannot hold it.

    Only a number without a point and an exponent is a long: ``5.0`` is not an integer, regardless of its value.

    Source: docs/evolution-rules.md#d1
    """
    exponent = number.normalize(_EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    if max(0, number.adjusted() + 1) + max(0, -exponent) > MAX_DIGITS:
        return "string"
    return "long" if token.lstrip("-").isdecimal() and -(2**63) <= number < 2**63 else "decimal"


def canonical_double(value: float) -> Canonical:
    """Return the canonical form of a double: the number in its shortest text."""
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
    """Return whether a column of numbers gives back the spelling of a JSON number; ``5`` and ``5.0`` count as one."""
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


# Dates and timestamps in the forms of the proof: equal values have equal texts.
#
# Source: docs/evolution-rules.md#d5, #d6


def canonical_instant(text: str) -> str:
    """Return a timestamp with ``Z`` and without trailing zeros, so that equal timestamps have equal texts."""
    return canonical_time(text.removesuffix("Z").removesuffix("+00:00")) + "Z"


def canonical_time(text: str) -> str:
    """Return a timestamp without a time zone, without trailing zeros."""
    seconds, _, fraction = text.partition(".")
    return f"{seconds}.{fraction.rstrip('0')}".rstrip(".")


def is_same_timestamp(text: str, other: str) -> bool:
    """Return whether one of two strings is the timestamp that the other one spells."""
    return _is_timestamp_of(text, other) or _is_timestamp_of(other, text)


def _is_timestamp_of(text: str, timestamp: str) -> bool:
    if timestamp.endswith("Z"):
        return timestamp in (canonical_instant(text), canonical_instant(f"{text}T00:00:00Z"))
    return timestamp[10:11] == "T" and timestamp in (canonical_time(text), f"{text}T00:00:00")


_UNIT_MICROS = (1, 10**3, 10**6, 86_400 * 10**6)


def is_epoch_count_of(text: str, number: Any) -> bool:
    """Return whether a number counts the days, seconds or fractions of seconds from 1970 to a date or time."""
    micros = count_micros(text)
    if micros is None or isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    return any(Decimal(number) * unit == micros for unit in _UNIT_MICROS) or Decimal(number) / 1000 == micros


def count_micros(text: str) -> int | None:
    """Return the microseconds from 1970 to a date or time in UTC or without a zone; None for every other text."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "").replace("+00:00", ""))
    except ValueError:
        return None
    if moment.tzinfo is not None:  # a time in another zone stays a string
        return None
    passed = moment - datetime(1970, 1, 1)
    return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
