"""A decoder made from the columns: it accepts, in one native step, the records that fit the columns as they are.

What it accepts needs no look at any value: every key is known, and every value is of the one kind that its column
takes. Only the fields with several columns, or with values that need a conversion, are handed out raw and routed by
hand. Everything else it refuses, and the caller takes the exact path with the whole record; both give the same row.

Source: house rule: the fast path must know when it cannot be exact.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from widen.observe.document import NotJson, parse
from widen.observe.kind import RECORD_WORD, Kind
from widen.observe.number import SURE_CHARS
from widen.observe.observation import FieldSeen, Position, RecordSeen, field_of
from widen.observe.walk import observe_value
from widen.routing.route import RecordRoute
from widen.routing.row import Row, route_value
from widen.routing.shape import Habits, Place, Raw, Shape, shape_of


class Decoder:
    """Decodes the records that fit the columns; see the module.

    Args:
        route: Which columns each key goes to.
        habits: What the batch has shown so far.
    """

    def __init__(self, route: RecordRoute, habits: Habits) -> None:
        self._root = shape_of(route, habits)
        self._typed = msgspec.json.Decoder(self._root.struct)

    def row(self, text: bytes, seen: RecordSeen, at: Position) -> Row | None:
        """Return the row of a record, or None if only the exact path can tell it.

        A fraction that a double rounds is the caller's to keep away from here: a decoder cannot see it.

        Args:
            text: One record as UTF-8.
            seen: What the batch has held; grows by those values of raw fields that have no column of their kind.
            at: Where the record stands.
        """
        try:
            record = self._typed.decode(text)
            row: Row = _plain(text)
            if _has_duplicates(text, row):
                return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return row if _route(self._root, record, row, seen, at) else None


_plain = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_KEY = re.compile(rb'(?<!\\)"\s*:')
_UNCOUNTED = re.compile(rb'\\\\"|\\u00(?:20|3[aA])')


def _has_duplicates(text: bytes, row: Row) -> bool:
    """Tell whether a key may stand twice in one object: the text then has more quotes than what it decodes to.

    With escapes in the text quotes say nothing, and keys are counted; where they end in a backslash, or a colon or a
    space is escaped, they are hard to count, and the answer is yes.
    """
    once = _encode(row)
    if b"\\" not in text:
        return text.count(b'"') != once.count(b'"')
    return _UNCOUNTED.search(text) is not None or len(_KEY.findall(text)) != len(_KEY.findall(once))


def _route(node: Shape, record: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    """Put what was handed out raw into its columns, in place; False if that needs the exact path."""
    for key in node.homeless:
        row.pop(key, None)
    routed: Row = {}
    for item in node.raw:
        plain = row.pop(item.key, None)
        if plain is None:
            continue
        raw, form = getattr(record, item.attribute), type(plain)
        if item.is_decoded and (form is list or form is dict):
            _route_decoded(item, plain, routed)
            continue
        ways = item.ways.get(form)
        if ways is not None and (item.is_decoded or _is_sure(item, plain, raw)):
            for name, way in ways:
                routed[name] = plain if way is None else way(plain, raw)
        elif not _route_slowly(item, bytes(raw), plain, routed, seen, at):
            return False
    for below in node.below:
        inner = row.get(below.key)
        if inner is not None and not _route_below(below.node, getattr(record, below.attribute), inner, seen, at):
            return False
    row.update(routed)
    return True


def _route_decoded(item: Raw, plain: Any, routed: Row) -> None:
    if isinstance(plain, list):
        assert item.array is not None
        routed[item.array] = plain
        return
    for name, dim in item.record:
        value = plain
        for _ in range(dim):
            value = [value]
        routed[name] = value


def _is_sure(item: Raw, plain: Any, raw: msgspec.Raw) -> bool:
    """Tell whether the ways serve this scalar: a whole number within their bounds, a fraction that a double says."""
    form = type(plain)
    if form is int:
        return bool(item.low <= plain < item.high)
    if form is not float:
        return True
    token = bytes(raw)
    return len(token) <= SURE_CHARS and b"e" not in token and b"E" not in token


def _route_slowly(item: Raw, raw: bytes, plain: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    """Route a value that is nested, or that no way is sure of; its kind is observed unless it is one column's own."""
    if isinstance(plain, (list, dict)) and not _is_shapeless(plain):
        for slot, typed in item.direct:
            if _is_direct(raw, typed):
                row[slot.name] = plain
                return True
    value = parse(raw, sum(1 + dim for _, dim in item.place) + 1)
    if isinstance(value, NotJson) or item.rescues:
        return False
    observe_value(_field_at(seen, item.place, item.key), value, at)
    route_value(row, item.slots, value)
    return True


def _is_shapeless(plain: Any) -> bool:
    """Tell whether an array is one of everything and nothing: every column of arrays takes it."""
    return type(plain) is list and all(item is None for item in plain)


def _is_direct(raw: bytes, typed: msgspec.json.Decoder[Any]) -> bool:
    try:
        typed.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _route_below(node: Shape, record: Any, row: Any, seen: RecordSeen, at: Position) -> bool:
    if isinstance(row, list):
        return all(_route_below(node, r, w, seen, at) for r, w in zip(record, row, strict=True) if w is not None)
    return _route(node, record, row, seen, at)


def _field_at(seen: RecordSeen, place: Place, key: str) -> FieldSeen:
    for above, dim in place:
        field_above = field_of(seen, above)
        field_above.kind(Kind(RECORD_WORD, dim))
        seen = field_above.record(dim)
    return field_of(seen, key)
