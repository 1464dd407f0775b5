"""Documents to observations.

Source: docs/evolution-rules.md#observe, #d7, #d8, #d10
"""

from __future__ import annotations

from functools import cache

from widen.observe.date_text import timestamp_facts
from widen.observe.json_document import DateText, JsonDocument, JsonNumber, MapEntries, TimestampText
from widen.observe.json_number import NO_FACTS, ValueFacts, number_kind
from widen.observe.kind import BOOLEAN_WORD, DATE_WORD, MAP_WORD, RECORD_WORD, STRING_WORD, TIMESTAMP_WORD, Kind
from widen.observe.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    get_field,
)


def observe_record(seen: RecordObservation, record: dict[str, JsonDocument], at: RecordPosition) -> None:
    """Count what stands at each key of a record, in place, at any depth.

    Args:
        seen: What earlier records held; grows.
        record: The record, numbers as tokens.
        at: Where it stands: the file, and the number of the record there.

    Source: docs/evolution-rules.md#one-interval
    """
    for key, value in record.items():
        observe_value(get_field(seen, key), value, at)


def observe_value(field: FieldObservation, value: JsonDocument, at: RecordPosition, dim: int = 0) -> None:
    """Count one value of a field, in place, and what is in it.

    Args:
        field: What the field held before; grows.
        value: The value, numbers as tokens.
        at: Where its record stands.
        dim: How many arrays are around the value.

    Source: docs/evolution-rules.md#d7, #d8
    """
    match value:
        case None:
            field.nulls[dim] = field.nulls.get(dim, 0) + 1
        case list():
            _observe_array(field, value, dim + 1, at)
        case dict():
            _observe_object(field, value, dim, at)
        case _:
            word, facts = scalar_kind(value)
            sample = value if isinstance(value, str) else "true" if value else "false"
            field.kind(_kind(word, dim)).add(facts, at, sample)


def scalar_kind(value: str | bool) -> tuple[str, ValueFacts]:
    """Return the word of the kind of a scalar, with its facts."""
    match value:
        case JsonNumber():
            return number_kind(value)
        case DateText():
            return DATE_WORD, NO_FACTS
        case TimestampText():
            return TIMESTAMP_WORD, timestamp_facts(value)
        case str():
            return STRING_WORD, NO_FACTS
    return BOOLEAN_WORD, NO_FACTS


def _observe_array(field: FieldObservation, items: list[JsonDocument], dim: int, at: RecordPosition) -> None:
    if not items:
        field.empty[dim] = field.empty.get(dim, 0) + 1
    for item in items:
        observe_value(field, item, at, dim)


def _observe_object(field: FieldObservation, record: dict[str, JsonDocument], dim: int, at: RecordPosition) -> None:
    if not record:
        field.empty_records[dim] = field.empty_records.get(dim, 0) + 1
        return
    if isinstance(record, MapEntries):
        field.kind(_kind(MAP_WORD, dim)).add(NO_FACTS, at, "{…}")
        for value in record.values():
            observe_value(field.entries(dim), value, at)
        return
    field.kind(_kind(RECORD_WORD, dim)).add(NO_FACTS, at, "{…}")
    observe_record(field.record(dim), record, at)


_kind = cache(Kind)


def observation_signature(seen: Observation) -> object:
    """Return what of an observation can change a plan: two with the same signature lead to the same one.

    Counts, places and samples are left out; whether there are corrupt lines is in.
    """
    return bool(seen.corrupt), _signature(seen.root), _signature(seen.kept_out)


def _signature(record: RecordObservation) -> tuple[object, ...]:
    return tuple((key, *_field_signature(field)) for key, field in sorted(record.items()))


def _field_signature(field: FieldObservation) -> tuple[object, ...]:
    kinds = tuple(sorted((kind, _facts(seen)) for kind, seen in field.kinds.items()))
    below = tuple((dim, _signature(record)) for dim, record in sorted(field.records.items()))
    entries = tuple((dim, _field_signature(inner)) for dim, inner in sorted(field.maps.items()))
    nothing = tuple(sorted(field.nulls)), tuple(sorted(field.empty)), tuple(sorted(field.empty_records))
    return nothing, kinds, below, entries


def _facts(seen: KindObservation) -> tuple[object, ...]:
    return tuple(getattr(seen, name) for name in ValueFacts._fields)
