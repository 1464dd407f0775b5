"""A decoder built from the columns. It accepts, in one native step, the records that fit the columns as they are.

The values of an accepted record are not read again: the decoder knows every key, and every value is of the kind that
its column takes. Only fields with several columns, or whose values need a conversion, are routed afterwards. A refused
record takes the exact path as a whole. Both paths give the same row, so the fast path must know when it cannot be
exact.

A decoder reads two things without an error that a column cannot keep: the last of two equal keys, and a number that a
double rounds. It has done neither where the decoded record, encoded again, gives the bytes of the text. That is one
comparison for many records; only the others are searched for equal keys and for such numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from widen.routing.native.record_shape import RecordShape

_encode = msgspec.json.Encoder().encode
# A quote after a backslash is part of a string.
_KEY_END = re.compile(rb'(?<!\\)"\s*:')
# The pattern above misses a key that ends with a backslash. The encoder writes an escaped space or colon plainly, so
# the string "\u003a" would look like the end of a key only after encoding, and could make up for a key that is lost.
_UNCOUNTABLE = re.compile(rb'\\\\"|\\u00(?:20|3[aA])')
_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9][0-9.eE+-]*)")

_SPACES = b" \t\r\n"
# One translation turns each digit and the point into 0, so that a substring search finds long numbers; a
# regular expression takes thirty times as long.
_NUMBER_CHARS = bytes.maketrans(b"123456789.E", b"0000000000e")
# A double holds every number of 15 digits, so no number of up to 15 characters is rounded.
_LONG_NUMBER, _EXPONENT = b"0" * 16, b"0e"
# The decoder reads the integer -0 as 0. These also find -0.5, which the closer look lets pass.
_NEGATIVE_ZEROS = (b":-0", b",-0", b"[-0")


class RecordDecoder:
    """Decodes the records that fit the columns; see the module."""

    def __init__(self, shape: RecordShape) -> None:
        self._decode = msgspec.json.Decoder(shape.struct).decode

    def decode(self, texts: Sequence[bytes]) -> list[Any]:
        """Return the record of each text, or None if the text needs the exact path.

        Args:
            texts: Records as UTF-8.
        """
        decoded_records: list[Any] = []
        for text in texts:
            try:
                decoded_records.append(self._decode(text))
            # DecodeError is not enough: msgspec raises the other two for bytes that are not UTF-8 and for deep nesting.
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                decoded_records.append(None)
        for index in _find_suspects(texts, decoded_records):
            if is_changed(texts[index], decoded_records[index]):
                decoded_records[index] = None
        return decoded_records


def is_changed(text: bytes, decoded: Any) -> bool:
    """Tell whether a decoded value may lack something of its text: a duplicate key, or digits of a number.

    The answer ignores parts that are still text (`msgspec.Raw`).
    """
    return not is_encoded(text, decoded) and (_has_duplicates(text, decoded) or (_may_round(text) and _rounds(text)))


def is_encoded(text: bytes, decoded: Any) -> bool:
    """Tell whether a value, encoded again, gives its text; spaces between tokens do not count."""
    encoded = _encode(decoded)
    if encoded == text:
        return True
    try:
        return encoded == msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _find_suspects(texts: Sequence[bytes], decoded_records: Sequence[Any]) -> list[int]:
    """Return the indexes of the records that `is_changed` must look at.

    All are compared at once first, since most sources write numbers and strings like the encoder.
    """
    indexes = [index for index, record in enumerate(decoded_records) if record is not None]
    if is_encoded(*_join(texts, decoded_records, indexes)):
        return []
    indexes = [index for index in indexes if not is_encoded(texts[index], decoded_records[index])]
    # Quotes are counted over all records at once, which is wrong only where escapes hide or add quotes; records with
    # escapes are therefore always looked at alone.
    escaped = [index for index in indexes if b"\\" in texts[index]]
    plain = [index for index in indexes if b"\\" not in texts[index]]
    joined, records = _join(texts, decoded_records, plain)
    return indexes if _may_round(joined) or _has_duplicates(joined, records) else escaped


def _join(texts: Sequence[bytes], records: Sequence[Any], indexes: Sequence[int]) -> tuple[bytes, list[Any]]:
    """Return the texts and the records at some indexes, each as one array."""
    # The usual case: no record was refused, so nothing needs to be selected.
    if len(indexes) == len(texts):
        return b"[" + b",".join(texts) + b"]", list(records)
    return b"[" + b",".join([texts[index] for index in indexes]) + b"]", [records[index] for index in indexes]


def _has_duplicates(text: bytes, decoded: Any) -> bool:
    """Tell whether an object in a text may have a duplicate key: the text then has more quotes than its decoded value.

    If the text has escapes, quotes say nothing, and the keys are counted instead. If a key ends with a backslash, or a
    colon or a space is escaped, the keys cannot be counted, and the answer is yes.
    """
    encoded = _encode(decoded)
    if b"\\" not in text:
        # Of two equal keys the decoder keeps the last; the encoded value then lacks at least the quotes of one key.
        return text.count(b'"') != encoded.count(b'"')
    return _UNCOUNTABLE.search(text) is not None or len(_KEY_END.findall(text)) != len(_KEY_END.findall(encoded))


def _may_round(text: bytes) -> bool:
    """Tell whether a text may have a number that decoding changes: a long one, one with an exponent, or -0.

    Digits and letters of strings may look like one.
    """
    digits = text.translate(_NUMBER_CHARS)
    if _LONG_NUMBER in digits or _EXPONENT in digits:
        return True
    compact = text.translate(None, _SPACES) if b"-0" in text else b""
    return any(sign in compact for sign in _NEGATIVE_ZEROS)


def _rounds(text: bytes) -> bool:
    """Tell whether decoding changes any number of a text."""
    return any(
        token == b"-0" or _rounds_number(token.decode())
        for token in _NUMBER.findall(text)
        if len(token) > 15 or token == b"-0" or b"e" in token.lower()
    )


def _rounds_number(token: str) -> bool:
    try:
        return token.lstrip("-").isdecimal() is False and Decimal(repr(float(token))) != Decimal(token)
    except (ValueError, ArithmeticError):
        return True
