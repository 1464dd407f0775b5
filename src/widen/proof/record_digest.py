"""The form in which the proof compares a source record with a table row, and the digest of a form.

A form holds what both can express: dicts without nulls and without order, lists, strings, booleans, and numbers in the
form of `widen.proof.canonical_number`. The form of a text that is not a record is a list with a marker.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from msgspec.msgpack import Encoder, Ext

Form: TypeAlias = Any
"""A dict, list, string, boolean, None or canonical number."""

LONG_NUMBER, SPELLED_NUMBER, CONTRADICTION_CODE = 1, 2, 3
"""MessagePack extension types for values that MessagePack does not have."""

CONTRADICTION: Final = Ext(CONTRADICTION_CODE, b"")
"""Marks columns of one field with different values. No record has this form, so the row matches no record."""

DIGEST_BYTES = 16

_encode = Encoder(order="sorted").encode


def digest(form: Form) -> bytes:
    """Return the digest of a form; only equal forms share one."""
    return blake2b(_encode(form), digest_size=DIGEST_BYTES).digest()


def to_corrupt_form(text: str) -> Form:
    """Return the form of a text that is not a record."""
    return ["not a record", text]


def find_differences(form: Form, other: Form, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the paths where two forms differ, each with the number of values that the first form has there.

    Args:
        form: The form of a record.
        other: The form of a row.
        path: Path of both forms; indexes of arrays are in brackets.
    """
    if isinstance(form, dict) and isinstance(other, dict):
        for key in sorted(form.keys() | other.keys()):
            yield from find_differences(form.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(form, list) and isinstance(other, list) and len(form) == len(other):
        for index, (item, other_item) in enumerate(zip(form, other, strict=True)):
            yield from find_differences(item, other_item, f"{path}[{index}]")
    elif _encode(form) != _encode(other):
        yield path, count_values(form)


def count_values(form: Form) -> int:
    """Return the number of values in a form: scalars that are not null, and empty containers."""
    if isinstance(form, dict):
        return sum(map(count_values, form.values())) if form else 1
    if isinstance(form, list):
        return sum(map(count_values, form)) if form else 1
    return int(form is not None)
