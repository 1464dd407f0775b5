"""The native fast path: records that fit the columns, decoded to Arrow by the module ``widen._kernel``.

Python decides, and the kernel only follows: a plan says for each field which kinds of values its columns take. The
kernel refuses every record that does not fit exactly; the exact path reads those. Without it, records are
decoded by `widen.rows.column_assembler.RecordDecoder`, with the same rows.

Source: docs/kernel.md; docs/evolution-rules.md#u14
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from widen.json.document import DateText, LocalTimeText, TimestampText
from widen.json.field_rules import MASK, FieldRule, FieldRules
from widen.json.kinds import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.json.observation import FieldObservation, RecordPosition
from widen.model.value_classes import dataclass
from widen.rows.row import ColumnSlot, RecordRoute, Row, route_value, routes_kind
from widen.rows.shape import (
    BatchProfile,
    BooleanArray,
    FastConverter,
    FieldLocation,
    IntArray,
    ShapedField,
    TextArray,
    add_array_conversions,
    build_fast_converter,
    excluded_keys,
    native_type,
    takes_values,
)

BOOLEAN, LONG, DOUBLE, DECIMAL, STRING, DATE, TIMESTAMP, LOCAL_TIME = (1 << bit for bit in range(8))
ARRAY, RECORD, NULL, EMPTY_ARRAY, EMPTY_RECORD = (1 << bit for bit in range(8, 13))
"""Kinds of values as bits; the same as in ``kernel/src/record_shape.rs``."""

_BIT_OF_TYPE: Mapping[type, int] = {
    bool: BOOLEAN,
    int: LONG,
    float: DOUBLE,
    str: STRING,
    DateText: DATE,
    TimestampText: TIMESTAMP,
    LocalTimeText: LOCAL_TIME,
}
"""The kind of the decoded values of each Python type, as in `widen.rows.shape.FastConverter`."""

_OWN_KINDS: Mapping[str, int] = {
    BOOLEAN_WORD: BOOLEAN,
    INT_WORD: LONG,
    LONG_WORD: LONG,
    DOUBLE_WORD: LONG | DOUBLE,
    DECIMAL_WORD: LONG | DOUBLE | DECIMAL,
    STRING_WORD: STRING,
    DATE_WORD: DATE,
    TIMESTAMP_WORD: TIMESTAMP,
    NTZ_WORD: LOCAL_TIME,
}
"""For each kind of column, the kinds whose exact values it holds without any other column."""

_NO_BOUND = 2**63


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column that values of a field go to.

    Args:
        takes: The kinds of scalars that go to it, and `ARRAY` and `RECORD`.
        decides: The kinds whose every value it must hold; else the kernel refuses the record.
        item_takes: The kinds of the scalars in arrays and maps.
        unit_nanos: Unit of integers in a timestamp column; 0 if their magnitude tells it.
    """

    name: str
    takes: int
    decides: int = 0
    item_takes: int = 0
    unit_nanos: int = 0
    record: RecordPlan | None = None


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """One field of a record.

    Args:
        bound: Integers from this magnitude on are refused.
        is_required: Whether null and a missing key are refused.
        routes_items: Whether each array goes to all columns that take the kind of its items.
        spells_any: Whether times in other spellings are read.
        has_zone: Whether a time without a zone is an instant, which the kernel leaves to the exact path.
        empties: What a field without a column may be: `NULL`, `EMPTY_ARRAY` and `EMPTY_RECORD`.
        below: The fields of a record without a column, so they have no columns.
    """

    key: str
    columns: list[ColumnPlan]
    take: str = FieldRule.AS_IS.value
    mask: str = ""
    bound: int = _NO_BOUND
    is_required: bool = False
    routes_items: bool = False
    has_instants: bool = False
    has_local_times: bool = False
    spells_any: bool = False
    has_zone: bool = False
    empties: int = 0
    below: list[FieldPlan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """The fields of a record. A record with any other field is refused."""

    fields: list[FieldPlan]


@dataclass(frozen=True, slots=True)
class NativeBatch:
    """What the kernel made of texts.

    Args:
        rows: The records that fit, as a ``pyarrow.RecordBatch``; None if no rows are needed.
        refused: The indexes of the texts that need the exact path.
    """

    rows: Any
    texts: Sequence[bytes]
    positions: Sequence[RecordPosition]
    refused: Sequence[int]

    def kept(self) -> tuple[list[bytes], list[RecordPosition]]:
        """Return the texts and the positions of the records that are rows."""
        refused = set(self.refused)
        indexes = [index for index in range(len(self.texts)) if index not in refused]
        return [self.texts[index] for index in indexes], [self.positions[index] for index in indexes]


class NativeDecoder:
    """Collects texts and decodes them with the kernel.

    Args:
        make_plan: Returns the plan of the records, once there are some.
        kernel: The module ``widen._kernel``.
    """

    def __init__(self, make_plan: Callable[[], RecordPlan], kernel: Any) -> None:
        self._make_plan, self._kernel = make_plan, kernel
        self._plan: RecordPlan | None = None
        self._decoder: Any = None
        self._schema: Any = None
        self._texts: list[bytes] = []
        self._complete_texts: list[bytes] = []
        self._positions: list[RecordPosition] = []

    def add(self, texts: Sequence[bytes], complete: Sequence[bytes], positions: Sequence[RecordPosition]) -> None:
        self._texts.extend(texts)
        self._complete_texts.extend(complete)
        self._positions.extend(positions)

    def decode(self, schema: Any = None, make_schema: Callable[[], Any] | None = None) -> NativeBatch:
        """Decode the texts since the last call.

        Args:
            schema: The Arrow schema of the rows; None if no rows are needed.
            make_schema: Makes one where `schema` is None.
        """
        texts, complete, positions = self._texts, self._complete_texts, self._positions
        self._texts, self._complete_texts, self._positions = [], [], []
        if not texts:
            return NativeBatch(None, texts, positions, ())
        if self._decoder is None or (schema is not None and schema is not self._schema):
            self._schema = schema if schema is not None else (make_schema and make_schema())
            self._plan = self._plan or self._make_plan()
            self._decoder = self._kernel.Decoder(self._schema, self._plan)
        refused = self._decoder.add(complete)
        if schema is None:
            self._decoder.clear()
        rows = self._decoder.take() if schema is not None and self._decoder.records else None
        return NativeBatch(rows, texts, positions, refused)


def build_record_plan(
    route: RecordRoute, profile: BatchProfile, base: RecordRoute, rules: FieldRules, location: FieldLocation = ()
) -> RecordPlan:
    """Return the plan for the records of a route.

    Args:
        base: The route of the columns from before the interval.
        location: The records around, from the root.
    """
    above = tuple(key for key, _ in location)
    empty = {path[-1]: seen for path, seen in profile.empty_fields.items() if path[:-1] == above}
    keys = dict.fromkeys((*route, *empty, *excluded_keys(rules, profile.key_orders.get(above, ()))))
    fields = []
    for key in keys:
        # A record with a field that the plan lacks takes the exact path.
        if takes_values(route.get(key, ())):
            base_slots = {slot.name: slot for slot in base.get(key, ())}
            item = ShapedField(key, "", location, route.get(key, ()), base_slots, rules.at(key))
            fields.append(_field_plan(item, profile, empty.get(key)))
    return RecordPlan(fields)


def _field_plan(item: ShapedField, profile: BatchProfile, empty: FieldObservation | None) -> FieldPlan:
    take, slots = item.rules.take, item.slots
    if take is FieldRule.LEFT_OUT:
        return FieldPlan(item.key, [], take.value)
    if not slots:
        return _hollow_plan(item.key, empty)
    if take is FieldRule.MASKED:
        row: Row = {}
        route_value(row, slots, MASK)
        # Without a column for the mask, the exact path observes the value, and the plan adds a string column.
        columns = [ColumnPlan(name, STRING, STRING) for name in row]
        empties = 0 if columns else NULL
        rule = take.value if columns else FieldRule.AS_IS.value
        return FieldPlan(item.key, columns, rule, MASK, is_required=item.is_required, empties=empties)
    if len(slots) == 1 and item.path not in profile.mixed_fields and item.is_decodable(slots[0]):
        takes = _takes_own_form(item, slots[0], _own_kinds(slots[0]))
        if takes is not None:
            columns = [_column_plan(item, profile, slots[0], takes, 0)]
            return FieldPlan(item.key, columns, is_required=item.is_required)
    return _routed_field_plan(item, profile)


def _hollow_plan(key: str, seen: FieldObservation | None) -> FieldPlan:
    """Return the plan of a field without a column: it may be what it has been so far."""
    if seen is None:
        return FieldPlan(key, [], empties=NULL)
    empties = NULL | (EMPTY_ARRAY if 1 in seen.empty else 0) | (EMPTY_RECORD if 0 in seen.empty_records else 0)
    below = [_hollow_plan(inner, form) for inner, form in seen.records.get(0, {}).items()]
    return FieldPlan(key, [], empties=empties, below=below)


def _own_kinds(slot: ColumnSlot) -> int:
    """Return the kinds of scalars that a column takes unchanged, if it takes decoded values at all."""
    leaf = slot if slot.entries is None else slot.entries
    return _OWN_KINDS[leaf.word] if native_type(leaf) is not None else 0


def _takes_own_form(item: ShapedField, slot: ColumnSlot, kinds: int) -> tuple[int, int] | None:
    """Return what a column takes of values in its own form, and of their items; None if it takes nothing."""
    if slot.record is not None:
        return (ARRAY if slot.dim else RECORD), 0
    if not kinds:
        return None
    if slot.entries is not None:
        return (ARRAY if slot.dim else RECORD), kinds
    return (ARRAY, kinds) if slot.dim else (kinds, 0)


def _routed_field_plan(item: ShapedField, profile: BatchProfile) -> FieldPlan:
    """Return the plan of a field that has several columns, or whose values need a conversion or a closer look."""
    slots, rules = item.slots, item.rules
    guards = [slot for slot in slots if slot.guard is not None]
    has_dates = rules.reads_times and any(map(item.may_be_new_date, slots))
    is_simple = rules.take is FieldRule.AS_IS and not guards and not has_dates
    # Values of kinds that the batch has not shown yet are observed once, unless the field is routed anyway.
    needs_base = item.path in profile.mixed_fields or not is_simple or not all(map(native_type, slots))
    base_columns: Collection[str] = item.base if needs_base else ()
    converter = build_fast_converter(slots, base_columns)
    for guard in guards:
        converter.decide(guard.name)
    takes, decides = _scalar_kinds(converter, slots, base_columns)
    seen = (LONG * (item.path in profile.mixed_integers)) | (DOUBLE * (item.path in profile.mixed_doubles))
    if is_simple and seen & LONG:
        _take_integers(takes, slots)
    if is_simple and len(slots) == 1 and slots[0].word == DECIMAL_WORD and not slots[0].dim and not slots[0].rounds:
        # The plan knows of these numbers. Those that the column does not hold take the exact path.
        takes[slots[0].name] |= seen
        decides[slots[0].name] |= seen
    if rules.hidden or rules.below or rules.maps:
        # Only the rules below the field say what becomes of its texts.
        takes, decides = dict.fromkeys(takes, 0), dict.fromkeys(decides, 0)
    elif rules.take is FieldRule.AS_JSON:
        takes = {name: kinds & STRING for name, kinds in takes.items()}
    nested = _nested_forms(item) if rules.take is FieldRule.AS_IS and not guards and not rules.maps else {}
    routes_items = is_simple and not rules.hidden and sum(slot.dim > 0 for slot in slots) > 1
    if routes_items:
        add_array_conversions(converter, slots)
        for slot in slots:
            if slot.dim:
                form = ARRAY | nested.get(slot.name, (0, 0))[0]
                nested[slot.name] = form, _bits_of_items(converter.conversions[slot.name])
    strings = _kinds_of_strings(rules)
    columns = []
    for slot in slots:
        form, item_takes = nested.get(slot.name, (0, 0))
        own = ((takes[slot.name] | form) & strings, item_takes & strings)
        columns.append(_column_plan(item, profile, slot, own, decides[slot.name]))
    return FieldPlan(
        item.key,
        columns,
        rules.take.value,
        bound=min(converter.bound, converter.array_bound or converter.bound),
        is_required=item.is_required,
        routes_items=routes_items,
        has_instants=has_dates and rules.is_dated,
        has_local_times=has_dates and rules.has_local_times,
        spells_any=rules.spelling.is_any,
        has_zone=bool(rules.spelling.zone),
    )


def _kinds_of_strings(rules: FieldRules) -> int:
    """Return all kinds except the date and timestamp kinds that the rules do not read."""
    unread = 0 if rules.is_dated else TIMESTAMP
    unread |= 0 if rules.has_local_times else LOCAL_TIME
    return ~(unread if rules.reads_times else unread | DATE) & (2 * EMPTY_RECORD - 1)


def _scalar_kinds(
    converter: FastConverter, slots: Sequence[ColumnSlot], base_columns: Collection[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return for each column the kinds of scalars that it takes, and the kinds that it must hold completely."""
    takes = {name: _bits(conversions) for name, conversions in converter.conversions.items()}
    decides = {
        slot.name: _bits(each for each, decider in converter.deciders.items() if decider == slot.name) for slot in slots
    }
    # The kernel distinguishes decimals from doubles, unlike Python's types; the rules of the other kinds apply.
    routed = [slot for slot in slots if routes_kind(slot, Kind(DECIMAL_WORD))]
    deciding = [slot for slot in routed if decides[slot.name] & DOUBLE or slot.guard is not None]
    has_text_column = any(slot.word == STRING_WORD and slot.name in base_columns for slot in slots)
    if any(slot.takes_integral for slot in slots):
        return takes, decides
    # If a fixed column takes no decimals, a record with one is quarantined, regardless of the columns beside it.
    if any(slot.rounds or (slot.guard is not None and slot not in routed) for slot in slots):
        return takes, decides
    if not deciding and not has_text_column and not converter.deciders:
        # A decimal that fits a new column of decimals also leaves the plan unchanged.
        deciding = [
            slot for slot in routed if slot.word == DECIMAL_WORD and (slot.name in base_columns or len(slots) == 1)
        ]
    if has_text_column or len(deciding) == 1:
        for slot in routed:
            takes[slot.name] |= DECIMAL
        for slot in deciding:
            decides[slot.name] |= DECIMAL
    return takes, decides


def _take_integers(takes: dict[str, int], slots: Sequence[ColumnSlot]) -> None:
    """Let the columns of a field that has had integers take them, if a new column of doubles stands for them.

    The plan knows of these integers, and the bound of the field leaves those that a double rounds to the exact path.
    """
    routed = [slot for slot in slots if routes_kind(slot, Kind(LONG_WORD))]
    doubles = [slot for slot in routed if slot.word == DOUBLE_WORD and not slot.dim and not slot.rounds]
    others = [slot for slot in routed if slot not in doubles and (slot.dim or slot.word != STRING_WORD)]
    if len(doubles) == 1 and not others and not any(kinds & LONG for kinds in takes.values()):
        for slot in routed:
            takes[slot.name] |= LONG


def _bits(python_types: Iterable[type]) -> int:
    return sum(_BIT_OF_TYPE[each] for each in python_types if each in _BIT_OF_TYPE)


def _bits_of_items(python_types: Collection[type]) -> int:
    kinds = {IntArray: LONG, TextArray: STRING, BooleanArray: BOOLEAN}
    return sum(bit for python_type, bit in kinds.items() if python_type in python_types)


def _nested_forms(item: ShapedField) -> dict[str, tuple[int, int]]:
    """Return for columns of arrays and records what they take of values in their own form, and of their items."""
    arrays = [slot for slot in item.slots if slot.dim and item.is_decodable(slot)]
    records = [slot for slot in item.slots if slot.record is not None and not slot.dim]
    forms: dict[str, tuple[int, int]] = {}
    # For two array columns, the form of an array does not say which of them takes it.
    if sum(slot.dim > 0 for slot in item.slots) == 1:
        for slot in arrays:
            kinds = _own_kinds(slot) or (_OWN_KINDS.get(slot.word, 0) if slot.name in item.base else 0)
            form = _takes_own_form(item, slot, kinds)
            if form is not None:
                forms[slot.name] = form
    record_arrays = [slot for slot in arrays if slot.record is not None]
    if len(records) == 1 and len(record_arrays) <= 1:
        # A record also goes to a column of arrays of records, as their only item.
        for slot in (*records, *record_arrays):
            own, item_takes = forms.get(slot.name, (0, 0))
            forms[slot.name] = own | RECORD, item_takes
    return forms


def _column_plan(
    item: ShapedField, profile: BatchProfile, slot: ColumnSlot, takes: tuple[int, int], decides: int
) -> ColumnPlan:
    record = None
    if slot.record is not None and takes[0]:
        base_slot = item.base.get(slot.name)
        base = (base_slot.record if base_slot else None) or {}
        record = build_record_plan(slot.record, profile, base, item.rules, (*item.location, (item.key, slot.dim)))
    unit_nanos = 0 if slot.epoch_unit is None else slot.epoch_unit.nanos
    return ColumnPlan(slot.name, takes[0], decides, takes[1], unit_nanos, record)
