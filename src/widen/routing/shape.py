"""The shape of the records that fit the columns: a native decoder for each, and what it leaves to be routed by hand.

Source: house rule: rules are tables; code only walks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.observe.kind import BOOLEAN_WORD, DOUBLE_WORD, INT_WORD, LONG_WORD, STRING_WORD, Kind
from widen.observe.observation import FieldSeen
from widen.routing.route import RecordRoute, Slot, does_route

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


def _spelled(plain: Any, raw: msgspec.Raw) -> Any:
    return "true" if plain else "false"


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
        (BOOLEAN_WORD, STRING_WORD): _spelled,
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

_UNNAMED = re.compile(r'["\\\x00-\x1f]')
"""In keys that no field of a decoder can have; the records with such a key take the exact path."""

_HELD_WORDS = frozenset({(INT_WORD, LONG_WORD), (INT_WORD, DOUBLE_WORD)})
"""A column of the first word never holds what one of the second could not."""

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
class Raw:
    """A field that is routed by hand.

    Args:
        key: In the source.
        attribute: Of the decoded record.
        place: The records around it.
        slots: Its columns.
        ways: For a scalar, by its Python type: which columns take it, and how.
        low: The least whole number that the ways are for.
        high: The least one above that they are no longer for.
        rescues: Other values take the exact path.
        direct: The columns of arrays and records that take values of their own form, with nothing left to route in
            them, and that nobody else takes; each with the decoder of that form.
        array: Where the value comes decoded: the column that takes arrays as they are.
        record: Where the value comes decoded: the columns that take records as they are, each with its dim.
        is_decoded: The value comes decoded, since its form alone tells the columns; else it comes as text.
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
    array: str | None = None
    record: tuple[tuple[str, int], ...] = ()
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class Below:
    """A record, or arrays of records, in which some field is routed by hand."""

    key: str
    attribute: str
    node: Shape


@dataclass(frozen=True, slots=True)
class Shape:
    """The decoder of one record, what is left to do by hand, and the keys that have no column."""

    struct: type[msgspec.Struct]
    homeless: tuple[str, ...]
    raw: tuple[Raw, ...]
    below: tuple[Below, ...]

    @property
    def is_handled(self) -> bool:
        """Whether a decoded record is not yet the row."""
        return bool(self.homeless or self.raw or self.below)


def shape_of(route: RecordRoute, habits: Habits, place: Place = ()) -> Shape:
    """Return the shape of the records that a route takes as they are.

    Args:
        route: Which columns each key goes to.
        habits: What the batch has shown so far.
        place: The records around this one.
    """
    raw: list[Raw] = []
    below: list[Below] = []
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    above = tuple(key for key, _ in place)
    empty = {path[-1]: seen for path, seen in habits.empty.items() if path[:-1] == above}
    for number, key in enumerate(key for key in dict.fromkeys((*route, *empty)) if not _UNNAMED.search(key)):
        attribute = f"f{number}"
        names[attribute] = key
        native, node = _type(route.get(key, ()), empty.get(key), key, place, habits)
        if native is msgspec.Raw:
            item, forms = _forked(_raw(key, attribute, place, route[key], habits), habits)
            fields.append((attribute, Union[(*forms, msgspec.UnsetType)], msgspec.UNSET))
            raw.append(item)
            continue
        fields.append((attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET))
        if node is not None and node.is_handled:
            below.append(Below(key, attribute, node))
    struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)
    return Shape(struct, tuple(key for key in empty if key not in route), tuple(raw), tuple(below))


def _raw(key: str, attribute: str, place: Place, slots: tuple[Slot, ...], habits: Habits) -> Raw:
    ways = {form: found for form, word in _FORMS.items() if (found := _ways(slots, word)) is not None}
    bound = min((_BOUNDS[slot.word] for slot in slots if slot.word in _BOUNDS), default=0)
    direct = tuple(_direct(key, place, slots, habits))
    return Raw(key, attribute, place, slots, ways, -bound, bound, habits.rescues, direct)


def _forked(item: Raw, habits: Habits) -> tuple[Raw, tuple[Any, ...]]:
    """Return a field as it is handed out, with what the decoder lets through for it.

    Its values come decoded where no column wants their text, and their JSON form alone tells all their columns.
    """
    nested = [slot for slot in item.slots if slot.dim or slot.record is not None]
    arrays, records = [s for s in nested if s.dim], [s for s in nested if not s.dim]
    shapes = [_slot_type(slot, item.key, item.place, habits) for slot in (*arrays, *records)]
    is_told = len(arrays) <= 1 and len(records) <= 1 and all(_native_of(s) for s in item.slots if s not in nested)
    is_done = all(native is not None and not (node and node.is_handled) for native, node in shapes)
    wants_text = (int in item.ways or float in item.ways) and any(slot.word == STRING_WORD for slot in item.slots)
    if not is_told or not is_done or wants_text or (float in item.ways and int not in item.ways):
        return item, (msgspec.Raw,)
    if not all(slot.record is None or _holds(slot, record) for slot in arrays for record in records):
        return item, (msgspec.Raw,)
    forms = [native for native, _ in shapes] + [_bounded(item) if form is int else form for form in item.ways]
    takers = tuple((slot.name, slot.dim) for slot in nested if slot.record is not None) if records else ()
    return replace(item, array=arrays[0].name if arrays else None, record=takers, is_decoded=True), (*forms, None)


def _bounded(item: Raw) -> Any:
    return Annotated[int, msgspec.Meta(ge=max(item.low, -(2**63)), le=min(item.high - 1, 2**63 - 1))]


def _holds(wide: Slot, narrow: Slot) -> bool:
    """Tell whether one record column takes, as they are, all values that another one takes as they are."""
    if wide is narrow:
        return True
    above, below = wide.record or {}, narrow.record or {}
    return all(len(above.get(key, ())) == 1 and _holds_field(above[key][0], slots[0]) for key, slots in below.items())


def _holds_field(wide: Slot, narrow: Slot) -> bool:
    if wide.name != narrow.name or wide.dim != narrow.dim or (wide.record is None) != (narrow.record is None):
        return False
    if wide.record is not None:
        return _holds(wide, narrow)
    return wide.type == narrow.type or (narrow.word, wide.word) in _HELD_WORDS


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
) -> tuple[Any, Shape | None]:
    """Return what the decoder lets through for a field, with the node below it if that is a record."""
    if not slots:
        return _empty_type(empty), None
    path = (*(above for above, _ in place), key)
    native, node = _slot_type(slots[0], key, place, habits)
    if native is None or len(slots) > 1 or path in habits.loose or slots[0].name != key:
        return msgspec.Raw, None
    return native, node


def _slot_type(slot: Slot, key: str, place: Place, habits: Habits) -> tuple[Any, Shape | None]:
    """Return what the decoder lets through for one column, or None if its values are never taken as they are."""
    node = shape_of(slot.record, habits, (*place, (key, slot.dim))) if slot.record is not None else None
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
