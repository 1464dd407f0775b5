"""Split a large JSON file, read in pieces, into its outermost records.

Source: RFC 8259.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from widen.errors import CorruptFile
from widen.observe.json_document import BOM

MAX_RECORD_BYTES = 64 * 2**20
"""The default of the maximum size of a record: a longer one means that the file is damaged or is one large document."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SEPARATORS, _BRACKETS = b" \t\r\n,", b"[]"
_array = msgspec.json.Decoder(list[msgspec.Raw])


class RecordSplitter:
    r"""Assembles records from the pieces of a text that was split at every ``}``, also inside strings.

    Records are the outermost objects: alone, on lines, or in arrays. Between them, spaces, commas and the brackets of
    these arrays are separators. Anything else becomes a text, so that nothing is lost.

    Args:
        source: The file that errors name.
        limit: Maximum size of a record.

    Example:
        >>> splitter = RecordSplitter()
        >>> pieces = b'[{"a":{"b":"}"}}, 7, {"a":1}]'.split(b"}")
        >>> [text for piece in pieces for text in splitter.records(piece)], list(splitter.rest(None))
        ([b'{"a":{"b":"}"}}', b'7', b'{"a":1}'], [])
    """

    def __init__(self, source: str = "A large file of JSON", limit: int = MAX_RECORD_BYTES) -> None:
        self.source, self._limit = source, limit
        self._pending_piece: bytes | None = None
        self._parts: list[bytes] = []
        self._record_bytes = self._read_bytes = self._depth = 0
        self._is_in_string = False
        self._is_begin = True

    def records(self, piece: bytes) -> Iterator[bytes]:
        """Add a piece, and yield the texts that the previous piece completes: a record, and any text before it.

        Args:
            piece: The text up to a ``}``, without it; the last piece ends at the end of the text.

        Raises:
            CorruptFile: a record is longer than the limit.
        """
        pending, self._pending_piece = self._pending_piece, piece
        self._read_bytes += len(piece) + 1
        if pending is not None:
            yield from self._complete(pending, b"}")

    def rest(self, size_bytes: int | None) -> Iterator[bytes]:
        """Yield the texts that are left after the last piece: the last record, complete or not.

        Args:
            size_bytes: The size of the whole text, which shows whether it ends with ``}``; None if it is unknown, and
                then a last record is assumed to be complete.
        """
        last, is_record = self._pending_piece or b"", self._depth or b"{" in (self._pending_piece or b"")
        is_closed = is_record if size_bytes is None else self._read_bytes in (size_bytes, size_bytes - len(BOM))
        yield from self._complete(last, b"}" if is_closed else b"")
        if self._parts:
            yield self._take_record()

    def _complete(self, piece: bytes, end: bytes) -> Iterator[bytes]:
        if not self._depth:
            between, brace, rest = piece.removeprefix(BOM).partition(b"{")
            text = _without_separators(between if brace else between + end)
            if text and not (self._is_begin and not brace and _is_empty_array(text)):
                yield text
            self._is_begin = False
            if not brace:
                return
            piece = brace + rest
        self._count_braces(piece, end)
        self._parts += [piece, end]
        self._record_bytes += len(piece) + 1
        if self._record_bytes > self._limit:
            start = max(self._read_bytes - self._record_bytes - len(self._pending_piece or b"") - 1, 0)
            raise CorruptFile(path=self.source, reason=_UNCLOSED.format(start, self._limit / 2**20), fix=SHORTEN_RECORD)
        if not self._depth:
            yield self._take_record()

    def _count_braces(self, piece: bytes, end: bytes) -> None:
        """Update the nesting depth by the braces outside of strings, including the closing one."""
        # A piece that begins inside a string gets its opening quote back, so that the pattern matches the string.
        bare = _STRING.sub(b"", b'"' + piece if self._is_in_string else piece)
        before, quote, _ = bare.partition(b'"')
        self._is_in_string = bool(quote)
        self._depth += before.count(b"{") - (len(end) if not quote else 0)

    def _take_record(self) -> bytes:
        text = b"".join(self._parts)
        self._parts, self._record_bytes, self._depth, self._is_in_string = [], 0, 0, False
        return text


def _without_separators(between: bytes) -> bytes:
    """Return the text between two records, without a bracket of an array around them."""
    text = between.strip(_SEPARATORS)
    if not text:
        return text
    begun, ended = text.removeprefix(b"[").strip(_SEPARATORS), text.removesuffix(b"]").strip(_SEPARATORS)
    candidates = (text, begun, ended, begun.removesuffix(b"]").strip(_SEPARATORS))
    return next(filter(_are_values, candidates), text.strip(_SEPARATORS + _BRACKETS))


def _are_values(text: bytes) -> bool:
    """Tell whether a text is JSON values with commas between them."""
    try:
        _array.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_empty_array(text: bytes) -> bool:
    return text.startswith(b"[") and not text.strip(_SEPARATORS + _BRACKETS)


_UNCLOSED = "what begins as a record at byte {:,} does not end within {:g} MB"
SHORTEN_RECORD = (
    "If the file is one large document, split it, e.g. with: jq -c '.[]' FILE; else it may be damaged. For records of "
    "that size, raise max_record_size (--max-record-size)."
)
"""What to do about a record that is longer than the limit."""
