"""A decoder made from the columns: it accepts, in one native step, the records that fit the columns as they are.

What it accepts needs no look at any value: every key is known, and every value is of the one kind that its column
takes. Only the fields with several columns, or with values that need a conversion, are routed by hand afterwards.
Everything else it refuses, and the caller takes the exact path with the whole record; both give the same row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from widen.routing.native.record_shape import RecordShape

_encode = msgspec.json.Encoder().encode
_KEY = re.compile(rb'(?<!\\)"\s*:')
_UNCOUNTED = re.compile(rb'\\\\"|\\u00(?:20|3[aA])')


class RecordDecoder:
    """Decodes the records that fit the columns; see the module.

    Args:
        shape: What the columns take.
    """

    def __init__(self, shape: RecordShape) -> None:
        self._decode = msgspec.json.Decoder(shape.struct).decode

    def records(self, texts: Sequence[bytes]) -> list[Any]:
        """Return the record of each text, or None where only the exact path can tell it.

        A fraction that a double rounds is the caller's to keep away from here: a decoder cannot see it.

        Args:
            texts: Records as UTF-8.
        """
        found: list[Any] = []
        for text in texts:
            try:
                found.append(self._decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found.append(None)
        for at in _possible_duplicates(texts, found):
            if has_duplicates(texts[at], found[at]):
                found[at] = None
        return found


def _possible_duplicates(texts: Sequence[bytes], found: Sequence[Any]) -> list[int]:
    """Return which records may have a key twice: none, if together they have no more quotes than their texts."""
    there = [at for at, record in enumerate(found) if record is not None]
    together = b"".join(texts if len(there) == len(texts) else [texts[at] for at in there])
    if b"\\" not in together and together.count(b'"') == _encode(found).count(b'"'):
        return []
    escaped = [at for at in there if b"\\" in texts[at]]
    plain = [at for at in there if b"\\" not in texts[at]]
    quotes = sum(texts[at].count(b'"') for at in plain)
    return escaped if _encode([found[at] for at in plain]).count(b'"') == quotes else there


def has_duplicates(text: bytes, decoded: Any) -> bool:
    """Tell whether a key may stand twice in one object: the text then has more quotes than what it decodes to.

    With escapes in the text quotes say nothing, and keys are counted; where they end in a backslash, or a colon or a
    space is escaped, they are hard to count, and the answer is yes. What was left as text is not looked into.

    Args:
        text: One JSON value.
        decoded: What a decoder made of it.
    """
    once = _encode(decoded)
    if b"\\" not in text:
        return text.count(b'"') != once.count(b'"')
    return _UNCOUNTED.search(text) is not None or len(_KEY.findall(text)) != len(_KEY.findall(once))
