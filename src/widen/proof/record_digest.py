"""The form in which the proof compares a source record with a table row, and the digest of a form.

A form holds what both can express: dicts without nulls and without order, lists, strings, booleans, and numbers in the
form of `widen.proof.canonical_number`. The form of a text that is not a record is a list with a marker.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from msgspec import Raw
from msgspec.json import Encoder, encode
from msgspec.msgpack import Ext

Form: TypeAlias = Any
"""A dict, list, string, boolean, None or canonical number."""

EncodedRecord: TypeAlias = tuple[bytes, int, int]
"""The encoded form of a row, a number of values, and how many of them the table has in another form than the source."""

LONG_NUMBER, SPELLED_NUMBER, CONTRADICTION_CODE, BINARY_CODE = 1, 2, 3, 4
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
    return blake2b(text, digest_size=DIGEST_BYTES).digest()


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
    """Return the number of values in the form of a record or a row; an empty one has none."""
    return count_values(form) if form else 0
