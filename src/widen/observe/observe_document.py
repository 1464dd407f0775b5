"""Observe the values of parsed records.

Source: docs/evolution-rules.md#observe, #d7, #d8, #d10
"""

from __future__ import annotations

from functools import cache

from widen.observe.date_text import timestamp_facts
from widen.observe.json_document import DateText, JsonDocument, JsonNumber, LocalTimeText, MapEntries, TimestampText
from widen.observe.json_number import NO_FACTS, ValueFacts, number_kind, written_scale
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    MAP_WORD,
    NTZ_WORD,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.observe.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    get_field,
)


def observe_record(fields: RecordObservation, record: dict[str, JsonDocument], position: RecordPosition) -> None:
    """Count the values of a record by field, at any depth.

    Args:
        fields: The observation of earlier records; changes in place.
        record: A record from `widen.observe.json_document.parse_document`.

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
    return bool(observation.corrupt), _signature(observation.root), _signature(observation.kept_out)


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
