"""The form in which a record of the source and a row of the table are compared, and its digest.

A form is what JSON says, without what a table cannot tell: dicts without nulls and in any order, lists, texts, booleans
and numbers as `widen.proof.canonical_number` has them. A text that is not a record is a list with a marker.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from msgspec.msgpack import Encoder, Ext

Form: TypeAlias = Any

LONG_NUMBER, SPELLED_NUMBER, CONTRADICTION_CODE = 1, 2, 3
"""The types of what MessagePack has no type for."""

CONTRADICTION: Final = Ext(CONTRADICTION_CODE, b"")
"""Stands where the columns of one field say different values. No record has it, so no record equals the row."""

DIGEST_BYTES = 16

_encode = Encoder(order="sorted").encode


def digest(form: Form) -> bytes:
    """Return a short text that only equal forms share."""
    return blake2b(_encode(form), digest_size=DIGEST_BYTES).digest()


def corrupt_form(text: str) -> Form:
    """Return the form of a text that is not a record."""
    return ["not a record", text]


def differences(form: Form, other: Form, at: str = "") -> Iterator[tuple[str, int]]:
    """Yield where two forms differ, and how many values of the first stand there; places in arrays are in brackets."""
    if isinstance(form, dict) and isinstance(other, dict):
        for key in sorted(form.keys() | other.keys()):
            yield from differences(form.get(key), other.get(key), f"{at}.{key}" if at else key)
    elif isinstance(form, list) and isinstance(other, list) and len(form) == len(other):
        for number, (one, two) in enumerate(zip(form, other, strict=True)):
            yield from differences(one, two, f"{at}[{number}]")
    elif _encode(form) != _encode(other):
        yield at, count_values(form)


def count_values(form: Form) -> int:
    """Return how many values a form has: scalars that are not null, and empty containers."""
    if isinstance(form, dict):
        return sum(map(count_values, form.values())) if form else 1
    if isinstance(form, list):
        return sum(map(count_values, form)) if form else 1
    return int(form is not None)
