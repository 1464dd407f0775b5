"""Shapes from routes: what of a record is decoded as it is, and what is routed by hand.

What the decoder lets through must need no look at any value: whoever makes a shape decides that, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Union

import msgspec

from widen.observe.field_rules import MASK, PLAIN, FieldRule, FieldRules
from widen.observe.kind import DATE_WORD, DOUBLE_WORD, INT_WORD, LONG_WORD, STRING_WORD, Kind
from widen.observe.observation import FieldObservation
from widen.routing.native.record_shape import (
    BatchProfile,
    FieldLocation,
    MultiColumnField,
    NestedColumn,
    RecordShape,
    RedactedField,
    SingleColumn,
    SourcePath,
)
from widen.routing.native.scalar_conversion import (
    FastConversion,
    FastConverter,
    build_fast_converter,
    native_type,
    wrap_in_arrays,
)
from widen.routing.route import ColumnSlot, RecordRoute, routes_kind
from widen.routing.row import Row, route_value

_UNNAMED = re.compile(r'["\\\x00-\x1f]')
"""In keys that no field of a decoder can have; the records with such a key take the exact path."""

_HELD_WORDS = frozenset({(INT_WORD, LONG_WORD), (INT_WORD, DOUBLE_WORD)})
"""A column of the first word never holds what one of the second could not."""

_SCALAR = str | int | float | bool
"""What the decoder lets through for a field whose values nobody is to see; what may hold more takes the exact path."""

_EMPTY_LIST = Annotated[list[None], msgspec.Meta(max_length=0)]
_EMPTY_RECORD = msgspec.defstruct("EmptyRecord", [], forbid_unknown_fields=True)


def build_record_shape(
    route: RecordRoute, habits: BatchProfile, base: RecordRoute | None = None, reading: FieldRules = PLAIN
) -> RecordShape:
    """Return the shape of the records that a route takes as they are.

    Args:
        route: Which columns each key goes to.
        habits: What the batch has shown so far.
        base: Which of these columns were there before the interval.
        reading: How the values are taken.
    """
    return _ShapeBuilder(habits).record(route, base or {}, reading, ())


@dataclass(frozen=True, slots=True)
class _ShapedField:
    """A field that is shaped.

    Args:
        key: In the source.
        attribute: Of the decoded record.
        place: The records around it.
        slots: Its columns.
        base: Those of them that were there before the interval, by name.
        reading: How its values are taken.
    """

    key: str
    attribute: str
    place: FieldLocation
    slots: tuple[ColumnSlot, ...]
    base: Mapping[str, ColumnSlot]
    reading: FieldRules

    @property
    def path(self) -> SourcePath:
        return (*(key for key, _ in self.place), self.key)

    @property
    def is_required(self) -> bool:
        return any(slot.guard is not None and slot.guard.is_required for slot in self.slots)

    def is_text_dated(self, slot: ColumnSlot) -> bool:
        """Tell whether a text for a column of texts may be a date that brings something new."""
        known = [each.dim for each in self.base.values() if each.word == STRING_WORD]
        takes_dates = any(routes_kind(each, Kind(DATE_WORD)) for each in self.slots if each.word != STRING_WORD)
        return self.reading.is_dated and (takes_dates or slot.dim > max(known, default=-1))

    def is_taken(self, slot: ColumnSlot) -> bool:
        """Tell whether what a decoder makes of values for a column is how they are taken."""
        reading = self.reading
        if reading.take is FieldRule.AS_JSON:
            return False
        if slot.word == STRING_WORD:
            return not self.is_text_dated(slot) and (reading.take is FieldRule.AS_IS or slot.dim == 0)
        if slot.entries is not None:
            return reading == FieldRules(maps=1) and slot.entries.record is None and slot.entries.entries is None
        if slot.record is not None or slot.dim:
            return reading.take is FieldRule.AS_IS and not reading.maps
        return True


@dataclass(frozen=True, slots=True)
class _ShapeBuilder:
    """Makes shapes, by what the batch has shown so far."""

    habits: BatchProfile

    def record(self, route: RecordRoute, base: RecordRoute, reading: FieldRules, place: FieldLocation) -> RecordShape:
        hidden: list[RedactedField] = []
        forked: list[MultiColumnField] = []
        fields: list[tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        plain: list[SingleColumn] = []
        above = tuple(key for key, _ in place)
        empty = {path[-1]: seen for path, seen in self.habits.empty.items() if path[:-1] == above}
        keys = dict.fromkeys((*route, *empty, *_hidden_keys(reading)))
        for number, key in enumerate(key for key in keys if not _UNNAMED.search(key)):
            known = {slot.name: slot for slot in base.get(key, ())}
            item = _ShapedField(key, f"f{number}", place, route.get(key, ()), known, reading.at(key))
            native, found = self._field(item, empty.get(key))
            match found:
                case RedactedField():
                    hidden.append(found)
                case MultiColumnField():
                    forked.append(found)
                case SingleColumn():
                    plain.append(found)
            names[item.attribute] = key
            fields.append(_decoded(item.attribute, native, is_required=item.is_required))
        struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False, kw_only=True)
        return RecordShape(struct, tuple(plain), tuple(hidden), tuple(forked))

    def _field(
        self, item: _ShapedField, empty: FieldObservation | None
    ) -> tuple[Any, SingleColumn | RedactedField | MultiColumnField | None]:
        """Return what the decoder lets through for a field, and what becomes of it."""
        take, slots = item.reading.take, item.slots
        if take is FieldRule.LEFT_OUT:
            return _SCALAR, RedactedField(item.attribute, {})
        if not slots:
            return _empty_type(empty), None
        if take is FieldRule.MASKED:
            row: Row = {}
            route_value(row, slots, MASK)
            return (_SCALAR, RedactedField(item.attribute, row)) if row else (None, None)
        if len(slots) == 1 and item.path not in self.habits.loose and item.is_taken(slots[0]):
            native, node = self._slot(item, slots[0])
            if native is not None:
                return native, SingleColumn(item.attribute, slots[0].name, node)
        return self._forked(item)

    def _forked(self, item: _ShapedField) -> tuple[Any, MultiColumnField]:
        """Return a field as it is handed out, with what the decoder lets through for it.

        Its values come decoded where no column wants their text, and their JSON form alone tells all their columns.
        That may be so only if the decoder refuses what is of no column's own kind: it does as long as nothing is.
        """
        types = {slot.name: self._slot(item, slot) for slot in item.slots if item.is_taken(slot)}
        if item.path not in self.habits.loose:
            native, found = self._with_ways(item, types, ())
            if found.is_decoded:
                return native, found
        return self._with_ways(item, types, item.base)

    def _with_ways(
        self, item: _ShapedField, types: Mapping[str, tuple[Any, RecordShape | None]], known: Collection[str]
    ) -> tuple[Any, MultiColumnField]:
        """Return that, where scalars have the ways that they have with these columns known."""
        slots, reading = item.slots, item.reading
        nodes = {name: node for name, (_, node) in types.items() if node is not None}
        natives = {slot.name: types.get(slot.name, (None, None))[0] for slot in slots}
        ways = build_fast_converter(slots, known)
        if reading.take is FieldRule.AS_JSON:
            ways.of = {name: {} for name in ways.of}
        guards = [slot for slot in slots if slot.guard is not None]
        for guard in guards:
            ways.decide(guard.name)
        found = MultiColumnField(
            key=item.key,
            attribute=item.attribute,
            place=item.place,
            slots=slots,
            reading=reading,
            nodes=nodes,
            ways=ways,
            is_strict=self.habits.rescues or bool(guards),
            is_required=item.is_required,
            is_dated=reading.is_dated and any(map(item.is_text_dated, slots)),
            direct=() if reading.take is not FieldRule.AS_IS or guards else _direct(slots, natives),
        )
        is_simple = reading.take is FieldRule.AS_IS and not guards and not found.is_dated
        native = _told_type(found, natives) if is_simple else None
        return (msgspec.Raw, found) if native is None else (native, replace(found, is_decoded=True))

    def _slot(self, item: _ShapedField, slot: ColumnSlot) -> tuple[Any, RecordShape | None]:
        """Return what the decoder lets through for one column, or None if its values are never taken as they are."""
        node = None
        if slot.record is not None:
            known = item.base.get(slot.name)
            base = (known.record if known else None) or {}
            node = self.record(slot.record, base, item.reading, (*item.place, (item.key, slot.dim)))
        return _nested(node.struct if node else _leaf_native(slot), slot.dim), node


def _hidden_keys(reading: FieldRules) -> list[str]:
    return [key for key, below in reading.below.items() if below.take is FieldRule.LEFT_OUT]


def _decoded(attribute: str, native: Any, *, is_required: bool) -> tuple[Any, ...]:
    """Return a field of a decoder; what may be null or missing is let through, but what stays text may be anything."""
    if native is msgspec.Raw:
        return (attribute, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
    if is_required:
        return (attribute, native)
    return (attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET)


def _leaf_native(slot: ColumnSlot) -> Any:
    if slot.entries is None:
        return native_type(slot)
    value: Any = _nested(native_type(slot.entries), slot.entries.dim)
    return None if value is None else dict[str, value | None]


def _nested(native: Any, dim: int) -> Any:
    for _ in range(dim if native is not None else 0):
        native = list[native | None]
    return native


def _told_type(item: MultiColumnField, natives: Mapping[str, Any]) -> Any:
    """Return what the decoder lets through for a field if the JSON form of every value tells which columns take it.

    The field then gets the ways of arrays and records. None if some form does not tell, or a column wants the text.
    """
    arrays = [slot for slot in item.slots if slot.dim]
    records = [slot for slot in item.slots if slot.record is not None and not slot.dim]
    if any(natives[slot.name] is None for slot in (*arrays, *records)) or not _is_told(item, arrays, records):
        return None
    ways = item.ways
    forms = [natives[slot.name] for slot in (*arrays, *records)]
    forms += [_bounded(ways) if form is int else form for form in ways.forms]
    for slot in arrays:
        ways.of[slot.name][list] = None
    for record in records:
        struct = item.nodes[record.name].struct
        ways.of[record.name][struct] = None
        for slot in arrays:
            if slot.record is not None:
                ways.of[slot.name][struct] = wrap_in_arrays(_converted(item.nodes[slot.name].struct), slot.dim)
    return Union[tuple(forms)]


def _is_told(item: MultiColumnField, arrays: list[ColumnSlot], records: list[ColumnSlot]) -> bool:
    """Tell whether the JSON form of every value of a field tells which columns take it, and none wants its text."""
    forms = item.ways.forms
    if len(arrays) > 1 or len(records) > 1 or item.ways.deciders or not (arrays or records or forms):
        return False
    if not all(native_type(slot) for slot in item.slots if slot not in (*arrays, *records)):
        return False
    if float in forms and (any(slot.word == STRING_WORD for slot in item.slots) or int not in forms):
        return False
    both = [slot for slot in arrays if slot.record is not None and records]
    is_forked = bool(both) and any(item.nodes[slot.name].is_forked for slot in (*both, *records))
    return not is_forked and all(_holds(slot, record) for slot in both for record in records)


def _converted(struct: type[msgspec.Struct]) -> FastConversion:
    """Return the way of a decoded record into a column whose records are of another struct, with all its fields."""
    decode, encode = msgspec.json.Decoder(struct).decode, msgspec.json.Encoder().encode
    return lambda record, _: decode(encode(record))


def _bounded(ways: FastConverter) -> Any:
    return Annotated[int, msgspec.Meta(ge=-ways.bound, le=ways.bound - 1)]


def _holds(wide: ColumnSlot, narrow: ColumnSlot) -> bool:
    """Tell whether one record column takes, as they are, all values that another one takes as they are."""
    if wide is narrow:
        return True
    above, below = wide.record or {}, narrow.record or {}
    return all(len(above.get(key, ())) == 1 and _holds_field(above[key][0], slots[0]) for key, slots in below.items())


def _holds_field(wide: ColumnSlot, narrow: ColumnSlot) -> bool:
    if wide.name != narrow.name or wide.dim != narrow.dim or (wide.record is None) != (narrow.record is None):
        return False
    if wide.record is not None:
        return _holds(wide, narrow)
    return wide.type == narrow.type or (narrow.word, wide.word) in _HELD_WORDS


def _direct(slots: tuple[ColumnSlot, ...], natives: Mapping[str, Any]) -> tuple[NestedColumn, ...]:
    return tuple(
        NestedColumn(slot.name, msgspec.json.Decoder(natives[slot.name]))
        for slot in slots
        if (slot.dim or slot.record is not None)
        and natives[slot.name] is not None
        and _is_own(slot, [other for other in slots if other is not slot])
    )


def _is_own(slot: ColumnSlot, others: list[ColumnSlot]) -> bool:
    """Tell whether no other column takes any part of what the decoder of a column lets through."""
    if slot.entries is not None:
        return not any(other.entries is not None for other in others)
    words = {INT_WORD: (LONG_WORD,), DOUBLE_WORD: (DOUBLE_WORD, LONG_WORD)}.get(slot.word, (slot.word,))
    if slot.dim > 1 and any(other.dim for other in others):
        return False
    return not any(routes_kind(other, Kind(word, slot.dim)) for other in others for word in words)


def _empty_type(empty: FieldObservation | None) -> Any:
    allowed: list[Any] = [None]
    if empty is not None and 1 in empty.empty:
        allowed.append(_EMPTY_LIST)
    if empty is not None and 0 in empty.empty_records:
        allowed.append(_EMPTY_RECORD)
    return Union[tuple(allowed)]
