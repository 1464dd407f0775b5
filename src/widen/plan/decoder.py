"""A decoder made from the columns: it accepts, in one native step, the records that fit the columns as they are.

What it accepts needs no look at any value: every key is known, and every value is of the one kind that its column
takes. Only the fields with several columns, or with values that need a conversion, are handed out raw and routed by
hand. Everything else it refuses, and the caller takes the exact path with the whole record; both give the same row.

Source: house rule: the fast path must know when it cannot be exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.observe.document import Document, NotJson, Number, parse
from widen.observe.kind import (
    BOOLEAN_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    RECORD_WORD,
    STRING_WORD,
    Kind,
)
from widen.observe.number import number_kind
from widen.observe.observation import FieldSeen, Position, RecordSeen
from widen.observe.walk import observe_value
from widen.plan.route import RecordRoute, Slot
from widen.plan.row import Row, route_value

_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EXACT_INT = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

_NATIVE: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        (BOOLEAN_WORD, "boolean"): bool,
        (INT_WORD, "integer"): _INT32,
        (LONG_WORD, "long"): _INT64,
        (DOUBLE_WORD, "double"): Union[_EXACT_INT, float],
        (STRING_WORD, "string"): str,
    }
)
"""The columns, by word and type, whose values are taken as they are decoded, and what the decoder lets through."""

_EMPTY_LIST = Annotated[list[None], msgspec.Meta(max_length=0)]
_EMPTY_RECORD = msgspec.defstruct("EmptyRecord", [], forbid_unknown_fields=True)

SourcePath: TypeAlias = tuple[str, ...]
"""Keys from the root to a field, arrays passed over."""

Place: TypeAlias = tuple[tuple[str, int], ...]
"""The records around a field: the key of each, and how many arrays are around it."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a batch has shown so far, beyond what the columns say.

    Args:
        loose: The fields with one plain column whose values are of other kinds as well.
        empty: The fields without a column, each with what it has held: nothing but nulls, ``[]`` and ``{}``.
    """

    loose: frozenset[SourcePath] = frozenset()
    empty: Mapping[SourcePath, FieldSeen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A field that is routed by hand, with the words of the scalar columns that it has."""

    key: str
    attribute: str
    place: Place
    slots: tuple[Slot, ...]
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Below:
    """A record, or arrays of records, in which some field is routed by hand."""

    key: str
    attribute: str
    node: _Node


@dataclass(frozen=True, slots=True)
class _Node:
    """The decoder of one record and what is left to do by hand."""

    struct: type[msgspec.Struct]
    raw: tuple[_Raw, ...]
    below: tuple[_Below, ...]


class Decoder:
    """Decodes the records that fit the columns; see the module.

    Args:
        route: Which columns each key goes to.
        habits: What the batch has shown so far.
    """

    def __init__(self, route: RecordRoute, habits: Habits) -> None:
        self._root = _node(route, (), habits)
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
            if _has_duplicates(text, record):
                return None
            row: Row = _plain(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return row if _route(self._root, record, row, seen, at) else None


_plain = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_KEY = re.compile(rb'(?<!\\)"\s*:')


def _has_duplicates(text: bytes, record: Any) -> bool:
    """Tell whether a key may stand twice in one object: the text then has more quotes than the decoded record.

    With escapes in the text quotes say nothing, and keys are counted; where they end in a backslash, they are hard to
    count, and the answer is yes.
    """
    once = _encode(record)
    if b"\\" not in text:
        return text.count(b'"') != once.count(b'"')
    return b'\\\\"' in text or len(_KEY.findall(text)) != len(_KEY.findall(once))


def _route(node: _Node, record: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    """Put what was handed out raw into its columns, in place; False if that needs the exact path."""
    found = [(item, getattr(record, item.attribute)) for item in node.raw if row.pop(item.key, None) is not None]
    for item, raw in found:
        value = parse(bytes(raw))
        if isinstance(value, NotJson):
            return False
        if not _has_column(value, item.words):
            observe_value(_field_at(seen, item.place, item.key), value, at)
        route_value(row, item.slots, value)
    return all(
        _route_below(item.node, getattr(record, item.attribute), row[item.key], seen, at)
        for item in node.below
        if row.get(item.key) is not None
    )


def _route_below(node: _Node, record: Any, row: Any, seen: RecordSeen, at: Position) -> bool:
    if isinstance(row, list):
        return all(_route_below(node, r, w, seen, at) for r, w in zip(record, row, strict=True) if w is not None)
    return _route(node, record, row, seen, at)


def _has_column(value: Document, words: frozenset[str]) -> bool:
    """Tell whether a scalar has a column of its own kind that holds every value of it."""
    if isinstance(value, Number):
        word, facts = number_kind(value)
        return word in words or (word == LONG_WORD and facts.fits_int32 and INT_WORD in words)
    return (STRING_WORD if isinstance(value, str) else BOOLEAN_WORD if isinstance(value, bool) else None) in words


def _field_at(seen: RecordSeen, place: Place, key: str) -> FieldSeen:
    for above, dim in place:
        field_above = seen.setdefault(above, FieldSeen())
        field_above.kind(Kind(RECORD_WORD, dim))
        seen = field_above.record(dim)
    return seen.setdefault(key, FieldSeen())


def _node(route: RecordRoute, place: Place, habits: Habits) -> _Node:
    raw: list[_Raw] = []
    below: list[_Below] = []
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    above = tuple(key for key, _ in place)
    empty = {path[-1]: seen for path, seen in habits.empty.items() if path[:-1] == above}
    for number, key in enumerate(dict.fromkeys((*route, *empty))):
        attribute = f"f{number}"
        names[attribute] = key
        native, node = _type(route.get(key, ()), empty.get(key), key, place, habits)
        fields.append((attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET))
        if native is msgspec.Raw:
            words = frozenset(slot.word for slot in route[key] if slot.dim == 0 and _native_of(slot) is not None)
            raw.append(_Raw(key, attribute, place, route[key], words))
        elif node is not None and (node.raw or node.below):
            below.append(_Below(key, attribute, node))
    struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)
    return _Node(struct, tuple(raw), tuple(below))


def _type(
    slots: tuple[Slot, ...], empty: FieldSeen | None, key: str, place: Place, habits: Habits
) -> tuple[Any, _Node | None]:
    """Return what the decoder lets through for a field, with the node below it if that is a record."""
    if not slots:
        return _empty_type(empty), None
    slot, path = slots[0], (*(above for above, _ in place), key)
    if len(slots) > 1 or path in habits.loose or slot.name != key:
        return msgspec.Raw, None
    node = _node(slot.record, (*place, (key, slot.dim)), habits) if slot.record is not None else None
    native = node.struct if node else _native_of(slot)
    if native is None:
        return msgspec.Raw, None
    for _ in range(slot.dim):
        native = list[native | None]  # type: ignore[valid-type]
    return native, node


def _native_of(slot: Slot) -> Any:
    return _NATIVE.get((slot.word, str(slot.type)))


def _empty_type(empty: FieldSeen | None) -> Any:
    allowed: list[Any] = [None]
    if empty is not None and 1 in empty.empty:
        allowed.append(_EMPTY_LIST)
    if empty is not None and 0 in empty.empty_records:
        allowed.append(_EMPTY_RECORD)
    return Union[tuple(allowed)]
