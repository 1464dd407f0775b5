"""One record to one row: each value goes, converted exactly, to every column of its field that can hold it.

Source: docs/evolution-rules.md#u14, #u16, #u17, #lattice, #d2, #d3, #d5, #d7, #d8, #d10
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, TypeAlias

from widen.evolution.policy import EpochUnit, FixedColumn, Numbers, Policy, Samples, build_field_rules, sample_formatter
from widen.evolution.type_lattice import can_route, column_sort_key, is_boolean_as_number, is_epoch, rounded_kinds
from widen.json.document import (
    EpochNumber,
    InvalidJson,
    JsonDocument,
    JsonNumber,
    MapEntries,
    corrupt_bytes_to_text,
    document_to_json,
    has_leaf,
    parse_document,
    spelling_of,
)
from widen.json.field_rules import MASK
from widen.json.kinds import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    MAP_WORD,
    NO_FACTS,
    NTZ_WORD,
    NULL_WORD,
    NUMBER_WORDS,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
    count_to_moment,
    leaf_and_dim,
    parse_date,
    parse_instant,
    parse_local_time,
    parse_temporal,
    word_of,
)
from widen.json.observation import (
    SAMPLE_CHARS,
    RecordObservation,
    RecordPosition,
    get_field,
    observe_value,
    scalar_kind,
)
from widen.model.column_path import ELEMENT, VALUE, Path, format_path
from widen.model.types import DOUBLE, STRING, TIMESTAMP, DataType, DecimalType, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import is_float32
from widen.schema.source_metadata import role_of, source_key

Row = dict[str, Any]


def to_row(route: RecordRoute, record: dict[str, JsonDocument]) -> Row:
    """Return the row of a record: column names with values for pyarrow.

    A key without a column, and a value that no column of its field can hold, is left out; the plan makes sure that this
    does not occur. Null and a missing key are the same in a table.

    Source: docs/evolution-rules.md#u14
    """
    row: Row = {}
    for key, value in record.items():
        if value is not None:
            route_value(row, route.get(key, ()), value)
    return row


def route_value(row: Row, slots: tuple[ColumnSlot, ...], value: JsonDocument) -> None:
    """Set every column of one field that can hold the value, in place.

    Source: docs/evolution-rules.md#u14
    """
    for slot in slots:
        cell = to_cell(slot, value)
        if cell is not MISSING:
            row[slot.name] = cell


def to_cell(slot: ColumnSlot, value: JsonDocument) -> Any:
    """Return the value that a column holds for a source value, or `MISSING` if it cannot hold any of it."""
    return _to_cell(value, _kind_word(value), slot, slot.dim)


def _kind_word(value: JsonDocument) -> str:
    return RECORD_WORD if isinstance(value, (dict, list)) else word_of_value(value)


def _to_cell(value: JsonDocument, kind_word: str, slot: ColumnSlot, dim: int) -> Any:
    """Return the value for a column with ``dim`` arrays: unchanged, wrapped in an array, or `MISSING`."""
    if isinstance(value, list):
        return _array_to_cell(value, slot, dim - 1) if dim else MISSING
    if dim:
        inner = _to_cell(value, kind_word, slot, dim - 1)
        return inner if inner is MISSING else [inner]
    if isinstance(value, MapEntries):
        return _map_to_cell(value, slot.entries) if slot.entries is not None else MISSING
    if isinstance(value, dict):
        return to_row(slot.record, value) if slot.record is not None else MISSING
    return MISSING if is_excluded_kind(slot, kind_word) else convert_scalar(value, kind_word, slot)


def convert_scalar(value: JsonDocument, kind_word: str, slot: ColumnSlot) -> Any:
    """Return the value that a column without arrays holds for a scalar, or `MISSING`.

    Source: docs/evolution-rules.md#d1, #d2
    """
    cell = convert(value, kind_word, slot.word, slot.type, slot.epoch_unit)
    # Rounding comes last: only values without an exact column are rounded.
    return float(value) if cell is MISSING and kind_word in slot.rounds else cell


def _array_to_cell(items: list[JsonDocument], slot: ColumnSlot, dim: int) -> Any:
    """Return the array with NULL for items that the column cannot hold; `MISSING` if it cannot hold any item."""
    cells = [MISSING if item is None else _to_cell(item, _kind_word(item), slot, dim) for item in items]
    if cells and all(item is MISSING for item in cells) and any(_belongs_elsewhere(item, slot) for item in items):
        return MISSING
    return [None if item is MISSING else item for item in cells]


def _belongs_elsewhere(item: JsonDocument, slot: ColumnSlot) -> bool:
    """Return whether an item that the column cannot hold is more than a null; an empty record is (D19)."""
    return has_leaf(item) or (isinstance(item, dict) and slot.record is None and slot.entries is None)


def _map_to_cell(entries: MapEntries, slot: ColumnSlot) -> Any:
    """Return the map as pairs, with NULL for values that the column cannot hold; `MISSING` if it can hold none."""
    items = list(entries.values())
    cells = _array_to_cell(items, slot, slot.dim)
    if cells is MISSING and not any(map(has_leaf, items)):
        cells = [None] * len(items)  # the keys are also values
    return MISSING if cells is MISSING else list(zip(entries, cells, strict=True))


# The values of a record that no column holds, as JSON text for the rescue column.
#
# Source: docs/evolution-rules.md#u1, #d1, #d10


_NOTHING: Final = object()


def rescue(route: RecordRoute, record: dict[str, JsonDocument]) -> str | None:
    """Return the part of a record that no column holds as JSON text, or None if the columns hold all of it.

    An array or a map with a value that no column holds is rescued in full, so that the text shows where the value
    stood. Null, ``[]`` and ``{}`` are also values: a column of the field holds a null, an array column of enough levels
    ``[]``, and a column of records or maps ``{}``.

    Source: docs/evolution-rules.md#d7, #d10
    """
    unstored = _unstored_fields(route, record)
    return None if unstored is _NOTHING else document_to_json(unstored)


def _unstored_fields(route: RecordRoute, record: dict[str, JsonDocument]) -> Any:
    parts = {key: _unstored_part(route.get(key, ()), value) for key, value in record.items()}
    return {key: part for key, part in parts.items() if part is not _NOTHING} or _NOTHING


def _unstored_part(slots: tuple[ColumnSlot, ...], value: JsonDocument) -> Any:
    if isinstance(value, dict) and not isinstance(value, MapEntries):
        record = widest_record_route(slots)
        return value if record is None else _unstored_fields(record, value)
    return _NOTHING if is_fully_stored(slots, value) else value


def widest_record_route(slots: Iterable[ColumnSlot]) -> RecordRoute | None:
    """Return the route of the record column with the most arrays, which has all fields of the others (U17)."""
    return next((slot.record for slot in sorted(slots, key=lambda slot: -slot.dim) if slot.record is not None), None)


def is_fully_stored(slots: tuple[ColumnSlot, ...], value: JsonDocument, dim: int = 0) -> bool:
    """Return whether columns hold all of a value, each part in at least one of them, also null, ``[]`` and ``{}``.

    Args:
        dim: Number of arrays around the value.
    """
    deep = tuple(slot for slot in slots if slot.dim >= dim)
    if value is None:
        return bool(deep)
    if isinstance(value, list):
        has_place = any(slot.dim > dim for slot in deep)
        return has_place and all(is_fully_stored(deep, item, dim + 1) for item in value)
    if isinstance(value, MapEntries):
        entries = tuple(slot.entries for slot in deep if slot.entries is not None)
        return bool(entries) and all(is_fully_stored(entries, item) for item in value.values())
    if isinstance(value, dict):
        record = widest_record_route(deep)
        return record is not None and _unstored_fields(record, value) is _NOTHING
    kind_word = word_of_value(value)
    candidates = (slot for slot in deep if stores_kind(slot, kind_word))
    return any(convert_scalar(value, kind_word, slot) is not MISSING for slot in candidates)


# Which records violate fixed columns: partition, NOT NULL and CHECK columns, which ingestion must not change.
#
# The table gets no part of a record that violates one.
#
# Source: docs/evolution-rules.md#d12


RecordLocation: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The records around a field: the key of each, the number of arrays around the maps in it, and around itself."""


@dataclass(frozen=True, slots=True)
class FixedColumnViolation:
    """A value that violates a fixed column.

    Args:
        key: Its key in the innermost record.
        value: The value after the field rules.
    """

    location: RecordLocation
    key: str
    slot: ColumnSlot
    guard: FixedColumn
    value: JsonDocument

    def __str__(self) -> str:
        return self.reason()

    def reason(self, samples: Samples = Samples.MASKED) -> str:
        """Return why the record is quarantined."""
        path = format_path(self.source)
        if self.value is None:
            return f"{path} is null, and column {self.slot.name} is {self.guard.reason}"
        if not self.guard.takes_values:
            return f"{path} has a value, but column {self.slot.name} is {self.guard.reason}"
        text = document_to_json(self.value)
        shown = sample_formatter(samples)(text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…")
        column = f"column {self.slot.name} is {self.guard.reason}"
        return f"{path}: {shown or 'the value'} is not of type {self.slot.type.sql}, and {column}"

    @property
    def source(self) -> Path:
        """The path of the source field."""
        return (*(key for key, _ in self.location), self.key)

    def observe(self, quarantined_records: RecordObservation, position: RecordPosition) -> None:
        """Add the value to the observation of quarantined records, in place.

        Args:
            quarantined_records: Observation of the quarantined records; grows.
        """
        for key, dims in self.location:
            field = get_field(quarantined_records, key)
            for dim in dims[:-1]:
                field = field.entries(dim)
            quarantined_records = field.record(dims[-1])
        field = get_field(quarantined_records, self.key)
        if not has_leaf(self.value):
            field.kind(Kind(NULL_WORD)).add(NO_FACTS, position, NULL_WORD)
        else:
            observe_value(field, self.value, position)


def fixed_column_route(route: RecordRoute) -> RecordRoute:
    """Return the part of a route that leads to fixed columns; it is empty if the table has no fixed columns."""
    routes = {
        key: tuple(fixed for slot in slots if (fixed := _fixed_slot(slot)) is not None) for key, slots in route.items()
    }
    return {key: slots for key, slots in routes.items() if slots}


def _fixed_slot(slot: ColumnSlot) -> ColumnSlot | None:
    record = None if slot.record is None else fixed_column_route(slot.record)
    entries = None if slot.entries is None else _fixed_slot(slot.entries)
    if slot.guard is not None:
        return replace(slot, record=record)
    return replace(slot, record=record, entries=entries) if record or entries else None


def find_violations(
    route: RecordRoute, record: dict[str, JsonDocument], location: RecordLocation = ()
) -> Iterator[FixedColumnViolation]:
    """Yield the values of a record that violate fixed columns."""
    for key, slots in route.items():
        value = record.get(key)
        for slot in slots:
            guard = slot.guard
            if guard is not None and (key in record or not guard.is_filled) and not _fits(slot, guard, value):
                yield FixedColumnViolation(location, key, slot, guard, value)
            yield from _violations_inside(slot, value, location, key, ())


def _fits(slot: ColumnSlot, guard: FixedColumn, value: JsonDocument) -> bool:
    if not guard.takes_values:
        return value is None
    # A value that cannot be converted would leave the column null, which NOT NULL forbids just as a missing value.
    if value is None or (guard.is_required and to_cell(slot, value) is MISSING):
        return not guard.is_required
    # The fields of a record have their own routes and are checked there.
    return _holds_leaves(slot, value) if slot.record is None else _are_records(value, slot.dim)


def _holds_leaves(slot: ColumnSlot, value: JsonDocument, dim: int = 0) -> bool:
    """Return whether a column without fields holds every scalar of a value; what is empty may become null (D19)."""
    if not has_leaf(value):
        return True
    if isinstance(value, list):
        return all(_holds_leaves(slot, item, dim + 1) for item in value)
    if isinstance(value, MapEntries) and slot.entries is not None and slot.dim >= dim:
        entries = slot.entries
        return all(
            _holds_leaves(entries, item) if entries.record is None else is_fully_stored((entries,), item)
            for item in value.values()
        )
    return is_fully_stored((slot,), value, dim)


def _are_records(value: JsonDocument, dim: int) -> bool:
    """Return whether a value is a record or an array of records, regardless of their fields."""
    if isinstance(value, list):
        return dim > 0 and all(_are_records(item, dim - 1) for item in value)
    return value is None or isinstance(value, dict)


def _violations_inside(
    slot: ColumnSlot, value: JsonDocument, location: RecordLocation, key: str, maps: tuple[int, ...], dim: int = 0
) -> Iterator[FixedColumnViolation]:
    if isinstance(value, list):
        for item in value:
            yield from _violations_inside(slot, item, location, key, maps, dim + 1)
    elif isinstance(value, MapEntries) and slot.entries is not None:
        for item in value.values():
            yield from _violations_inside(slot.entries, item, location, key, (*maps, dim))
    elif isinstance(value, dict) and slot.record is not None:
        yield from find_violations(slot.record, value, (*location, (key, (*maps, dim))))


# Texts of records for the quarantine and the column of corrupt records, without masked and excluded values.
#
# A text that is not a record has no fields, so only the whole text can be hidden.
#
# Source: docs/evolution-rules.md#d11, #d13


_QUOTED_KEY = re.compile("the key .*(?= appears twice)", re.DOTALL)


class Redactor:
    """Hides values that the policy masks or excludes.

    Args:
        schema: The columns of the table: where they are maps, the keys of objects are not names of fields.
    """

    def __init__(self, policy: Policy, schema: StructType | None = None) -> None:
        self._rules, self._allows_nan = (
            build_field_rules(schema or StructType(), policy, keeps_forms=True),
            policy.allows_nan,
        )
        self._redacted_paths = ", ".join(sorted(map(format_path, policy.excluded | policy.masked)))
        if policy.included is not None:
            self._redacted_paths = "fields that are not loaded"

    def redact_corrupt(self, text: bytes) -> str:
        """Return a text that is not a record as the table may keep it: unchanged, or only its length."""
        if self._redacted_paths:
            # Without fields, nothing says which part of the text is the masked value.
            return f"{MASK} {len(text)} bytes that may hold {self._redacted_paths}"
        return corrupt_bytes_to_text(text)

    def redact_reason(self, invalid: InvalidJson) -> str:
        """Return why a text is not JSON, without the keys that it quotes: a key of a map may be a hidden value."""
        return _QUOTED_KEY.sub("a key", invalid.reason) if self._redacted_paths else invalid.reason

    def redact_record(self, record: dict[str, JsonDocument], text: bytes | None) -> str:
        """Return the text of a record as the table may keep it.

        Args:
            text: The text that it was parsed from; None if that text has other records or lacks fields.
        """
        if text is None or self._redacted_paths:
            return document_to_json(self._rules.record(record))
        return text.decode()

    def redact_text(self, text: bytes) -> str:
        """Return the text of a record as the table may keep it."""
        document = parse_document(text, allows_nan=self._allows_nan) if self._redacted_paths else None
        return self.redact_record(document, text) if isinstance(document, dict) else text.decode()


# Routes: the columns that the values of each source field go to, from the schema of the table alone.
#
# Source: docs/evolution-rules.md#u14, #u16, #d4, #d9


@dataclass(frozen=True, slots=True)
class ColumnSlot:
    """A column that values of a source field go to.

    Args:
        name: Name of the column in its struct.
        word: Kind word of the leaf type; also ``timestamp_ntz`` and ``map``.
        dim: Number of arrays around the leaf type.
        entries: The slot of the values, for maps; it has the name of the column.
        epoch_unit: The unit of integers, for timestamps, if the policy names one.
        holds_epochs: Whether integers that the column holds need no other one; see `Policy.reads_epochs`.
        takes_integral: Whether it takes numbers such as 1.0 as integers.
        rounds: The kinds whose values a double column rounds if it cannot hold them.
    """

    name: str
    word: str
    dim: int
    type: DataType
    record: RecordRoute | None = None
    entries: ColumnSlot | None = None
    epoch_unit: EpochUnit | None = None
    guard: FixedColumn | None = None
    keeps_booleans: bool = False
    rounds: frozenset[str] = frozenset()
    holds_epochs: bool = False
    takes_integral: bool = False


RecordRoute: TypeAlias = dict[str, tuple[ColumnSlot, ...]]
"""For each key of a record its columns in order: records first, then few arrays, then narrow types."""


def build_routes(schema: StructType, policy: Policy | None = None) -> RecordRoute:
    """Return the route of a record, at all depths.

    Columns without a source field are left out, as are columns with a type that no value has, such as variant.

    Source: docs/evolution-rules.md#u14, #d9
    """
    source_columns = StructType(tuple(field for field in schema if role_of(field) is None))
    return _RouteBuilder(policy or Policy()).record(source_columns, (), ())


def routes_kind(slot: ColumnSlot, kind: Kind) -> bool:
    """Return whether the values of a kind go to a column: it has the same or a wider type, and at least as many arrays.

    Values that the column cannot hold exactly are null in it and stand in another column.

    Source: docs/evolution-rules.md#u14, #u16, #d4
    """
    return kind.dim <= slot.dim and can_route(slot.type, kind.word) and not is_excluded_kind(slot, kind.word)


def is_excluded_kind(slot: ColumnSlot, kind_word: str) -> bool:
    """Return whether a column takes no values of a kind although its type could hold them.

    Source: docs/evolution-rules.md#d18
    """
    return slot.keeps_booleans and is_boolean_as_number(slot.type, kind_word)


def stores_kind(slot: ColumnSlot, kind_word: str) -> bool:
    """Return whether a column that holds a value of a kind is enough, so that the value needs no other column.

    A timestamp is not enough for a long, which another column or the rescue column keeps. Only a fixed column may hold
    it alone, if the policy names its unit: it then converts back.

    Source: docs/evolution-rules.md#u16, #d5, #d12
    """
    has_known_unit = slot.guard is not None and slot.epoch_unit is not None
    return not is_excluded_kind(slot, kind_word) and (has_known_unit or not is_epoch(slot.type, kind_word))


@dataclass(frozen=True, slots=True)
class _RouteBuilder:
    """Builds routes by the policy of single fields and columns."""

    policy: Policy

    def record(self, struct: StructType, path: Path, source: Path) -> RecordRoute:
        """Return the route of the records in a struct, given its path and the path of its source field."""
        slots_by_key: dict[str, list[ColumnSlot]] = {}
        for field in struct:
            key = source_key(field)
            slot = self._slot(field.name, field.type, (*path, field.name), (*source, key))
            if slot is not None:
                slots_by_key.setdefault(key, []).append(slot)
        return {
            key: tuple(map(self._with_rounding(slots), sorted(slots, key=_slot_order)))
            for key, slots in slots_by_key.items()
        }

    def _with_rounding(self, slots: Sequence[ColumnSlot]) -> Callable[[ColumnSlot], ColumnSlot]:
        """Return a function that lets a column of doubles round, if the policy and the other columns allow it."""
        rounds = rounded_kinds(slot.type for slot in slots if self.policy.numbers is Numbers.DOUBLE)
        return lambda slot: replace(slot, rounds=rounds) if rounds and slot.type == DOUBLE else slot

    def _slot(self, name: str, data_type: DataType, path: Path, source: Path) -> ColumnSlot | None:
        leaf, dim = leaf_and_dim(data_type)
        inside = (*path, *[ELEMENT] * dim)
        guard = self.policy.fixed_columns.get(path)
        match leaf:
            case StructType():
                record = self.record(leaf, inside, source)
                return ColumnSlot(name, word_of(leaf) or "", dim, leaf, record, guard=guard)
            case MapType(key, value):
                entries = self._slot(name, value, (*inside, VALUE), source) if key == STRING else None
                return entries and ColumnSlot(name, MAP_WORD, dim, leaf, entries=entries, guard=guard)
        word = word_of(leaf)
        if word is None:
            return None
        keeps_booleans = self.policy.keeps_booleans(source)
        holds_epochs = data_type == TIMESTAMP and self.policy.reads_epochs(source)
        unit = self._unit(word, source)
        integral = self.policy.takes_integral and word in (INT_WORD, LONG_WORD, TIMESTAMP_WORD)
        return ColumnSlot(
            *(name, word, dim, leaf, None, None, unit, guard, keeps_booleans),
            holds_epochs=holds_epochs,
            takes_integral=integral,
        )

    def _unit(self, word: str, source: Path) -> EpochUnit | None:
        return self.policy.epoch_units.get(source) if word == TIMESTAMP_WORD else None


def _slot_order(slot: ColumnSlot) -> tuple[Any, ...]:
    return (*column_sort_key(slot.type, slot.dim), *(_slot_order(slot.entries) if slot.entries else ()))


# Conversions of values to column values, as a table: exact or not at all.
#
# If a conversion would not give the source value back, the result is `MISSING`. The column is then NULL for the value,
# and another column of the field holds it.
#
# Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5


MISSING: Final = object()
"""The column cannot hold this value exactly."""

_BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Never rounds. Arrow misreads a decimal with thousands of trailing zeros, so quantize cuts them off."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_0 = _EPOCH.date()
EPOCH_UNIT_LIMITS = (
    (10**11, EpochUnit.SECONDS),
    (10**14, EpochUnit.MILLISECONDS),
    (10**17, EpochUnit.MICROSECONDS),
)
"""The upper bounds of integers that count seconds, ms or µs since 1970; integers above the last one count ns."""


def word_of_value(value: JsonDocument) -> str:
    """Return the kind word of a scalar: boolean, long, double, decimal, date, timestamp, timestamp_ntz or string."""
    return scalar_kind(value)[0]


def convert(
    value: JsonDocument, word: str, to_word: str, to_type: DataType, epoch_unit: EpochUnit | None = None
) -> Any:
    """Return the column value of a scalar, or `MISSING`.

    Args:
        value: A string, a boolean, or a number as its token.
        to_type: Type of the column without arrays.
        epoch_unit: Unit of an integer that goes to a timestamp; None to infer it from the magnitude.

    Returns:
        A value that pyarrow accepts for the type: int, float, bool, str, Decimal, a date or a UTC datetime.

    Source: docs/evolution-rules.md#lattice, #d2, #d3, #d5
    """
    if epoch_unit is not None and (word, to_word) == (LONG_WORD, TIMESTAMP_WORD):
        return epoch_to_timestamp(int(value), epoch_unit)
    conversion = CONVERSIONS.get((word, to_word))
    return MISSING if conversion is None else conversion(value, to_type)


def epoch_to_timestamp(number: int, unit: EpochUnit | None = None) -> Any:
    """Return the UTC timestamp that an integer counts to, or `MISSING` if no timestamp is equal to it.

    Args:
        number: Time since 1970-01-01.

    Source: docs/evolution-rules.md#d5
    """
    unit = unit or next((unit for limit, unit in EPOCH_UNIT_LIMITS if abs(number) < limit), EpochUnit.NANOSECONDS)
    moment = count_to_moment(number, unit.nanos)
    return MISSING if moment is None else moment.replace(tzinfo=timezone.utc)


def _identity(value: JsonDocument, _: DataType) -> Any:
    return value


def _to_text(value: JsonDocument, _: DataType) -> str:
    return spelling_of(value)


def _boolean_to_text(value: JsonDocument, _: DataType) -> str:
    return "true" if value else "false"


def _boolean_to_number(value: JsonDocument, to_type: DataType) -> Any:
    return _to_number(JsonNumber("1" if value else "0"), to_type)


def _to_number(value: JsonDocument, to_type: DataType) -> Any:
    if isinstance(to_type, DecimalType):
        return _to_decimal(value, to_type)
    if str(to_type) in _BITS:
        number, half = int(value), 2 ** (_BITS[str(to_type)] - 1)
        return number if -half <= number < half else MISSING
    return _to_double(value, to_type)


def _double_to_double(value: JsonDocument, to_type: DataType) -> Any:
    return float(value) if str(to_type) == "double" else _to_double(value, to_type)


def _to_double(value: JsonDocument, to_type: DataType) -> Any:
    number = float(value)
    if str(to_type) == "float":
        # Python's repr of a float is the text of the double, so only equal binary values count.
        is_exact = not math.isfinite(number) or (is_float32(number) and Decimal(value) == Decimal(number))
        return number if is_exact else MISSING
    # A double is compared by its shortest text, because that is what reading the column back gives: 0.1 then counts as
    # exact.
    return number if Decimal(repr(number)) == Decimal(value) else MISSING


def _to_decimal(value: JsonDocument, to_type: DecimalType) -> Any:
    number = Decimal(value)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return MISSING  # NaN, Infinity
    if number == 0:
        # A decimal has no negative zero. The integer -0 counts as 0, as in a column of longs.
        return MISSING if number.is_signed() and not value[1:].isdecimal() else Decimal(0)
    # Zeros at the end do not count: 2.500 fits a decimal(2,1).
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    fits = number.adjusted() + 1 <= to_type.precision - to_type.scale and exponent + trailing >= -to_type.scale
    return number.quantize(Decimal(1).scaleb(-to_type.scale), context=_EXACT) if fits else MISSING


def _to_timestamp(value: JsonDocument, _: DataType) -> Any:
    return epoch_to_timestamp(int(value))


def _to_date(value: JsonDocument, _: DataType) -> date:
    return parse_date(value)


def _to_midnight_utc(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time(), timezone.utc)


def _to_local_midnight(value: JsonDocument, _: DataType) -> datetime:
    return datetime.combine(parse_date(value), time())


def _to_instant(value: JsonDocument, _: DataType) -> datetime:
    return parse_instant(value)


def _to_local_time(value: JsonDocument, _: DataType) -> datetime:
    return parse_local_time(value)


def _to_epoch_days(value: JsonDocument, to_type: DataType) -> Any:
    days = (parse_date(value) - _DAY_0).days
    return _to_number(JsonNumber(days), to_type) if can_route(to_type, DATE_WORD) else MISSING


def _to_epoch_ms(value: JsonDocument, to_type: DataType) -> Any:
    if isinstance(value, EpochNumber):
        return _to_number(JsonNumber(value), to_type) if can_route(to_type, TIMESTAMP_WORD) else MISSING
    ms, rest = divmod(parse_instant(value) - _EPOCH, timedelta(milliseconds=1))
    return MISSING if rest or not can_route(to_type, TIMESTAMP_WORD) else _to_number(JsonNumber(ms), to_type)


Conversion: TypeAlias = Callable[[JsonDocument, DataType], Any]
"""Takes a value and the type of the column; returns the column value or `MISSING`."""

CONVERSIONS: Mapping[tuple[str, str], Conversion] = (
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): _identity,
        (BOOLEAN_WORD, STRING_WORD): _boolean_to_text,
        (STRING_WORD, STRING_WORD): _to_text,
        (LONG_WORD, TIMESTAMP_WORD): _to_timestamp,
        (DATE_WORD, DATE_WORD): _to_date,
        (DATE_WORD, TIMESTAMP_WORD): _to_midnight_utc,
        (DATE_WORD, NTZ_WORD): _to_local_midnight,
        (TIMESTAMP_WORD, TIMESTAMP_WORD): _to_instant,
        (NTZ_WORD, NTZ_WORD): _to_local_time,
    }
    | {(DATE_WORD, to): _to_epoch_days for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(TIMESTAMP_WORD, to): _to_epoch_ms for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(BOOLEAN_WORD, to): _boolean_to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(LONG_WORD, to): _to_number for to in (INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, to): _to_number for word in (DOUBLE_WORD, DECIMAL_WORD) for to in (DOUBLE_WORD, DECIMAL_WORD)}
    | {(DOUBLE_WORD, DOUBLE_WORD): _double_to_double}
    | {(word, STRING_WORD): _to_text for word in (LONG_WORD, DOUBLE_WORD, DECIMAL_WORD)}
    | {(word, STRING_WORD): _to_text for word in (DATE_WORD, TIMESTAMP_WORD, NTZ_WORD)}
)
"""The conversion for each kind of value and kind of column. Other pairs have no conversion."""


# Values of an evolved column in another column of the same field: exactly or not at all.
#
# ``"007"`` never becomes 7: the number would not give the text back.
#
# Source: docs/evolution-rules.md#d2


FITS, DUPLICATE, STAYS = "fits", "duplicate", "stays"
"""Outcomes for a value: it fits the other column, the other column has it already, or it stays."""

_NUMBERS = frozenset({INT_WORD, *NUMBER_WORDS})
_TEMPORAL = frozenset({DATE_WORD, TIMESTAMP_WORD, NTZ_WORD})
_TARGETS_OF_TEXT: Mapping[str, frozenset[str]] = {
    BOOLEAN_WORD: frozenset({BOOLEAN_WORD}),
    DATE_WORD: _TEMPORAL,
    TIMESTAMP_WORD: _TEMPORAL,
} | dict.fromkeys((LONG_WORD, DOUBLE_WORD, DECIMAL_WORD), _NUMBERS)
"""For each kind that a text may express: the columns that it goes to. A text that is a date is not a number of days."""


def judge_fold(value: Any, type: DataType, old: Any, into: DataType) -> tuple[str, Any]:
    """Return the outcome for a value, and the value that the other column then holds."""
    (leaf, dim), (to_leaf, to_dim) = leaf_and_dim(type), leaf_and_dim(into)
    new = _convert_back(value, (leaf, dim), (to_leaf, to_dim))
    if new is MISSING:
        return STAYS, old
    if old is None:
        return FITS, new
    return (DUPLICATE if _is_same(new, old) else STAYS), old


def _convert_back(value: Any, old_type: tuple[DataType, int], new_type: tuple[DataType, int]) -> Any:
    (leaf, dim), (to_leaf, to_dim) = old_type, new_type
    if value is None:
        return None
    if to_dim and dim:
        items = [_convert_back(item, (leaf, dim - 1), (to_leaf, to_dim - 1)) for item in value]
        return MISSING if any(item is MISSING for item in items) else items
    if to_dim:
        item = _convert_back(value, old_type, (to_leaf, to_dim - 1))
        return item if item is MISSING else [item]
    if dim:
        # Only a scalar that was wrapped when it was written comes back; an array of several items was an array in the
        # source.
        is_one = len(value) == 1 and value[0] is not None
        return _convert_back(value[0], (leaf, dim - 1), new_type) if is_one else MISSING
    return _convert_scalar(value, leaf, to_leaf)


def _convert_scalar(value: Any, leaf: DataType, to_leaf: DataType) -> Any:
    document = _parse_text(value) if leaf == STRING and to_leaf != STRING else _to_document(value)
    if document is MISSING:
        return MISSING
    word, to_word = word_of_value(document), word_of(to_leaf) or str(to_leaf)
    if leaf == STRING and to_leaf != STRING and to_word not in _TARGETS_OF_TEXT.get(word, ()):
        return MISSING
    return convert(document, word, to_word, to_leaf)


def _parse_text(text: str) -> JsonDocument:
    """Return the value of a text that is exactly what JSON would write for it, or that is a date or a timestamp."""
    document = parse_document(text.encode("utf-8", "surrogatepass"))
    if isinstance(document, bool):
        return document if text == str(document).lower() else MISSING
    if isinstance(document, JsonNumber):
        return document if text == document else MISSING
    temporal = parse_temporal(text)
    return MISSING if type(temporal) is str else temporal


def _to_document(value: Any) -> JsonDocument:
    match value:
        case bool() | str():
            return value
        case float() if not math.isfinite(value):
            return MISSING
        # A whole number is an integer to JSON, in any column. Zero is left out, because -0.0 must keep its sign.
        case float() | Decimal() if value and value == int(value):
            return JsonNumber(int(value))
        case float():
            return JsonNumber(repr(value))
        case Decimal():
            return JsonNumber(format(value, "f"))
        case date():
            return parse_temporal(value.isoformat())
    return JsonNumber(value)


def _is_same(new: Any, old: Any) -> bool:
    if isinstance(new, list):
        return len(new) == len(old) and all(map(_is_same, new, old))
    if isinstance(new, datetime):
        # PySpark gives timestamps without a zone, in local time, and `convert` in UTC, so only the instants can be
        # compared.
        return isinstance(old, datetime) and new.timestamp() == old.timestamp()
    return bool(new == old)
