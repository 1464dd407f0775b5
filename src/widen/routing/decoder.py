"""A decoder made from the columns: it accepts, in one native step, the records that fit the columns as they are.

What it accepts needs no look at any value: every key is known, and every value is of the one kind that its column
takes. Only the fields with several columns, or with values that need a conversion, are handed out raw and routed by
hand. Everything else it refuses, and the caller takes the exact path with the whole record; both give the same row.

Source: house rule: the fast path must know when it cannot be exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.observe.document import NotJson, parse
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
from widen.routing.route import RecordRoute, Slot, does_route
from widen.routing.row import Row, route_value

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

Way: TypeAlias = Callable[[Any, msgspec.Raw], Any]
"""Takes a decoded scalar and its text; gives what the column holds."""


def _whole(plain: Any, raw: msgspec.Raw) -> Any:
    return int(plain)


def _text(plain: Any, raw: msgspec.Raw) -> Any:
    return bytes(raw).decode()


_FORMS: Mapping[type, str] = MappingProxyType(
    {bool: BOOLEAN_WORD, int: LONG_WORD, float: DOUBLE_WORD, str: STRING_WORD}
)
_BOUNDS: Mapping[str, int] = MappingProxyType({INT_WORD: 2**31, DOUBLE_WORD: 2**53, LONG_WORD: 2**63})
"""Up to where the columns of a word hold every whole number."""

_WAYS: Mapping[tuple[str, str], Way | None] = MappingProxyType(
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): None,
        (BOOLEAN_WORD, INT_WORD): _whole,
        (BOOLEAN_WORD, LONG_WORD): _whole,
        (BOOLEAN_WORD, DOUBLE_WORD): _whole,
        (BOOLEAN_WORD, STRING_WORD): _text,
        (LONG_WORD, INT_WORD): None,
        (LONG_WORD, LONG_WORD): None,
        (LONG_WORD, DOUBLE_WORD): _whole,
        (LONG_WORD, STRING_WORD): _text,
        (DOUBLE_WORD, DOUBLE_WORD): None,
        (DOUBLE_WORD, STRING_WORD): _text,
        (STRING_WORD, STRING_WORD): None,
    }
)
"""How a scalar gets into a column without a closer look, by the words of both; None where it stays as it is."""

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

    ``ways`` say for a scalar, by its Python type, which columns take it and how; whole numbers must be from
    ``low`` to below ``high``. If it ``rescues``, other values take the exact path. ``direct`` are the columns of arrays and records
    that take values of their own form, with nothing left to route in them, and that nobody else takes; each with the
    decoder of that form.
    """

    key: str
    attribute: str
    place: Place
    slots: tuple[Slot, ...]
    ways: Mapping[type, tuple[tuple[str, Way | None], ...]]
    low: int
    high: int
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
    """The decoder of one record, what is left to do by hand, and the keys that have no column."""

    struct: type[msgspec.Struct]
    homeless: tuple[str, ...]
    raw: tuple[_Raw, ...]
    below: tuple[_Below, ...]

    @property
    def is_handled(self) -> bool:
        """Whether a decoded record is not yet the row."""
        return bool(self.homeless or self.raw or self.below)


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
_UNNAMED = re.compile(r'["\\\x00-\x1f]')
"""In keys that no field of a decoder can have; the records with such a key take the exact path."""


def _has_duplicates(text: bytes, row: Row) -> bool:
    """Tell whether a key may stand twice in one object: the text then has more quotes than what it decodes to.

    With escapes in the text quotes say nothing, and keys are counted; where they end in a backslash, or a colon or a
    space is escaped, they are hard to count, and the answer is yes.
    """
    once = _encode(row)
    if b"\\" not in text:
        return text.count(b'"') != once.count(b'"')
    return _UNCOUNTED.search(text) is not None or len(_KEY.findall(text)) != len(_KEY.findall(once))


def _route(node: _Node, record: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    """Put what was handed out raw into its columns, in place; False if that needs the exact path."""
    for key in node.homeless:
        row.pop(key, None)
    routed: Row = {}
    for item in node.raw:
        plain = row.pop(item.key, None)
        if plain is None:
            continue
        raw, form = getattr(record, item.attribute), type(plain)
        ways = item.ways.get(form)
        if ways is None or (form is int and not item.low <= plain < item.high) or (form is float and not _is_sure(raw)):
            if not _route_slowly(item, bytes(raw), plain, routed, seen, at):
                return False
        else:
            for name, way in ways:
                routed[name] = plain if way is None else way(plain, raw)
    for below in node.below:
        inner = row.get(below.key)
        if inner is not None and not _route_below(below.node, getattr(record, below.attribute), inner, seen, at):
            return False
    row.update(routed)
    return True


def _is_sure(raw: msgspec.Raw) -> bool:
    """Tell whether a fraction is so short that a double says it exactly."""
    token = bytes(raw)
    return len(token) <= SURE_CHARS and b"e" not in token and b"E" not in token


def _route_slowly(item: _Raw, raw: bytes, plain: Any, row: Row, seen: RecordSeen, at: Position) -> bool:
    """Route a value that is nested, or that no way is sure of; its kind is observed unless it is one column's own."""
    if isinstance(plain, (list, dict)) and not _is_shapeless(plain):
        for slot, typed in item.direct:
            if _is_direct(raw, typed):
                row[slot.name] = plain
                return True
    value = parse(raw)
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
    for number, key in enumerate(key for key in dict.fromkeys((*route, *empty)) if not _UNNAMED.search(key)):
        attribute = f"f{number}"
        names[attribute] = key
        native, node = _type(route.get(key, ()), empty.get(key), key, place, habits)
        if native is msgspec.Raw:
            fields.append((attribute, Union[msgspec.Raw, msgspec.UnsetType], msgspec.UNSET))
            raw.append(_raw(key, attribute, place, route[key], habits))
            continue
        fields.append((attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET))
        if node is not None and node.is_handled:
            below.append(_Below(key, attribute, node))
    struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)
    return _Node(struct, tuple(key for key in empty if key not in route), tuple(raw), tuple(below))


def _raw(key: str, attribute: str, place: Place, slots: tuple[Slot, ...], habits: Habits) -> _Raw:
    ways = {form: found for form, word in _FORMS.items() if (found := _ways(slots, word)) is not None}
    bound = min((_BOUNDS[slot.word] for slot in slots if slot.word in _BOUNDS), default=0)
    direct = tuple(_direct(key, place, slots, habits))
    return _Raw(key, attribute, place, slots, ways, -bound, bound, habits.rescues, direct)


def _ways(slots: tuple[Slot, ...], word: str) -> tuple[tuple[str, Way | None], ...] | None:
    """Return the columns for scalars of a word, and how each takes them; None if that needs a closer look.

    One of them must be the column of that very word, so that the values bring nothing new.
    """
    takers = [slot for slot in slots if does_route(slot, Kind(word))]
    is_own = [slot.dim == 0 and _WAYS.get((word, slot.word), _text) is None for slot in takers]
    if not any(is_own) or not all(_native_of(slot) and (word, slot.word) in _WAYS for slot in takers):
        return None
    return tuple((slot.name, _wrapped(_WAYS[word, slot.word], slot.dim)) for slot in takers)


def _wrapped(way: Way | None, dim: int) -> Way | None:
    """Return the way into a column of that many arrays."""
    if dim == 0:
        return way
    inner = _wrapped(way, dim - 1)
    return lambda plain, raw: [plain if inner is None else inner(plain, raw)]


def _direct(
    key: str, place: Place, slots: tuple[Slot, ...], habits: Habits
) -> Iterator[tuple[Slot, msgspec.json.Decoder[Any]]]:
    for slot in slots:
        native, node = _slot_type(slot, key, place, habits)
        is_own = _is_own(slot, [other for other in slots if other is not slot])
        is_done = node is None or not node.is_handled
        if (slot.dim or node) and native is not None and is_own and is_done:
            yield slot, msgspec.json.Decoder(native)


def _is_own(slot: Slot, others: list[Slot]) -> bool:
    """Tell whether no other column takes any part of what the decoder of a column lets through."""
    words = {INT_WORD: (LONG_WORD,), DOUBLE_WORD: (DOUBLE_WORD, LONG_WORD)}.get(slot.word, (slot.word,))
    if slot.dim > 1 and any(other.dim for other in others):
        return False
    return not any(does_route(other, Kind(word, slot.dim)) for other in others for word in words)


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
