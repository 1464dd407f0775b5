"""A decoder built from the columns. It accepts, in one native step, the records that fit the columns as they are.

An accepted record needs no look at its values: the decoder knows every key, and every value is of the kind that its
column takes. Only fields with several columns, or whose values need a conversion, are routed afterwards. A refused
record takes the exact path as a whole. Both paths give the same row, so the fast path must know when it cannot be
exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from widen.routing.native.record_shape import RecordShape

_encode = msgspec.json.Encoder().encode
_KEY_END = re.compile(rb'(?<!\\)"\s*:')
_UNCOUNTABLE = re.compile(rb'\\\\"|\\u00(?:20|3[aA])')


class RecordDecoder:
    """Decodes the records that fit the columns; see the module.

    Args:
        shape: Shape of the records.
    """

    def __init__(self, shape: RecordShape) -> None:
        self._decode = msgspec.json.Decoder(shape.struct).decode

    def decode(self, texts: Sequence[bytes]) -> list[Any]:
        """Return the record of each text, or None if the text needs the exact path.

        A decoder cannot see that a double rounds a fraction. The caller must keep such texts away; see
        `widen.routing.native.row_builder.ROUNDING_PATTERN`.

        Args:
            texts: Records as UTF-8.
        """
        decoded_records: list[Any] = []
        for text in texts:
            try:
                decoded_records.append(self._decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                decoded_records.append(None)
        for index in _possible_duplicates(texts, decoded_records):
            if has_duplicates(texts[index], decoded_records[index]):
                decoded_records[index] = None
        return decoded_records


def _possible_duplicates(texts: Sequence[bytes], decoded_records: Sequence[Any]) -> list[int]:
    """Return the indexes of the records that may have a duplicate key.

    msgspec keeps the last of two equal keys without an error. A text with a duplicate key has more quotes than the
    encoded record. All texts are counted at once first, since duplicates are rare.
    """
    positions = [index for index, record in enumerate(decoded_records) if record is not None]
    joined = b"".join(texts if len(positions) == len(texts) else [texts[index] for index in positions])
    if b"\\" not in joined and joined.count(b'"') == _encode(decoded_records).count(b'"'):
        return []
    escaped = [index for index in positions if b"\\" in texts[index]]
    plain = [index for index in positions if b"\\" not in texts[index]]
    quotes = sum(texts[index].count(b'"') for index in plain)
    return escaped if _encode([decoded_records[index] for index in plain]).count(b'"') == quotes else positions


def has_duplicates(text: bytes, decoded: Any) -> bool:
    """Tell whether an object in a text may have a duplicate key: the text then has more quotes than its decoded value.

    If the text has escapes, quotes say nothing, and the keys are counted instead. If a key ends with a backslash, or a
    colon or a space is escaped, the keys cannot be counted, and the answer is yes. The answer ignores parts that are
    still text (`msgspec.Raw`).

    Args:
        text: One JSON value.
        decoded: The value from a decoder.
    """
    encoded = _encode(decoded)
    if b"\\" not in text:
        return text.count(b'"') != encoded.count(b'"')
    return _UNCOUNTABLE.search(text) is not None or len(_KEY_END.findall(text)) != len(_KEY_END.findall(encoded))
