"""The shape of the records that fit the columns: a native decoder for each, and what it leaves to be routed by hand.

Source: house rule: rules are tables; code only walks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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

Way: TypeAlias = Callable[[Any, bytes], Any]
"""Takes a decoded value and, if it came as one, its text; gives what the column holds."""


def _whole(plain: Any, text: bytes) -> Any:
    return int(plain)


def _spelled(plain: Any, text: bytes) -> Any:
    return "true" if plain else "false"


def _text(plain: Any, text: bytes) -> Any:
    return text.decode()


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
class Plain:
    """A field with one column, which takes what the decoder lets through.

    Args:
        attribute: Of the decoded record.
        name: Of the column.
        node: The records in it, if it holds any.
    """

    attribute: str
    name: str
    node: Shape | None


@dataclass(frozen=True, slots=True)
class Direct:
    """A column of arrays or records that takes a value of its own form, and that nobody else takes.

    Args:
        name: Of the column.
        decoder: Of that form.
    """

    name: str
    decoder: msgspec.json.Decoder[Any]


@dataclass(frozen=True, slots=True)
class Forked:
    """A field that is routed by hand: it has several columns, or values that need a conversion.

    Args:
        key: In the source.
        attribute: Of the decoded record.
        place: The records around it.
        slots: Its columns.
        nodes: The records in its columns, by the name of the column.
        ways: For each column by its name: the Python types that it takes, and how; None where a value stays as it is.
        forms: The Python types of the scalars that have a way into some column.
        low: The least whole number that the ways are for.
        high: The least one above that they are no longer for.
        rescues: Values that came as text and have no way take the exact path.
        direct: The columns that take arrays and records that came as text as they are.
        is_decoded: The values come decoded, since their form alone tells the columns; else they come as text.
    """

    key: str
    attribute: str
    place: Place
    slots: tuple[Slot, ...]
    nodes: Mapping[str, Shape]
    ways: Mapping[str, Mapping[type, Way | None]]
    forms: frozenset[type]
    low: int
    high: int
    rescues: bool
    direct: tuple[Direct, ...]
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The decoder of one record, and how its fields become columns; a field in neither list has no column."""

    struct: type[msgspec.Struct]
    plain: tuple[Plain, ...]
    forked: tuple[Forked, ...]

    @property
    def is_forked(self) -> bool:
        """Whether some field in it, at any depth, is routed by hand."""
        return bool(self.forked) or any(item.node is not None and item.node.is_forked for item in self.plain)


def shape_of(route: RecordRoute, habits: Habits, place: Place = ()) -> Shape:
    """Return the shape of the records that a route takes as they are.

    Args:
        route: Which columns each key goes to.
        habits: What the batch has shown so far.
        place: The records around this one.
    """
    plain: list[Plain] = []
    forked: list[Forked] = []
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    above = tuple(key for key, _ in place)
    empty = {path[-1]: seen for path, seen in habits.empty.items() if path[:-1] == above}
    for number, key in enumerate(key for key in dict.fromkeys((*route, *empty)) if not _UNNAMED.search(key)):
        attribute, slots = f"f{number}", route.get(key, ())
        names[attribute] = key
        native, node = _type(slots, empty.get(key), key, place, habits)
        if native is msgspec.Raw:
            item, native = _forked(key, attribute, place, slots, habits)
            forked.append(item)
        elif slots:
            plain.append(Plain(attribute, slots[0].name, node))
        fields.append((attribute, _optional(native), msgspec.UNSET))
    struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)
    return Shape(struct, tuple(plain), tuple(forked))


def _optional(native: Any) -> Any:
    """Return what the decoder lets through for a field that may be null or absent; what stays text may be anything."""
    return Union[(native, msgspec.UnsetType) if native is msgspec.Raw else (native, None, msgspec.UnsetType)]


def _forked(key: str, attribute: str, place: Place, slots: tuple[Slot, ...], habits: Habits) -> tuple[Forked, Any]:
    """Return a field as it is handed out, with what the decoder lets through for it.

    Its values come decoded where no column wants their text, and their JSON form alone tells all their columns.
    """
    types = {slot.name: _slot_type(slot, key, place, habits) for slot in slots}
    nodes = {name: node for name, (_, node) in types.items() if node is not None}
    natives = {name: native for name, (native, _) in types.items()}
    ways = _scalar_ways(slots)
    bound = min((_BOUNDS[slot.word] for slot in slots if slot.word in _BOUNDS), default=0)
    scalars = frozenset(form for ways_in in ways.values() for form in ways_in)
    direct = _direct(slots, natives)
    item = Forked(key, attribute, place, slots, nodes, ways, scalars, -bound, bound, habits.rescues, direct)
    arrays = [slot for slot in slots if slot.dim]
    records = [slot for slot in slots if slot.record is not None and not slot.dim]
    if not _is_told(item, arrays, records) or any(natives[slot.name] is None for slot in (*arrays, *records)):
        return item, msgspec.Raw
    forms = [natives[slot.name] for slot in (*arrays, *records)]
    forms += [_bounded(item) if form is int else form for form in scalars]
    for slot in arrays:
        ways[slot.name][list] = None
    for record in records:
        struct = nodes[record.name].struct
        ways[record.name][struct] = None
        for slot in arrays:
            if slot.record is not None:
                ways[slot.name][struct] = _wrapped(_converted(nodes[slot.name].struct), slot.dim)
    return replace(item, is_decoded=True), Union[tuple(forms)]


def _is_told(item: Forked, arrays: list[Slot], records: list[Slot]) -> bool:
    """Tell whether the JSON form of every value of a field tells which columns take it, and none wants its text."""
    if len(arrays) > 1 or len(records) > 1 or not (arrays or records or item.forms):
        return False
    if not all(_native_of(slot) for slot in item.slots if slot not in (*arrays, *records)):
        return False
    has_numbers = int in item.forms or float in item.forms
    if has_numbers and (any(slot.word == STRING_WORD for slot in item.slots) or int not in item.forms):
        return False
    both = [slot for slot in arrays if slot.record is not None and records]
    is_forked = bool(both) and any(item.nodes[slot.name].is_forked for slot in (*both, *records))
    return not is_forked and all(_holds(slot, record) for slot in both for record in records)


def _converted(struct: type[msgspec.Struct]) -> Way:
    """Return the way of a decoded record into a column whose records are of another struct, with all its fields."""
    decode, encode = msgspec.json.Decoder(struct).decode, msgspec.json.Encoder().encode
    return lambda record, _: decode(encode(record))


def _bounded(item: Forked) -> Any:
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


def _scalar_ways(slots: tuple[Slot, ...]) -> dict[str, dict[type, Way | None]]:
    """Return how the columns take scalars, by their Python type, as far as that needs no closer look.

    One of them must be the column of that very word, so that the values bring nothing new.
    """
    found: dict[str, dict[type, Way | None]] = {slot.name: {} for slot in slots}
    for form, word in _FORMS.items():
        takers = [slot for slot in slots if does_route(slot, Kind(word))]
        is_own = [slot.dim == 0 and _WAYS.get((word, slot.word), _text) is None for slot in takers]
        if any(is_own) and all(_native_of(slot) and (word, slot.word) in _WAYS for slot in takers):
            for slot in takers:
                found[slot.name][form] = _wrapped(_WAYS[word, slot.word], slot.dim)
    return found


def _wrapped(way: Way | None, dim: int) -> Way | None:
    """Return the way into a column of that many arrays."""
    if dim == 0:
        return way
    inner = _wrapped(way, dim - 1)
    return lambda plain, text: [plain if inner is None else inner(plain, text)]


def _direct(slots: tuple[Slot, ...], natives: Mapping[str, Any]) -> tuple[Direct, ...]:
    return tuple(
        Direct(slot.name, msgspec.json.Decoder(natives[slot.name]))
        for slot in slots
        if (slot.dim or slot.record is not None)
        and natives[slot.name] is not None
        and _is_own(slot, [other for other in slots if other is not slot])
    )


def _is_own(slot: Slot, others: list[Slot]) -> bool:
    """Tell whether no other column takes any part of what the decoder of a column lets through."""
    words = {INT_WORD: (LONG_WORD,), DOUBLE_WORD: (DOUBLE_WORD, LONG_WORD)}.get(slot.word, (slot.word,))
    if slot.dim > 1 and any(other.dim for other in others):
        return False
    return not any(does_route(other, Kind(word, slot.dim)) for other in others for word in words)


def _type(
    slots: tuple[Slot, ...], empty: FieldSeen | None, key: str, place: Place, habits: Habits
) -> tuple[Any, Shape | None]:
    """Return what the decoder lets through for a field, with the records in it; a text where it is routed by hand."""
    if not slots:
        return _empty_type(empty), None
    path = (*(above for above, _ in place), key)
    if len(slots) > 1 or path in habits.loose:
        return msgspec.Raw, None
    native, node = _slot_type(slots[0], key, place, habits)
    return (msgspec.Raw, None) if native is None else (native, node)


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
