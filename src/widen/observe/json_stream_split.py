"""A large file of JSON in pieces: the outermost records in it, one after the other, whatever stands around them.

Source: RFC 8259.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from widen.errors import SourceError
from widen.observe.json_document import BOM

MAX_RECORD_BYTES = 256 * 2**20
"""A record that is longer is none: the file is damaged, or is one document as a whole."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SEPARATORS = b" \t\r\n,[]"


class RecordSplitter:
    r"""Puts records together from the pieces of a text that was cut at every ``}``, also at those inside of strings.

    Records are the objects that stand in no other one: alone, on lines, or in arrays. What stands between them and is
    neither space, comma nor bracket is given as a text of its own, so that it is not lost.

    Example:
        >>> splitter = Splitter()
        >>> pieces = b'[{"a":{"b":"}"}}, 7, {"a":1}]'.split(b"}")
        >>> [text for piece in pieces for text in splitter.records(piece)], list(splitter.rest(None))
        ([b'{"a":{"b":"}"}}', b'7', b'{"a":1}'], [])
    """

    def __init__(self) -> None:
        self._waiting: bytes | None = None
        self._parts: list[bytes] = []
        self._kept_bytes = self._taken_bytes = self._depth = 0
        self._is_in_string = False

    def records(self, piece: bytes) -> Iterator[bytes]:
        """Take the next piece, and yield what the one before it completes: a record, and what stood before that.

        Args:
            piece: What stands up to a ``}``, without it; of the last piece, up to the end.

        Raises:
            SourceError: a record is longer than `MAX_RECORD_BYTES`.
        """
        waiting, self._waiting = self._waiting, piece
        self._taken_bytes += len(piece) + 1
        if waiting is not None:
            yield from self._completed(waiting, b"}")

    def rest(self, size_bytes: int | None) -> Iterator[bytes]:
        """Yield what is left when there are no further pieces: the last record, or what has no end.

        Args:
            size_bytes: Of the whole text, which tells whether a ``}`` came last; if nobody knows, a record is taken
                to be complete with it.
        """
        last, is_record = self._waiting or b"", self._depth or b"{" in (self._waiting or b"")
        is_closed = is_record if size_bytes is None else self._taken_bytes in (size_bytes, size_bytes - len(BOM))
        yield from self._completed(last, b"}" if is_closed else b"")
        if self._parts:
            yield self._taken()

    def _completed(self, piece: bytes, end: bytes) -> Iterator[bytes]:
        if not self._depth:
            between, brace, rest = piece.removeprefix(BOM).partition(b"{")
            text = (between if brace else between + end).strip(_SEPARATORS)
            if text:
                yield text
            if not brace:
                return
            piece = brace + rest
        self._look_at(piece, end)
        self._parts += [piece, end]
        self._kept_bytes += len(piece) + 1
        if self._kept_bytes > MAX_RECORD_BYTES:
            raise SourceError(source="A large file of JSON", reason=_ENDLESS, fix=_LINES)
        if not self._depth:
            yield self._taken()

    def _look_at(self, piece: bytes, end: bytes) -> None:
        """Count the braces outside of strings, the one at the end included."""
        bare = _STRING.sub(b"", b'"' + piece if self._is_in_string else piece)
        before, quote, _ = bare.partition(b'"')
        self._is_in_string = bool(quote)
        self._depth += before.count(b"{") - (len(end) if not quote else 0)

    def _taken(self) -> bytes:
        text = b"".join(self._parts)
        self._parts, self._kept_bytes, self._depth, self._is_in_string = [], 0, 0, False
        return text


_ENDLESS = f"what begins as a record does not end within {MAX_RECORD_BYTES // 2**20} MB"
_LINES = "Give JSON lines, e.g. with: jq -c '.[]' FILE; a document as large as that is no record."
