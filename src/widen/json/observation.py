"""Observations: the values of a batch, counted by kind, and how records are observed. Observations merge in any order.

Source: docs/evolution-rules.md#observe, #d7, #d8, #d10
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from widen.json.document import DateText, JsonDocument, JsonNumber, LocalTimeText, MapEntries, TimestampText
from widen.json.kinds import (
    BINARY_WORD,
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    LONG_WORD,
    MAP_WORD,
    MAX_DIGITS,
    NO_FACTS,
    NTZ_WORD,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
    ValueFacts,
    number_kind,
    parse_kind,
    timestamp_facts,
    written_scale,
)
from widen.model.column_path import Path
from widen.model.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from widen.model.value_classes import dataclass

RecordPosition: TypeAlias = tuple[str, int]
"""The position of a record: the file, and its number in the file, from 1."""

SAMPLE_CHARS = 80
"""The maximum length of a sample."""

_Key = TypeVar("_Key")

Combine: TypeAlias = Callable[[int, int], int]
"""Combines the counts of two observations."""


class KindObservation(msgspec.Struct, omit_defaults=True):
    """The values of one kind: how many, and what is true of all of them.

    Args:
        integer_digits: The most digits before the point.
        scale: The most digits after the point.
        exact_double: Every value reads back the same from a double.
        decimal_exact: A decimal of up to 38 digits represents every value exactly.
        epoch_ms_exact: A whole number of milliseconds represents every value exactly.
        written_scale: The most digits after the point as written, trailing zeros included; 0 if not known.
        type: The type that the source declares, as SQL; empty if it declares none, or several.
        first: The position of the first value, ordered by file name and number.
        sample: The first value as text, cut to `SAMPLE_CHARS`.
        inexact: The number of values that do not read back the same from a double.
    """

    count: int = 0
    integer_digits: int = 0
    scale: int = 0
    fits_int32: bool = True
    exact_double: bool = True
    decimal_exact: bool = True
    epoch_ms_exact: bool = True
    written_scale: int = 0
    type: str = ""
    first: RecordPosition | None = None
    sample: str = ""
    inexact: int = 0

    def add(self, facts: ValueFacts, position: RecordPosition, sample: str, count: int = 1) -> None:
        """Count a value, or several with the same facts, position and sample, in place."""
        self.count += count
        self.integer_digits = max(self.integer_digits, facts.integer_digits)
        self.scale = max(self.scale, facts.scale)
        self.fits_int32 &= facts.fits_int32
        self.exact_double &= facts.exact_double
        self.inexact += 0 if facts.exact_double else count
        self.decimal_exact &= facts.decimal_exact
        self.epoch_ms_exact &= facts.epoch_ms_exact
        if self.first is None or position < self.first:
            self.first, self.sample = position, sample[:SAMPLE_CHARS]

    def merged(self, other: KindObservation, combine: Combine = operator.add) -> KindObservation:
        """Return the observation of the values of both."""
        first, sample = _first_sample(self, other)
        return KindObservation(
            count=combine(self.count, other.count),
            integer_digits=max(self.integer_digits, other.integer_digits),
            scale=max(self.scale, other.scale),
            fits_int32=self.fits_int32 and other.fits_int32,
            exact_double=self.exact_double and other.exact_double,
            decimal_exact=self.decimal_exact and other.decimal_exact,
            epoch_ms_exact=self.epoch_ms_exact and other.epoch_ms_exact,
            written_scale=max(self.written_scale, other.written_scale),
            type=self._common_type(other),
            first=first,
            sample=sample,
            inexact=combine(self.inexact, other.inexact),
        )

    def _common_type(self, other: KindObservation) -> str:
        if self.type == other.type or other == _NO_VALUES:
            return self.type
        return other.type if self == _NO_VALUES else _wider_decimal(self.type, other.type)


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)").fullmatch


def _wider_decimal(one: str, other: str) -> str:
    """Return the decimal that holds the values of two; empty for other types, or if it has more than 38 digits."""
    types = [(int(found[1]), int(found[2])) for found in map(_DECIMAL, (one, other)) if found]
    if len(types) < 2:
        return ""
    scale = max(scale for _, scale in types)
    precision = max(precision - scale for precision, scale in types) + scale
    return DecimalType(precision, scale).sql if precision <= MAX_DIGITS else ""


class FieldObservation(msgspec.Struct, omit_defaults=True):
    """The values of a field by kind, and those without a kind: nulls and empty arrays and records.

    Args:
        nulls: The number of nulls by dim, the number of arrays that contain them; 0 is the field itself.
        empty: The number of empty arrays by dim: ``[]`` is 1, ``[[]]`` is 2.
        empty_records: The number of ``{}`` by dim.
        kinds: The values by kind; a record with at least one key counts as a record.
        records: The nested fields of the records by dim.
        maps: The values of the maps, for all keys together, by dim.
    """

    nulls: dict[int, int] = {}
    empty: dict[int, int] = {}
    empty_records: dict[int, int] = {}
    kinds: dict[Kind, KindObservation] = {}
    records: dict[int, dict[str, FieldObservation]] = {}
    maps: dict[int, FieldObservation] = {}

    def kind(self, kind: Kind) -> KindObservation:
        """Return the mutable observation of a kind; the first call creates it."""
        observed = self.kinds.get(kind)
        if observed is None:
            observed = self.kinds[kind] = KindObservation()
        return observed

    def record(self, dim: int) -> RecordObservation:
        """Return the mutable observation of the records of a dim; the first call creates it."""
        return self.records.setdefault(dim, {})

    def entries(self, dim: int) -> FieldObservation:
        """Return the mutable observation of the map values of a dim; the first call creates it."""
        return self.maps.setdefault(dim, FieldObservation())

    def merged(self, other: FieldObservation, combine: Combine = operator.add) -> FieldObservation:
        """Return the observation of the values of both."""
        return FieldObservation(
            nulls=_combine(self.nulls, other.nulls, combine),
            empty=_combine(self.empty, other.empty, combine),
            empty_records=_combine(self.empty_records, other.empty_records, combine),
            kinds={
                kind: self.kinds.get(kind, _NO_VALUES).merged(other.kinds.get(kind, _NO_VALUES), combine)
                for kind in _keys(self.kinds, other.kinds)
            },
            records={
                dim: merge_records(self.records.get(dim, {}), other.records.get(dim, {}), combine)
                for dim in _keys(self.records, other.records)
            },
            maps={
                dim: self.maps.get(dim, _NO_FIELD).merged(other.maps.get(dim, _NO_FIELD), combine)
                for dim in _keys(self.maps, other.maps)
            },
        )


RecordObservation: TypeAlias = dict[str, FieldObservation]
"""The observations of the fields of a record, by key."""

_NO_VALUES, _NO_FIELD = KindObservation(), FieldObservation()


class Observation(msgspec.Struct, omit_defaults=True):
    """The records and values of a batch. ``Observation()`` is the empty batch; merging is commutative and associative.

    `widen.json.observation` fills an observation in place through `get_field`, `FieldObservation.kind` and
    `FieldObservation.record`. After that it does not change.

    Args:
        quarantined: The number of records that go to the quarantine instead of the table.
        quarantined_records: Why records go to the quarantine: their values that do not fit fixed columns.
        excluded_seen: The paths of excluded fields that the source has; the observation does not contain them.
        not_objects: How many of the corrupt texts are JSON, but not an object, such as ``5`` or ``[1]``.
        unclosed: The position of the first corrupt text that begins a record over several lines; None without such a
            text.
        first_corrupt: The position of the first corrupt text.
        corrupt_reason: Which kind of record that is not, and why.
        matched: The paths of names that stand for a field of another name; see `widen.schema.field_names`.
        apart: The paths of names that records have beside the same name in another case.
        unavailable: How many values the source did not send, by field: the change has left them as they were.
    """

    records: int = 0
    corrupt: int = 0
    root: dict[str, FieldObservation] = {}
    quarantined: int = 0
    quarantined_records: dict[str, FieldObservation] = {}
    excluded_seen: list[list[str]] = []
    not_objects: int = 0
    unclosed: RecordPosition | None = None
    first_corrupt: RecordPosition | None = None
    corrupt_reason: str = ""
    matched: list[list[str]] = []
    apart: list[list[str]] = []
    unavailable: dict[str, int] = {}

    def merged(self, other: Observation, combine: Combine = operator.add) -> Observation:
        """Return the observation of both.

        Args:
            combine: Combines the counts: ``add`` for two parts of a batch, ``max`` for two observations of one batch.
        """
        firsts = [(each.first_corrupt, each.corrupt_reason) for each in (self, other) if each.first_corrupt]
        first_corrupt, reason = min(firsts, default=(None, ""))
        return Observation(
            combine(self.records, other.records),
            combine(self.corrupt, other.corrupt),
            merge_records(self.root, other.root, combine),
            combine(self.quarantined, other.quarantined),
            merge_records(self.quarantined_records, other.quarantined_records, combine),
            _merge_paths(self.excluded_seen, other.excluded_seen),
            combine(self.not_objects, other.not_objects),
            min(filter(None, (self.unclosed, other.unclosed)), default=None),
            first_corrupt,
            reason,
            _merge_paths(self.matched, other.matched),
            _merge_paths(self.apart, other.apart),
            {
                name: combine(self.unavailable.get(name, 0), other.unavailable.get(name, 0))
                for name in sorted({*self.unavailable, *other.unavailable})
            },
        )

    def to_json(self) -> bytes:
        """Return the observation as JSON, so that tasks can send it to the driver."""
        return _encoder.encode(self)


def merge_observations(parts: Iterable[Observation]) -> Observation:
    """Return the observation of all parts together; their order does not matter."""
    total = Observation()
    for part in parts:
        total = total.merged(part)
    return total


def merge_records(
    left: RecordObservation, right: RecordObservation, combine: Combine = operator.add
) -> RecordObservation:
    """Return the observation of the records of both, sorted by key.

    A field that only one of them has is shared with the result: where keys are data, nearly all are such fields.
    """
    merged = {}
    for key in _keys(left, right):
        one, other = left.get(key), right.get(key)
        merged[key] = one.merged(other, combine) if one and other else one or other or _NO_FIELD
    return merged


def covers(known: RecordObservation, seen: RecordObservation) -> bool:
    """Return whether a plan that knows one observation would not change with another; counts do not matter."""
    return all(key in known and _covers_field(known[key], field) for key, field in seen.items())


def _covers_field(known: FieldObservation, seen: FieldObservation) -> bool:
    pairs = ((known.nulls, seen.nulls), (known.empty, seen.empty), (known.empty_records, seen.empty_records))
    return (
        all(old.keys() >= new.keys() for old, new in pairs)
        and all(kind in known.kinds and _covers_facts(known.kinds[kind], each) for kind, each in seen.kinds.items())
        and all(dim in known.records and covers(known.records[dim], each) for dim, each in seen.records.items())
        and all(dim in known.maps and _covers_field(known.maps[dim], each) for dim, each in seen.maps.items())
    )


def _covers_facts(known: KindObservation, seen: KindObservation) -> bool:
    return (
        seen.integer_digits <= known.integer_digits
        and seen.scale <= known.scale
        and seen.written_scale <= known.written_scale
        and seen.fits_int32 >= known.fits_int32
        and seen.exact_double >= known.exact_double
        and seen.decimal_exact >= known.decimal_exact
        and seen.epoch_ms_exact >= known.epoch_ms_exact
        and known.type in (seen.type, "")
    )


def get_field(record: RecordObservation, key: str) -> FieldObservation:
    """Return the mutable observation of a field; the first call creates it."""
    field = record.get(key)
    if field is None:
        field = record[key] = FieldObservation()
    return field


def records_in(field: FieldObservation) -> Iterator[RecordObservation]:
    """Yield the observations of the records of a field, also of records in its maps."""
    yield from field.records.values()
    for entries in field.maps.values():
        yield from records_in(entries)


def position_text(position: RecordPosition) -> str:
    """Return the position of a record as ``file:number``."""
    return f"{position[0]}:{position[1]}"


def observation_from_json(data: bytes) -> Observation:
    """Return the observation from the JSON of `Observation.to_json`."""
    wire = _decoder.decode(data)
    fields = {"root": _from_wire(wire.root), "quarantined_records": _from_wire(wire.quarantined_records)}
    return Observation(**{**msgspec.structs.asdict(wire), **fields})


def _first_sample(left: KindObservation, right: KindObservation) -> tuple[RecordPosition | None, str]:
    located = [(each.first, each.sample) for each in (left, right) if each.first is not None]
    return min(located) if located else (None, min(filter(None, (left.sample, right.sample)), default=""))


def _keys(left: Mapping[_Key, Any], right: Mapping[_Key, Any]) -> list[_Key]:
    return sorted(left.keys() | right.keys())  # type: ignore[type-var]


def _merge_paths(left: list[list[str]], right: list[list[str]]) -> list[list[str]]:
    return sorted(map(list, {tuple(path) for path in (*left, *right)})) if left and right else left or right


def _combine(left: Mapping[int, int], right: Mapping[int, int], combine: Combine) -> dict[int, int]:
    return {key: combine(left.get(key, 0), right.get(key, 0)) for key in _keys(left, right)}


class _FieldWire(msgspec.Struct):
    """A `FieldObservation` in JSON: kinds are text, since the keys of JSON objects are strings."""

    nulls: dict[int, int] = {}
    empty: dict[int, int] = {}
    empty_records: dict[int, int] = {}
    kinds: dict[str, KindObservation] = {}
    records: dict[int, dict[str, _FieldWire]] = {}
    maps: dict[int, _FieldWire] = {}


class _ObservationWire(msgspec.Struct):
    """An `Observation` in JSON."""

    records: int = 0
    corrupt: int = 0
    root: dict[str, _FieldWire] = {}
    quarantined: int = 0
    quarantined_records: dict[str, _FieldWire] = {}
    excluded_seen: list[list[str]] = []
    not_objects: int = 0
    unclosed: RecordPosition | None = None
    first_corrupt: RecordPosition | None = None
    corrupt_reason: str = ""
    matched: list[list[str]] = []
    apart: list[list[str]] = []
    unavailable: dict[str, int] = {}


def _from_wire(record: dict[str, _FieldWire]) -> RecordObservation:
    return {key: _field_from_wire(field) for key, field in record.items()}


def _field_from_wire(field: _FieldWire) -> FieldObservation:
    return FieldObservation(
        field.nulls,
        field.empty,
        field.empty_records,
        {parse_kind(text): observed for text, observed in field.kinds.items()},
        {dim: _from_wire(inner) for dim, inner in field.records.items()},
        {dim: _field_from_wire(inner) for dim, inner in field.maps.items()},
    )


_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(_ObservationWire)


# Observing the records of a batch.


def observe_record(fields: RecordObservation, record: dict[str, JsonDocument], position: RecordPosition) -> None:
    """Count the values of a record by field, at any depth.

    Source: docs/evolution-rules.md#one-interval
    """
    for key, value in record.items():
        observe_value(get_field(fields, key), value, position)


def observe_value(field: FieldObservation, value: JsonDocument, position: RecordPosition, dim: int = 0) -> None:
    """Count a value of a field and its nested values.

    Args:
        value: The value; numbers are tokens.

    Source: docs/evolution-rules.md#d7, #d8
    """
    match value:
        case None:
            field.nulls[dim] = field.nulls.get(dim, 0) + 1
        case list():
            _observe_array(field, value, dim + 1, position)
        case dict():
            _observe_object(field, value, dim, position)
        case _:
            word, facts = scalar_kind(value)
            sample = value if isinstance(value, str) else "true" if value else "false"
            observed = field.kind(_kind(word, dim))
            observed.add(facts, position, sample)
            if isinstance(value, JsonNumber) and "." in value:
                observed.written_scale = max(observed.written_scale, written_scale(value))


def scalar_kind(value: str | bool) -> tuple[str, ValueFacts]:
    """Return the kind word and the facts of a scalar."""
    match value:
        case JsonNumber():
            return number_kind(value)
        case DateText():
            return DATE_WORD, NO_FACTS
        case TimestampText():
            return TIMESTAMP_WORD, timestamp_facts(value)
        case LocalTimeText():
            return NTZ_WORD, NO_FACTS
        case str():
            return STRING_WORD, NO_FACTS
    return BOOLEAN_WORD, NO_FACTS


def _observe_array(field: FieldObservation, items: list[JsonDocument], dim: int, position: RecordPosition) -> None:
    if not items:
        field.empty[dim] = field.empty.get(dim, 0) + 1
    for item in items:
        observe_value(field, item, position, dim)


def _observe_object(
    field: FieldObservation, record: dict[str, JsonDocument], dim: int, position: RecordPosition
) -> None:
    if not record:
        field.empty_records[dim] = field.empty_records.get(dim, 0) + 1
        return
    if isinstance(record, MapEntries):
        field.kind(_kind(MAP_WORD, dim)).add(NO_FACTS, position, "{…}")
        for value in record.values():
            observe_value(field.entries(dim), value, position)
        return
    field.kind(_kind(RECORD_WORD, dim)).add(NO_FACTS, position, "{…}")
    observe_record(field.record(dim), record, position)


_kind = cache(Kind)


def observation_signature(observation: Observation) -> object:
    """Return the part of an observation that a plan depends on: equal signatures lead to equal plans.

    The signature has no counts, positions and samples, but it has whether there are corrupt records.
    """
    fields = _signature(observation.root), _signature(observation.quarantined_records)
    return bool(observation.corrupt), len(observation.apart), *fields


def _signature(record: RecordObservation) -> tuple[object, ...]:
    return tuple((key, *_field_signature(field)) for key, field in sorted(record.items()))


def _field_signature(field: FieldObservation) -> tuple[object, ...]:
    kinds = tuple(sorted((kind, _facts(observed)) for kind, observed in field.kinds.items()))
    records = tuple((dim, _signature(record)) for dim, record in sorted(field.records.items()))
    entries = tuple((dim, _field_signature(inner)) for dim, inner in sorted(field.maps.items()))
    without_kind = tuple(sorted(field.nulls)), tuple(sorted(field.empty)), tuple(sorted(field.empty_records))
    return without_kind, kinds, records, entries


def _facts(observed: KindObservation) -> tuple[object, ...]:
    return tuple(getattr(observed, name) for name in ValueFacts._fields)


# Derive observations from the schema of a typed source, without reading its values.
#
# A type leaves some facts of its values open. `observe_schema` assumes the worst case for them, or the best case.
# If the plan depends on the case, the values have to be observed.
#
# Source: docs/evolution-rules.md#d16


DOUBLE_DIGITS = 15
"""Every decimal with at most this many digits reads back the same from a double."""

_WHOLE = ValueFacts(fits_int32=True, integer_digits=10)

FACTS: Mapping[str, tuple[str, ValueFacts]] = {
    "boolean": (BOOLEAN_WORD, NO_FACTS),
    "byte": (LONG_WORD, _WHOLE._replace(integer_digits=3)),
    "short": (LONG_WORD, _WHOLE._replace(integer_digits=5)),
    "integer": (LONG_WORD, _WHOLE),
    "long": (LONG_WORD, ValueFacts(integer_digits=19, fits_int32=False, exact_double=False)),
    "float": (DOUBLE_WORD, ValueFacts(fits_int32=False, decimal_exact=False)),
    "double": (DOUBLE_WORD, ValueFacts(fits_int32=False, decimal_exact=False)),
    "date": (DATE_WORD, NO_FACTS),
    "timestamp": (TIMESTAMP_WORD, ValueFacts(epoch_ms_exact=False)),
    "timestamp_ntz": (NTZ_WORD, NO_FACTS),
    "string": (STRING_WORD, NO_FACTS),
    "binary": (BINARY_WORD, NO_FACTS),
}
"""The kind word of each atomic type, and the facts that are true of every possible value."""

_BEST_CASE: Mapping[str, Mapping[str, Any]] = {
    LONG_WORD: {"exact_double": True, "integer_digits": 1},
    DECIMAL_WORD: {"exact_double": True},
    TIMESTAMP_WORD: {"epoch_ms_exact": True},
}
"""The best case of the facts that the type leaves open: a wider column represents every value exactly."""


@dataclass(frozen=True)
class TemporalString(AtomicType):
    """The type of strings that are partly read as dates or timestamps; everything else takes it for a string.

    Args:
        has_instants: Whether instants in UTC are read as timestamps.
    """

    name: str = STRING.name
    has_instants: bool = False
    has_local_times: bool = False

    @property
    def types(self) -> tuple[DataType, ...]:
        """What the strings may be read as."""
        return (DATE, *[TIMESTAMP] * self.has_instants, *[TIMESTAMP_NTZ] * self.has_local_times)


def type_facts(leaf: DataType) -> tuple[str, ValueFacts] | None:
    """Return the kind word of a type and the facts of all its values; None for void and unsupported types."""
    match leaf:
        case DecimalType(precision, scale):
            is_short = precision <= DOUBLE_DIGITS
            return DECIMAL_WORD, ValueFacts(precision - scale, scale, fits_int32=False, exact_double=is_short)
        case AtomicType(name):
            return FACTS.get(name)
    return None


def observe_schema(schema: StructType, *, assume_exact: bool = False) -> RecordObservation:
    """Return the observation of records with a schema; all counts are 0.

    Args:
        schema: The schema of the source, without the types that `unknown_types` yields.

    Source: docs/evolution-rules.md#d16
    """
    return {field.name: _field(field.type, assume_exact=assume_exact) for field in schema}


def unknown_types(data_type: DataType, path: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield the nested types without a kind, each with its path.

    Map keys must be scalars other than binary, since they become strings in the table.
    """
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from unknown_types(field.type, (*path, field.name))
        case ArrayType(element):
            yield from unknown_types(element, path)
        case MapType(key, value):
            key_facts = type_facts(key)
            if key_facts is None or key_facts[0] == BINARY_WORD:
                yield path, data_type
            yield from unknown_types(value, path)
        case _ if data_type != VOID and type_facts(data_type) is None:
            yield path, data_type


def _field(data_type: DataType, *, assume_exact: bool) -> FieldObservation:
    field = FieldObservation()
    _add_type(field, data_type, 0, assume_exact=assume_exact)
    return field


def _add_type(field: FieldObservation, data_type: DataType, dim: int, *, assume_exact: bool) -> None:
    match data_type:
        case ArrayType(element):
            _add_type(field, element, dim + 1, assume_exact=assume_exact)
        case StructType():
            field.kinds[Kind(RECORD_WORD, dim)] = KindObservation()
            field.records[dim] = observe_schema(data_type, assume_exact=assume_exact)
        case MapType(_, value):
            field.kinds[Kind(MAP_WORD, dim)] = KindObservation()
            field.maps[dim] = _field(value, assume_exact=assume_exact)
        case _ if data_type == VOID:
            field.nulls[dim] = 1
        case TemporalString():
            # In the best case every string is a date, which each of the columns takes.
            for each in (DATE,) if assume_exact else (*data_type.types, STRING):
                _add_type(field, each, dim, assume_exact=assume_exact)
        case _:
            kind_facts = type_facts(data_type)
            if kind_facts is not None:
                word, facts = kind_facts
                best_case = _BEST_CASE.get(word, {}) if assume_exact else {}
                field.kinds[Kind(word, dim)] = KindObservation(**{**facts._asdict(), **best_case}, type=data_type.sql)
