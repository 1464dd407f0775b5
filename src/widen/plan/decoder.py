"""A decoder made from the columns: it accepts, in one native step, the records that fit the columns as they are.

What it accepts needs no look at any value: every key is known, and every value is of the one kind that its column
takes. Only the fields with several columns, or with values that need a conversion, are handed out raw and routed by
hand. Everything else it refuses, and the caller takes the exact path with the whole record; both give the same row.

Source: house rule: the fast path must know when it cannot be exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import or_
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.observe.document import NotJson, Number, parse
from widen.observe.kind import (
    BOOLEAN_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    RECORD_WORD,
    STRING_WORD,
    Kind,
)
from widen.observe.number import SURE_CHARS
from widen.observe.observation import FieldSeen, Position, RecordSeen
from widen.observe.walk import observe_value
from widen.plan.route import RecordRoute, Slot, does_route
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

_SCALARS = (BOOLEAN_WORD, LONG_WORD, DOUBLE_WORD, STRING_WORD)
_OWN_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType({LONG_WORD: (LONG_WORD, INT_WORD)})

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
        rescues: What no column holds is kept in a column for the rest, which only the exact path fills.
        loose: The fields with one plain column whose values are of other kinds as well.
        empty: The fields without a column, each with what it has held: nothing but nulls, ``[]`` and ``{}``.
    """

    rescues: bool = False
    loose: frozenset[SourcePath] = frozenset()
    empty: Mapping[SourcePath, FieldSeen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A field that is routed by hand.

    ``ways`` say for a scalar, by its kind word, which columns take it, and whether as its text; ``is_int`` that whole
    numbers must fit 32 bits there. If it ``rescues``, other values take the exact path. ``direct`` are the columns of arrays and records that take values of their own form,
    with nothing left to route in them, and that nobody else takes; each with the decoder of that form.
    """

    key: str
    attribute: str
    place: Place
    slots: tuple[Slot, ...]
    ways: Mapping[str, tuple[tuple[str, bool], ...]]
    is_int: bool
    rescues: bool
    direct: tuple[tuple[Slot, msgspec.json.Decoder[Any]], ...]


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
    found = [(item, row.pop(item.key)) for item in node.raw if row.get(item.key) is not None]
    for item, plain in found:
        if not _route_raw(item, getattr(record, item.attribute), plain, row, seen, at):
            return False
    for below in node.below:
        inner = row.get(below.key)
        if inner is not None and not _route_below(below.node, getattr(record, below.attribute), inner, seen, at):
            return False
    return True


def _route_raw(item: _Raw, raw: msgspec.Raw, plain: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    if isinstance(plain, (list, dict)):
        return _route_nested(item, bytes(raw), plain, row, seen, at)
    word = _sure_word(plain, raw)
    ways = item.ways.get(word)
    if ways is None or (word == LONG_WORD and item.is_int and not -(2**31) <= plain < 2**31):
        if item.rescues:
            return False
        value = plain if isinstance(plain, (str, bool)) else Number(bytes(raw).decode())
        observe_value(_field_at(seen, item.place, item.key), value, at)
        route_value(row, item.slots, value)
        return True
    for name, is_text in ways:
        row[name] = bytes(raw).decode() if is_text else plain
    return True


def _sure_word(plain: Any, raw: msgspec.Raw) -> str:
    """Return the kind word of a scalar where a glance tells it, else nothing."""
    match plain:
        case str():
            return STRING_WORD
        case bool():
            return BOOLEAN_WORD
        case int():
            return LONG_WORD if -(2**63) <= plain < 2**63 else ""
    return DOUBLE_WORD if len(bytes(raw)) <= SURE_CHARS and b"e" not in bytes(raw).lower() else ""


def _route_nested(item: _Raw, raw: bytes, plain: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    for slot, typed in item.direct:
        if _is_direct(raw, typed, may_repeat=slot.record is not None):
            row[slot.name] = plain
            return True
    value = parse(raw)
    if isinstance(value, NotJson) or item.rescues:
        return False
    observe_value(_field_at(seen, item.place, item.key), value, at)
    route_value(row, item.slots, value)
    return True


def _is_direct(raw: bytes, typed: msgspec.json.Decoder[Any], *, may_repeat: bool) -> bool:
    try:
        value = typed.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return not (may_repeat and _has_duplicates(raw, value))


def _route_below(node: _Node, record: Any, row: Any, seen: RecordSeen, at: Position) -> bool:
    if isinstance(row, list):
        return all(_route_below(node, r, w, seen, at) for r, w in zip(record, row, strict=True) if w is not None)
    return _route(node, record, row, seen, at)


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
        if native is msgspec.Raw:
            fields.append((attribute, Union[msgspec.Raw, msgspec.UnsetType], msgspec.UNSET))
            raw.append(_raw(key, attribute, place, route[key], habits))
            continue
        fields.append((attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET))
        if node is not None and (node.raw or node.below):
            below.append(_Below(key, attribute, node))
    struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)
    return _Node(struct, tuple(raw), tuple(below))


def _raw(key: str, attribute: str, place: Place, slots: tuple[Slot, ...], habits: Habits) -> _Raw:
    ways = {kind_word: way for kind_word in _SCALARS if (way := _ways(slots, kind_word)) is not None}
    is_int = not any(slot.word == LONG_WORD for slot in slots)
    direct = tuple(_direct(key, place, slots, habits))
    return _Raw(key, attribute, place, slots, ways, is_int, habits.rescues, direct)


def _ways(slots: tuple[Slot, ...], word: str) -> tuple[tuple[str, bool], ...] | None:
    """Return the columns for scalars of a word, and whether each takes the text; None if that takes a conversion.

    One of them must be the column of that very word, so that the values bring nothing new.
    """
    own = _OWN_WORDS.get(word, (word,))
    takers = [slot for slot in slots if does_route(slot, Kind(word))]
    is_own = [slot.dim == 0 and slot.word in own and _native_of(slot) is not None for slot in takers]
    is_text = [slot.dim == 0 and slot.word == STRING_WORD != word and word != BOOLEAN_WORD for slot in takers]
    if not any(is_own) or not all(map(or_, is_own, is_text)):
        return None
    return tuple((slot.name, text) for slot, text in zip(takers, is_text, strict=True))


def _direct(
    key: str, place: Place, slots: tuple[Slot, ...], habits: Habits
) -> Iterator[tuple[Slot, msgspec.json.Decoder[Any]]]:
    for slot in slots:
        native, node = _slot_type(slot, key, place, habits)
        kind = Kind(LONG_WORD if slot.word == INT_WORD else slot.word, slot.dim)
        is_own = not any(does_route(other, kind) for other in slots if other is not slot)
        is_done = node is None or not (node.raw or node.below)
        if (slot.dim or node) and native is not None and is_own and is_done:
            yield slot, msgspec.json.Decoder(native)


def _type(
    slots: tuple[Slot, ...], empty: FieldSeen | None, key: str, place: Place, habits: Habits
) -> tuple[Any, _Node | None]:
    """Return what the decoder lets through for a field, with the node below it if that is a record."""
    if not slots:
        return _empty_type(empty), None
    path = (*(above for above, _ in place), key)
    native, node = _slot_type(slots[0], key, place, habits)
    if native is None or len(slots) > 1 or path in habits.loose or slots[0].name != key:
        return msgspec.Raw, None
    return native, node


def _slot_type(slot: Slot, key: str, place: Place, habits: Habits) -> tuple[Any, _Node | None]:
    """Return what the decoder lets through for one column, or None if its values are never taken as they are."""
    node = _node(slot.record, (*place, (key, slot.dim)), habits) if slot.record is not None else None
    native = node.struct if node else _native_of(slot)
    for _ in range(slot.dim if native is not None else 0):
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
