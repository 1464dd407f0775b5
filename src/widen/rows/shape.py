"""The shape of the records that fit the columns: a native decoder for a record, and the fields that it leaves to
routing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.json.field_rules import MASK, PLAIN, FieldRule, FieldRules
from widen.json.kinds import BOOLEAN_WORD, DATE_WORD, DOUBLE_WORD, INT_WORD, LONG_WORD, STRING_WORD, Kind
from widen.json.observation import FieldObservation
from widen.rows.row import ColumnSlot, RecordRoute, Row, route_value, routes_kind
from widen.rows.scalar_conversion import (
    FastConversion,
    FastConverter,
    add_array_conversions,
    build_fast_converter,
    integer_bound,
    native_type,
    wrap_in_arrays,
)

# An example. A table has the column a, a bigint, and two columns for the field s: a string, and a bigint.
#     {"a": 1, "s": "x", "z": null}   a is a SingleColumn: the decoder takes an integer, which is the value of the row.
#                                     s is a MultiColumnField: the type of "x" says which of its columns takes it.
#                                     z has no column, and the profile says that it was always null: it is skipped.
#     {"a": 1.5} or {"a": "1"}        The decoder refuses them, since a is an integer for it: the exact path reads them.
#     {"z": 7}                        z has a value for the first time: the exact path observes a new field.
# The fast path never decides what a value means: whatever is not exactly as expected is left to the exact path.

SourcePath: TypeAlias = tuple[str, ...]
"""Keys from the root to a field, without the arrays on the way."""

FieldLocation: TypeAlias = tuple[tuple[str, int], ...]
"""The records around a field: the key of each, and the number of arrays around it."""


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """What a batch has shown so far and the schema does not say.

    Args:
        rescues: Whether the table has a rescue column, which only the exact path fills.
        mixed_fields: Fields with values of kinds that their columns do not take natively.
        mixed_integers: Those of them that have had integers.
        empty_fields: Fields without a column, each with what it held: only nulls, ``[]``, ``{}`` and records of such
            fields.
        key_orders: For the records at each path, their keys in the order of the first texts; a decoder whose fields
            have this order is faster.
    """

    rescues: bool = False
    mixed_fields: frozenset[SourcePath] = frozenset()
    mixed_integers: frozenset[SourcePath] = frozenset()
    empty_fields: Mapping[SourcePath, FieldObservation] = field(default_factory=dict)
    key_orders: Mapping[SourcePath, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SingleColumn:
    """A field with one column, which takes every value that the decoder accepts.

    Args:
        shape: Shape of the records in the column, if it holds records.
    """

    attribute: str
    name: str
    shape: RecordShape | None


@dataclass(frozen=True, slots=True)
class NestedColumn:
    """An array or record column that takes the values of its own form; no other column takes any part of them."""

    name: str
    decoder: msgspec.json.Decoder[Any]


@dataclass(frozen=True, slots=True)
class RedactedField:
    """A field that the policy masks or excludes.

    Args:
        row: What its columns hold for every value; empty for an excluded field.
    """

    attribute: str
    row: Row


@dataclass(frozen=True, slots=True)
class MultiColumnField:
    """A field that needs routing: it has several columns, or its values need a conversion or a closer look.

    Args:
        is_strict: Whether values that came as text and have no conversion need the exact path.
        is_required: Whether null needs the exact path, since a column is NOT NULL.
        has_dates: Whether strings must be checked for dates and timestamps.
        nested_columns: Columns that take arrays, maps and records from their text without routing.
        is_decoded: Whether values come decoded, because their JSON form alone determines the columns; else they come as
            text.
    """

    key: str
    attribute: str
    location: FieldLocation
    slots: tuple[ColumnSlot, ...]
    rules: FieldRules
    shapes: Mapping[str, RecordShape]
    converter: FastConverter
    is_strict: bool = False
    is_required: bool = False
    has_dates: bool = False
    nested_columns: tuple[NestedColumn, ...] = ()
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The decoder of a record, and how its fields become columns. A field in no list has no column."""

    struct: type[msgspec.Struct]
    single_columns: tuple[SingleColumn, ...]
    redacted_fields: tuple[RedactedField, ...]
    multi_column_fields: tuple[MultiColumnField, ...]

    @property
    def needs_routing(self) -> bool:
        """Whether any field, at any depth, is not a column as decoded."""
        nested = (column.shape for column in self.single_columns if column.shape is not None)
        return bool(self.multi_column_fields or self.redacted_fields) or any(shape.needs_routing for shape in nested)


# Fields that hold only scalars: the columns of each kind of value, without a look at single values.
#
# Source: docs/evolution-rules.md#u14


_UNCHANGED: Mapping[type, frozenset[str]] = {
    bool: frozenset({BOOLEAN_WORD, STRING_WORD}),
    int: frozenset({INT_WORD, LONG_WORD, DOUBLE_WORD, STRING_WORD}),
    float: frozenset({DOUBLE_WORD, STRING_WORD}),
    str: frozenset({STRING_WORD}),
}
"""For each Python type the kind words of the columns that hold each value as it is, or its text."""

_NATIVE_TYPES: Mapping[str, tuple[type, ...]] = {
    BOOLEAN_WORD: (bool,),
    INT_WORD: (int,),
    LONG_WORD: (int,),
    DOUBLE_WORD: (int, float),
    STRING_WORD: (str,),
}
"""What a field with a single column takes until it shows another kind of value."""


@dataclass(frozen=True, slots=True)
class ScalarField:
    """A field and the columns of its scalars.

    Args:
        columns: The columns of each Python type whose values need no closer look.
        bound: Integers from this magnitude on need a closer look.
        takes_null: Whether null needs no closer look.
        has_dates: Whether strings that begin with a date need a closer look.
    """

    slots: tuple[ColumnSlot, ...] = ()
    columns: Mapping[type, frozenset[str]] = field(default_factory=dict)
    bound: int = 0
    takes_null: bool = False
    has_dates: bool = False


def build_scalar_field(
    key: str, route: RecordRoute, base: RecordRoute, rules: FieldRules, profile: BatchProfile
) -> ScalarField:
    """Return a field of the records of a route."""
    slots, own_rules = route.get(key, ()), rules.at(key)
    is_as_written = own_rules.take in (FieldRule.AS_IS, FieldRule.AS_TEXT) and not own_rules.hidden
    if not is_as_written or any(slot.guard is not None for slot in slots):
        return ScalarField(slots)
    if not slots:
        # With a rescue column, the exact path writes the null to it.
        return ScalarField(takes_null=not profile.rescues and (key,) in profile.empty_fields)
    if len(slots) == 1 and (key,) not in profile.mixed_fields and slots[0].dim == 0 and native_type(slots[0]):
        columns = dict.fromkeys(_NATIVE_TYPES[slots[0].word], frozenset({slots[0].name}))
        return ScalarField(slots, columns, integer_bound(slots), True, own_rules.reads_times)
    converter = build_fast_converter(slots, [slot.name for slot in base.get(key, ())])
    routed = {
        python_type: [slot for slot in slots if python_type in converter.conversions[slot.name]]
        for python_type in _UNCHANGED
    }
    columns = {
        python_type: frozenset(slot.name for slot in taking)
        for python_type, taking in routed.items()
        if taking and all(_holds_unchanged(slot, python_type) for slot in taking)
    }
    whole = [slot for slot in routed[int] if int in columns]
    return ScalarField(slots, columns, min(converter.bound, integer_bound(whole)), True, own_rules.reads_times)


def _holds_unchanged(slot: ColumnSlot, python_type: type) -> bool:
    return slot.dim == 0 and slot.word in _UNCHANGED[python_type] and native_type(slot) is not None


# Shapes from routes: which fields of a record become columns as decoded, and which are routed.
#
# The fast path must know when it cannot be exact. So the decoder accepts a value only if no part of it needs a
# closer look; this module decides that for each field, before any value is seen.


_UNSUPPORTED_KEY = re.compile(r'["\\\x00-\x1f]')
"""Keys that msgspec cannot use as the name of a field; records with such a key take the exact path."""

_CONTAINED_WORDS = frozenset({(INT_WORD, LONG_WORD), (INT_WORD, DOUBLE_WORD)})
"""Pairs of kind words: a column of the second holds every value of a column of the first."""

_SCALAR = str | int | float | bool
"""What the decoder accepts for a redacted field. Objects and arrays take the exact path, which looks for fields
below."""

_EMPTY_LIST = Annotated[list[None], msgspec.Meta(max_length=0)]
_EMPTY_RECORD = msgspec.defstruct("EmptyRecord", [], forbid_unknown_fields=True)


def build_record_shape(
    route: RecordRoute, profile: BatchProfile, base: RecordRoute | None = None, rules: FieldRules = PLAIN
) -> RecordShape:
    """Return the shape of the records of a route."""
    return _ShapeBuilder(profile).record(route, base or {}, rules, ())


@dataclass(frozen=True, slots=True)
class ShapedField:
    """A field and its columns.

    Args:
        base: Its columns from before the interval, by name.
    """

    key: str
    attribute: str
    location: FieldLocation
    slots: tuple[ColumnSlot, ...]
    base: Mapping[str, ColumnSlot]
    rules: FieldRules

    @property
    def path(self) -> SourcePath:
        return (*(key for key, _ in self.location), self.key)

    @property
    def is_required(self) -> bool:
        return any(slot.guard is not None and slot.guard.is_required for slot in self.slots)

    def may_be_new_date(self, slot: ColumnSlot) -> bool:
        """Return whether a string for a text column may be a date that no column holds as a date yet."""
        text_dims = [each.dim for each in self.base.values() if each.word == STRING_WORD]
        takes_dates = any(routes_kind(each, Kind(DATE_WORD)) for each in self.slots if each.word != STRING_WORD)
        return self.rules.reads_times and (takes_dates or slot.dim > max(text_dims, default=-1))

    def is_decodable(self, slot: ColumnSlot) -> bool:
        """Return whether the decoded values of a column are the values after the field rules."""
        rules = self.rules
        if rules.take is FieldRule.AS_JSON:
            return False
        if slot.word == STRING_WORD:
            if rules.hidden:
                return False  # a text may spell out the record that has a hidden field
            return not self.may_be_new_date(slot) and (rules.take is FieldRule.AS_IS or slot.dim == 0)
        if slot.entries is not None:
            return rules == FieldRules(maps=1) and slot.entries.record is None and slot.entries.entries is None
        if slot.record is not None or slot.dim:
            return rules.take is FieldRule.AS_IS and not rules.maps
        return True


@dataclass(frozen=True, slots=True)
class _ShapeBuilder:
    """Builds shapes for what the batch has shown so far."""

    profile: BatchProfile

    def record(self, route: RecordRoute, base: RecordRoute, rules: FieldRules, location: FieldLocation) -> RecordShape:
        redacted: list[RedactedField] = []
        multi: list[MultiColumnField] = []
        fields: list[tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        single: list[SingleColumn] = []
        above = tuple(key for key, _ in location)
        # The decoder forbids unknown fields, so a field that is always null or empty would send every record to the
        # exact path.
        empty = {path[-1]: field for path, field in self.profile.empty_fields.items() if path[:-1] == above}
        order = self.profile.key_orders.get(above, ())
        keys = _order_keys((*route, *empty, *excluded_keys(rules, order)), order)
        # A record with a field that the shape lacks takes the exact path.
        shaped = (key for key in keys if not _UNSUPPORTED_KEY.search(key) and takes_values(route.get(key, ())))
        for number, key in enumerate(shaped):
            base_slots = {slot.name: slot for slot in base.get(key, ())}
            item = ShapedField(key, f"f{number}", location, route.get(key, ()), base_slots, rules.at(key))
            native, column = self._field(item, empty.get(key))
            match column:
                case RedactedField():
                    redacted.append(column)
                case MultiColumnField():
                    multi.append(column)
                case SingleColumn():
                    single.append(column)
            names[item.attribute] = key
            fields.append(_decoder_field(item.attribute, native, is_required=item.is_required))
        # Keys need not be Python identifiers, so attributes are numbered. Decoded records cannot form cycles: without
        # gc, the garbage collector does not visit each of them.
        struct = msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False, kw_only=True)
        return RecordShape(struct, tuple(single), tuple(redacted), tuple(multi))

    def _field(
        self, item: ShapedField, empty: FieldObservation | None
    ) -> tuple[Any, SingleColumn | RedactedField | MultiColumnField | None]:
        """Return what the decoder accepts for a field, and how the field becomes columns."""
        take, slots = item.rules.take, item.slots
        if take is FieldRule.LEFT_OUT:
            return _SCALAR, RedactedField(item.attribute, {})
        if not slots:
            return _empty_type(empty), None
        if take is FieldRule.MASKED:
            row: Row = {}
            route_value(row, slots, MASK)
            # Without a column for the mask, only null is accepted: a value takes the exact path, which observes it, and
            # the plan then adds a string column.
            return (_SCALAR, RedactedField(item.attribute, row)) if row else (None, None)
        # A field that has shown values of other kinds is routed from then on: the decoder would refuse each record with
        # such a value, and the exact path is much slower.
        if len(slots) == 1 and item.path not in self.profile.mixed_fields and item.is_decodable(slots[0]):
            native, shape = self._slot(item, slots[0])
            if native is not None:
                return native, SingleColumn(item.attribute, slots[0].name, shape)
        return self._multi_column_field(item)

    def _multi_column_field(self, item: ShapedField) -> tuple[Any, MultiColumnField]:
        """Return a field that is routed, with what the decoder accepts for it.

        Its values come decoded if no column needs their text and their JSON form alone determines all columns. That
        holds while the batch has no values of other kinds: the decoder refuses such values, and their records take the
        exact path. Afterwards values come as text, and the columns from before the interval may take more kinds.
        """
        types = {slot.name: self._slot(item, slot) for slot in item.slots if item.is_decodable(slot)}
        if item.path not in self.profile.mixed_fields:
            native, column = self._with_converter(item, types, ())
            if column.is_decoded:
                return native, column
        return self._with_converter(item, types, item.base)

    def _with_converter(
        self, item: ShapedField, types: Mapping[str, tuple[Any, RecordShape | None]], base_columns: Collection[str]
    ) -> tuple[Any, MultiColumnField]:
        """Return such a field, with the conversions that these columns from before the interval allow."""
        slots, rules = item.slots, item.rules
        shapes = {name: shape for name, (_, shape) in types.items() if shape is not None}
        natives = {slot.name: types.get(slot.name, (None, None))[0] for slot in slots}
        converter = build_fast_converter(slots, base_columns)
        # Every value becomes JSON text first, or a text may be masked, so the Python type of the decoded value says
        # nothing about its column.
        if rules.take is FieldRule.AS_JSON or rules.hidden:
            converter.conversions = {name: {} for name in converter.conversions}
        guards = [slot for slot in slots if slot.guard is not None]
        # A value that a fixed column cannot hold must not reach any other column: its whole record is quarantined.
        for guard in guards:
            converter.decide(guard.name)
        column = MultiColumnField(
            key=item.key,
            attribute=item.attribute,
            location=item.location,
            slots=slots,
            rules=rules,
            shapes=shapes,
            converter=converter,
            is_strict=self.profile.rescues or bool(guards),
            is_required=item.is_required,
            has_dates=rules.reads_times and any(map(item.may_be_new_date, slots)),
            nested_columns=() if rules.take is not FieldRule.AS_IS or guards else _nested_columns(slots, natives),
        )
        is_simple = rules.take is FieldRule.AS_IS and not guards and not column.has_dates
        native = _decided_type(column, natives) if is_simple else None
        if native is not None:
            return native, replace(column, is_decoded=True)
        # With one array column, its own decoder takes the whole array (see `NestedColumn`), which is faster.
        if is_simple and not rules.hidden and sum(slot.dim > 0 for slot in slots) > 1:
            add_array_conversions(converter, slots)
        return msgspec.Raw, column

    def _slot(self, item: ShapedField, slot: ColumnSlot) -> tuple[Any, RecordShape | None]:
        """Return what the decoder accepts for one column, or None if it never takes decoded values; with the shape of
        its records.
        """
        shape = None
        if slot.record is not None:
            base_slot = item.base.get(slot.name)
            base = (base_slot.record if base_slot else None) or {}
            shape = self.record(slot.record, base, item.rules, (*item.location, (item.key, slot.dim)))
        return _nest_in_lists(shape.struct if shape else _leaf_native(slot), slot.dim), shape


def _order_keys(keys: Collection[str], order: Sequence[str]) -> list[str]:
    """Return the different keys, first those that an order names."""
    different = dict.fromkeys(keys)
    return list(dict.fromkeys((*(key for key in order if key in different), *different)))


def takes_values(slots: Iterable[ColumnSlot]) -> bool:
    """Return whether no column is a fixed one that takes no values."""
    return all(slot.guard is None or slot.guard.takes_values for slot in slots)


def excluded_keys(rules: FieldRules, order: Sequence[str]) -> list[str]:
    """Return the excluded keys, in the spelling of the policy and in that of the first texts."""
    keys = (*(below.source[-1] for below in rules.hidden.values() if below.source), *order)
    return [key for key in keys if rules.at(key).take is FieldRule.LEFT_OUT]


def _decoder_field(attribute: str, native: Any, *, is_required: bool) -> tuple[Any, ...]:
    """Return a field of a decoder.

    Null and a missing key are accepted unless the column is NOT NULL; the checks of a value that stays text come later.
    """
    if native is msgspec.Raw:
        return (attribute, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
    if is_required:
        return (attribute, native)
    return (attribute, Union[native, None, msgspec.UnsetType], msgspec.UNSET)


def _leaf_native(slot: ColumnSlot) -> Any:
    if slot.entries is None:
        return native_type(slot)
    value: Any = _nest_in_lists(native_type(slot.entries), slot.entries.dim)
    return None if value is None else dict[str, value | None]


def _nest_in_lists(native: Any, dim: int) -> Any:
    for _ in range(dim if native is not None else 0):
        native = list[native | None]
    return native


def _decided_type(item: MultiColumnField, natives: Mapping[str, Any]) -> Any:
    """Return what the decoder accepts for a field if the JSON form of every value determines its columns.

    The converter then also gets the conversions of arrays and records. None if some form does not determine the
    columns, or if a column needs the text.
    """
    arrays = [slot for slot in item.slots if slot.dim]
    records = [slot for slot in item.slots if slot.record is not None and not slot.dim]
    if any(natives[slot.name] is None for slot in (*arrays, *records)) or not _is_decided(item, arrays, records):
        return None
    converter = item.converter
    python_types = [natives[slot.name] for slot in (*arrays, *records)]
    python_types += [
        # The decoder itself refuses larger integers, so that the assembler need not compare each one.
        _bounded_int(converter) if python_type is int else python_type
        for python_type in converter.python_types
    ]
    for slot in arrays:
        converter.conversions[slot.name][list] = None
    for record in records:
        struct = item.shapes[record.name].struct
        converter.conversions[record.name][struct] = None
        for slot in arrays:
            if slot.record is not None:
                converter.conversions[slot.name][struct] = wrap_in_arrays(
                    _record_conversion(item.shapes[slot.name].struct), slot.dim
                )
    return Union[tuple(python_types)]


def _is_decided(item: MultiColumnField, arrays: list[ColumnSlot], records: list[ColumnSlot]) -> bool:
    """Return whether the JSON form of every value of a field determines its columns, and no column needs the text."""
    python_types = item.converter.python_types
    # Of two array columns, or two record columns, the JSON form does not say which takes the value.
    if len(arrays) > 1 or len(records) > 1 or item.converter.deciders or not (arrays or records or python_types):
        return False
    if not all(native_type(slot) for slot in item.slots if slot not in (*arrays, *records)):
        return False
    # A text column needs the spelling of a fraction, which a decoded double has lost. Where no column takes integers,
    # msgspec would read the integer 2 as the double 2.0, and nobody would see that it is a long.
    if float in python_types and (any(slot.word == STRING_WORD for slot in item.slots) or int not in python_types):
        return False
    both = [slot for slot in arrays if slot.record is not None and records]
    # A record that goes to two columns is decoded twice, so values to be routed in it would also be observed twice.
    needs_routing = bool(both) and any(item.shapes[slot.name].needs_routing for slot in (*both, *records))
    return not needs_routing and all(_contains(slot, record) for slot in both for record in records)


def _record_conversion(struct: type[msgspec.Struct]) -> FastConversion:
    """Return the conversion of a decoded record to a column whose records have another struct, with all its fields."""
    decode, encode = msgspec.json.Decoder(struct).decode, msgspec.json.Encoder().encode
    return lambda record, _: decode(encode(record))


def _bounded_int(converter: FastConverter) -> Any:
    return Annotated[int, msgspec.Meta(ge=-converter.bound, le=converter.bound - 1)]


def _contains(wide: ColumnSlot, narrow: ColumnSlot) -> bool:
    """Return whether a record column takes every value that another record column takes."""
    if wide is narrow:
        return True
    above, below = wide.record or {}, narrow.record or {}
    return all(
        len(above.get(key, ())) == 1 and _contains_field(above[key][0], slots[0]) for key, slots in below.items()
    )


def _contains_field(wide: ColumnSlot, narrow: ColumnSlot) -> bool:
    if wide.name != narrow.name or wide.dim != narrow.dim or (wide.record is None) != (narrow.record is None):
        return False
    if wide.record is not None:
        return _contains(wide, narrow)
    return wide.type == narrow.type or (narrow.word, wide.word) in _CONTAINED_WORDS


def _nested_columns(slots: tuple[ColumnSlot, ...], natives: Mapping[str, Any]) -> tuple[NestedColumn, ...]:
    return tuple(
        NestedColumn(slot.name, msgspec.json.Decoder(natives[slot.name]))
        for slot in slots
        if (slot.dim or slot.record is not None)
        and natives[slot.name] is not None
        and _is_sole_column(slot, [other for other in slots if other is not slot])
    )


def _is_sole_column(slot: ColumnSlot, others: list[ColumnSlot]) -> bool:
    """Return whether no other column takes any part of the values that the decoder of a column accepts."""
    if slot.entries is not None:
        return not any(other.entries is not None for other in others)
    # A kind says long for every integer, and the decoder of doubles also accepts integers.
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
