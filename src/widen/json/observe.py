"""Observe the values of parsed records.

Source: docs/evolution-rules.md#observe, #d7, #d8, #d10
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from widen.json.document import DateText, JsonDocument, JsonNumber, LocalTimeText, MapEntries, TimestampText
from widen.json.kinds import (
    BINARY_WORD,
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    LONG_WORD,
    MAP_WORD,
    NO_FACTS,
    NTZ_WORD,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
    ValueFacts,
    number_kind,
    timestamp_facts,
    written_scale,
)
from widen.json.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    get_field,
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


def observe_record(fields: RecordObservation, record: dict[str, JsonDocument], position: RecordPosition) -> None:
    """Count the values of a record by field, at any depth.

    Args:
        fields: The observation of earlier records; changes in place.
        record: A record from `widen.json.document.parse_document`.

    Source: docs/evolution-rules.md#one-interval
    """
    for key, value in record.items():
        observe_value(get_field(fields, key), value, position)


def observe_value(field: FieldObservation, value: JsonDocument, position: RecordPosition, dim: int = 0) -> None:
    """Count a value of a field and its nested values.

    Args:
        field: The observation of earlier values; changes in place.
        value: The value; numbers are tokens.
        dim: How many arrays contain the value.

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
    return bool(observation.corrupt), _signature(observation.root), _signature(observation.quarantined_records)


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
    """The type of strings some of which are read as dates or timestamps; everything else takes it for a string.

    Args:
        has_instants: Whether instants in UTC are read as timestamps.
        has_local_times: Whether timestamps without a time zone are read as such.
    """

    name: str = STRING.name
    has_instants: bool = False
    has_local_times: bool = False

    @property
    def types(self) -> tuple[DataType, ...]:
        """What the strings may be read as."""
        return (DATE, *[TIMESTAMP] * self.has_instants, *[TIMESTAMP_NTZ] * self.has_local_times)


def type_facts(leaf: DataType) -> tuple[str, ValueFacts] | None:
    """Return the kind word of a type and the facts of all its values; None for void and unsupported types.

    Args:
        leaf: A type that is not an array, map or struct.
    """
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
        assume_exact: Whether to assume that values are exact where their type leaves it open.

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
