"""The shape of the records that fit the columns: a native decoder for a record, the conversions of its scalars, and the
fields that it leaves to routing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, TypeAlias, Union

import msgspec

from widen.json.document import DateText, JsonNumber, LocalTimeText, TimestampText
from widen.json.field_rules import MASK, PLAIN, FieldRule, FieldRules
from widen.json.kinds import (
    BOOLEAN_WORD,
    DATE_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.json.observation import FieldObservation
from widen.model.value_classes import dataclass
from widen.rows.row import MISSING, ColumnSlot, RecordRoute, Row, convert, route_value, routes_kind

# An example. A table has the column a, a bigint, and two columns for the field s: a string, and a bigint.
#     {"a": 1, "s": "x", "z": null}   a is a SingleColumn: the decoder takes an integer, which is the value of the row.
#                                     s is a MultiColumnField: the type of "x" says which of its columns takes it.
#                                     z has no column, and the profile says that it was always null: it is skipped.
#     {"a": 1.5} or {"a": "1"}        The decoder refuses them, since a is an integer for it: the exact path reads them.
#     {"z": 7}                        z has a value for the first time: the exact path observes a new field.
# The fast path never decides what a value means: everything that is not exactly as expected goes to the exact path.

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
        mixed_integers: Fields among them that have had integers.
        mixed_doubles: Fields among them that have had doubles.
        empty_fields: Fields without a column, each with what it held: only nulls, ``[]``, ``{}`` and records of such
            fields.
        key_orders: The sequence of keys in the first texts, for the records at each path; a decoder whose fields have
            the same sequence is faster.
    """

    rescues: bool = False
    mixed_fields: frozenset[SourcePath] = frozenset()
    mixed_integers: frozenset[SourcePath] = frozenset()
    mixed_doubles: frozenset[SourcePath] = frozenset()
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
        has_spellings: Whether all strings do, since times may be in any spelling.
    """

    slots: tuple[ColumnSlot, ...] = ()
    columns: Mapping[type, frozenset[str]] = field(default_factory=dict)
    bound: int = 0
    takes_null: bool = False
    has_dates: bool = False
    has_spellings: bool = False


def build_scalar_field(
    key: str, route: RecordRoute, base: RecordRoute, rules: FieldRules, profile: BatchProfile
) -> ScalarField:
    """Return a field of the records of a route."""
    slots, own_rules = route.get(key, ()), rules.at(key)
    has_spellings = own_rules.reads_times and own_rules.spelling.is_any
    is_as_written = own_rules.take in (FieldRule.AS_IS, FieldRule.AS_TEXT) and not own_rules.hidden
    if not is_as_written or any(slot.guard is not None for slot in slots):
        return ScalarField(slots)
    if not slots:
        # With a rescue column, the exact path writes the null to it.
        return ScalarField(takes_null=not profile.rescues and (key,) in profile.empty_fields)
    if len(slots) == 1 and (key,) not in profile.mixed_fields and slots[0].dim == 0 and native_type(slots[0]):
        columns = dict.fromkeys(_NATIVE_TYPES[slots[0].word], frozenset({slots[0].name}))
        return ScalarField(slots, columns, integer_bound(slots), True, own_rules.reads_times, has_spellings)
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
    return ScalarField(
        slots, columns, min(converter.bound, integer_bound(whole)), True, own_rules.reads_times, has_spellings
    )


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
    """Return the excluded keys, spelled as in the policy and as in the first texts."""
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
    # For two array columns, or two record columns, the JSON form does not say which takes the value.
    if len(arrays) > 1 or len(records) > 1 or item.converter.deciders or not (arrays or records or python_types):
        return False
    if not all(native_type(slot) for slot in item.slots if slot not in (*arrays, *records)):
        return False
    # A text column needs the spelling of a fraction, which a decoded double has lost. Where no column takes integers,
    # msgspec would read the integer 2 as the double 2.0, and nobody would see that it is a long. Nor may 2.0 be read
    # as 2 where texts have its spelling.
    has_fractions = float in python_types or any(slot.takes_integral for slot in item.slots)
    if has_fractions and (any(slot.word == STRING_WORD for slot in item.slots) or int not in python_types):
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


# Conversions of decoded scalars to columns without a closer look, by the Python type of the decoded value.
#
# A scalar needs no closer look if it brings nothing new: the field has a column of exactly its kind, or a text column
# from before the interval, which holds every scalar, or one column from before the interval that can hold the value.
#
# Source: docs/evolution-rules.md#u7, #u14, #d2


_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Not every integer past 2^53 is a double. As msgspec reads integers as int where int is allowed, the bound is checked
# before any rounding.
_EXACT_INT = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

_NATIVE: Mapping[tuple[str, str], Any] = {
    (BOOLEAN_WORD, "boolean"): bool,
    (INT_WORD, "integer"): _INT32,
    (LONG_WORD, "long"): _INT64,
    (DOUBLE_WORD, "double"): _EXACT_INT | float,
    (STRING_WORD, "string"): str,
}
"""For each kind word and type of a column: what the decoder accepts, if the column takes decoded values unchanged."""

FastConversion: TypeAlias = Callable[[Any, bytes], Any]
"""Takes a decoded value and its text, if it came as text; returns the column value."""


def _to_int(decoded: Any, text: bytes) -> Any:
    return int(decoded)


def _to_boolean_text(decoded: Any, text: bytes) -> Any:
    return "true" if decoded else "false"


def to_digits(decoded: Any, text: bytes) -> Any:
    """Return the digits of an integer; its text, if there is one, has the same."""
    return str(decoded)


def to_source_text(decoded: Any, text: bytes) -> Any:
    """Return the text of a number as it is: Arrow takes UTF-8 for a string."""
    return text


_KIND_OF_TYPE: Mapping[type, str] = {
    bool: BOOLEAN_WORD,
    int: LONG_WORD,
    float: DOUBLE_WORD,
    str: STRING_WORD,
    DateText: DATE_WORD,
    TimestampText: TIMESTAMP_WORD,
    LocalTimeText: NTZ_WORD,
}


class IntArray(list[int]):
    """A decoded array of integers that no column rounds."""


class TextArray(list[str]):
    """A decoded array of strings."""


class BooleanArray(list[bool]):
    """A decoded array of booleans."""


class EmptyArray(list[None]):
    """A decoded array without items. Every array column takes it."""


_ARRAY_OF_TYPE: Mapping[type, type[list[Any]]] = {int: IntArray, str: TextArray, bool: BooleanArray}
"""The type of an array whose items are all of a type. Fractions are missing: their text is needed, and not decoded."""

_INTEGER_BOUNDS: Mapping[str, int] = {INT_WORD: 2**31, DOUBLE_WORD: 2**53, LONG_WORD: 2**63}
"""Up to this magnitude, a column of each kind word holds every integer."""

_LONG_BOUND = 2**63

_FAST: Mapping[tuple[str, str], FastConversion | None] = {
    (BOOLEAN_WORD, BOOLEAN_WORD): None,
    (BOOLEAN_WORD, INT_WORD): _to_int,
    (BOOLEAN_WORD, LONG_WORD): _to_int,
    (BOOLEAN_WORD, DOUBLE_WORD): _to_int,
    (BOOLEAN_WORD, STRING_WORD): _to_boolean_text,
    (LONG_WORD, INT_WORD): None,
    (LONG_WORD, LONG_WORD): None,
    (LONG_WORD, DOUBLE_WORD): _to_int,
    (LONG_WORD, STRING_WORD): to_digits,
    (DOUBLE_WORD, DOUBLE_WORD): None,
    (DOUBLE_WORD, STRING_WORD): to_source_text,
    (STRING_WORD, STRING_WORD): None,
}
"""For each kind of value and each column in `_NATIVE`: the conversion, or None if the value stays unchanged."""

_TAKE_EPOCHS = frozenset({TIMESTAMP_WORD, LONG_WORD, DOUBLE_WORD, STRING_WORD})
"""Columns that take the same of an integer that is read as a timestamp as of another integer."""

_SAME_KIND = frozenset({(LONG_WORD, INT_WORD), *((word, word) for word in _KIND_OF_TYPE.values())})
"""Pairs of the kind word of a value and the kind word of a column of the same kind."""


@dataclass(slots=True)
class FastConverter:
    """Conversions of the scalars of one field.

    Args:
        conversions: The Python types that each column takes, by name, with their conversions; None if a value stays
            unchanged.
        deciders: The column that must hold each value of a type; values that it cannot hold need a closer look.
        bound: Integers from this magnitude on need a closer look.
        has_no_doubles: Whether no column takes fractions as doubles, so that no fraction needs a closer look.
        array_bound: Array items from this magnitude on need a closer look; 0 if arrays are not converted.
    """

    conversions: dict[str, dict[type, FastConversion | None]]
    deciders: dict[type, str] = field(default_factory=dict)
    bound: int = 0
    has_no_doubles: bool = False
    array_bound: int = 0

    @property
    def python_types(self) -> frozenset[type]:
        """The Python types that some column takes."""
        return frozenset(python_type for conversions in self.conversions.values() for python_type in conversions)

    def decide(self, name: str) -> None:
        """Make a column the decider, in place: it must hold every value. Types that it does not take lose their
        conversions.
        """
        decided = self.conversions[name].keys() - {
            python_type for python_type, decider in self.deciders.items() if decider != name
        }
        self.conversions = {
            column: {
                python_type: conversion for python_type, conversion in conversions.items() if python_type in decided
            }
            for column, conversions in self.conversions.items()
        }
        self.deciders = dict.fromkeys(decided, name)


def native_type(slot: ColumnSlot) -> Any:
    """Return what the decoder accepts for the leaves of a column, or None if the column never takes decoded values."""
    return _NATIVE.get((slot.word, str(slot.type)))


def build_fast_converter(slots: tuple[ColumnSlot, ...], base_columns: Collection[str]) -> FastConverter:
    """Return the conversions of scalars to the columns of a field that need no closer look.

    Args:
        base_columns: Names of the columns from before the interval.
    """
    converter = FastConverter({slot.name: {} for slot in slots})
    has_text_column = any(slot.word == STRING_WORD and slot.name in base_columns for slot in slots)
    # What a double rounds is observed, so that it is counted, although the text column holds it.
    is_unbounded = has_text_column and not any(slot.rounds for slot in slots)
    converter.bound = _LONG_BOUND if is_unbounded else integer_bound(slots)
    for python_type, word in _KIND_OF_TYPE.items():
        routed = [slot for slot in slots if routes_kind(slot, Kind(word))]
        base_routed = [slot for slot in routed if slot.name in base_columns]
        if word == DOUBLE_WORD and any(slot.takes_integral for slot in slots):
            continue  # some are integers
        if word == LONG_WORD and any(slot.holds_epochs for slot in slots):
            # Which integers are timestamps depends on their values. A single column decides it by holding them.
            if len(slots) == 1:
                converter.deciders[python_type] = slots[0].name
                converter.conversions[slots[0].name][python_type] = _fast_conversion(word, slots[0], converter.bound)
                continue
            if not all(slot.word in _TAKE_EPOCHS for slot in slots):
                continue
        # A text column from before the interval holds every scalar, so no scalar is new to it (U7).
        if not has_text_column and not any(map(_is_same_kind, [word] * len(routed), routed)):
            if len(base_routed) != 1 or not _can_decide(word, base_routed[0]):
                continue
            converter.deciders[python_type] = base_routed[0].name
        for slot in routed:
            converter.conversions[slot.name][python_type] = wrap_in_arrays(
                _fast_conversion(word, slot, converter.bound), slot.dim
            )
    converter.has_no_doubles = not any(
        float in converter.conversions[slot.name] for slot in slots if slot.word == DOUBLE_WORD
    )
    return converter


def add_array_conversions(converter: FastConverter, slots: tuple[ColumnSlot, ...]) -> None:
    """Add the conversions of arrays whose items are all of one type, in place.

    Such an array needs no closer look if a column has exactly its kind, and every column converts its items.
    """
    for python_type, array_type in _ARRAY_OF_TYPE.items():
        word = _KIND_OF_TYPE[python_type]
        routed = [slot for slot in slots if routes_kind(slot, Kind(word, 1))]
        is_native = all(native_type(slot) is not None and (word, slot.word) in _FAST for slot in routed)
        if is_native and any(slot.dim == 1 and (word, slot.word) in _SAME_KIND for slot in routed):
            for slot in routed:
                item_conversion = wrap_in_arrays(_FAST[word, slot.word], slot.dim - 1)
                converter.conversions[slot.name][array_type] = _each(item_conversion)
    for slot in slots:
        if slot.dim:
            converter.conversions[slot.name][EmptyArray] = None
    converter.array_bound = integer_bound(slots)


def _each(conversion: FastConversion | None) -> FastConversion | None:
    return conversion and (lambda items, _: [conversion(item, b"") for item in items])


def to_typed_array(items: list[Any], text: bytes, bound: int) -> list[Any]:
    """Return a decoded array as one of its own type if its items are all of a type, else unchanged.

    Args:
        bound: Integers from this magnitude on need a closer look.
    """
    if not items:
        return EmptyArray()
    python_types = set(map(type, items))
    array_type = _ARRAY_OF_TYPE.get(python_types.pop()) if len(python_types) == 1 else None
    is_certain = array_type is not IntArray or _are_bounded(items, text, bound)
    return items if array_type is None or not is_certain else array_type(items)


def _are_bounded(items: list[int], text: bytes, bound: int) -> bool:
    return -bound <= min(items) and max(items) < bound and b"-0" not in text


def integer_bound(slots: Iterable[ColumnSlot]) -> int:
    """Return the largest magnitude whose integers all columns hold."""
    return min((_INTEGER_BOUNDS[slot.word] for slot in slots if slot.word in _INTEGER_BOUNDS), default=_LONG_BOUND)


def _is_same_kind(word: str, slot: ColumnSlot) -> bool:
    is_alone = native_type(slot) is not None or slot.word in (DATE_WORD, TIMESTAMP_WORD, NTZ_WORD)
    return slot.dim == 0 and is_alone and (word, slot.word) in _SAME_KIND


def _can_decide(word: str, slot: ColumnSlot) -> bool:
    """Return whether a column from before the interval covers a kind if and only if it can hold each of its values."""
    return slot.dim == 0 and str(slot.type) != "float" and (word, slot.word) != (LONG_WORD, TIMESTAMP_WORD)


def _fast_conversion(word: str, slot: ColumnSlot, bound: int) -> FastConversion | None:
    """Return the conversion of the scalars of a kind to the items of a column; None leaves them unchanged."""
    is_bounded = word != LONG_WORD or bound <= _INTEGER_BOUNDS.get(slot.word, bound)
    if native_type(slot) is not None and is_bounded and (word, slot.word) in _FAST:
        return _FAST[word, slot.word]
    is_number = word in (LONG_WORD, DOUBLE_WORD)

    def conversion(decoded: Any, text: bytes) -> Any:
        value = convert(
            JsonNumber(text.decode()) if is_number else decoded, word, slot.word, slot.type, slot.epoch_unit
        )
        return None if value is MISSING else value

    if word != LONG_WORD or native_type(slot) is None or slot.word not in _INTEGER_BOUNDS:
        return conversion
    low, high = -_INTEGER_BOUNDS[slot.word], _INTEGER_BOUNDS[slot.word]
    return lambda decoded, text: decoded if low <= decoded < high else conversion(decoded, text)


def wrap_in_arrays(conversion: FastConversion | None, dim: int) -> FastConversion | None:
    """Return the conversion to a column with this number of arrays."""
    if dim == 0:
        return conversion
    convert_item = wrap_in_arrays(conversion, dim - 1)

    def convert_to_array(decoded: Any, text: bytes) -> Any:
        value = decoded if convert_item is None else convert_item(decoded, text)
        return None if value is None else [value]

    return convert_to_array
