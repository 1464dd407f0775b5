"""Documents to observations.

Source: spec of evolution, section 3, "observe"; D7 for what has no kind, D8 for mixed arrays, D10 for maps.
"""

from __future__ import annotations

from functools import cache

from widen.observe.document import Day, Document, Entries, Instant, Number
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    MAP_WORD,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.observe.moment import instant_facts
from widen.observe.number import NO_FACTS, Facts, number_kind
from widen.observe.observation import FieldSeen, KindSeen, Observation, Position, RecordSeen, field_of


def observe_record(seen: RecordSeen, record: dict[str, Document], at: Position) -> None:
    """Count what stands at each key of a record, in place, at any depth.

    Args:
        seen: What earlier records held; grows.
        record: The record, numbers as tokens.
        at: Where it stands: the file, and the number of the record there.

    Source: spec of evolution, section 3.
    """
    for key, value in record.items():
        observe_value(field_of(seen, key), value, at)


def observe_value(field: FieldSeen, value: Document, at: Position, dim: int = 0) -> None:
    """Count one value of a field, in place, and what is in it.

    Args:
        field: What the field held before; grows.
        value: The value, numbers as tokens.
        at: Where its record stands.
        dim: How many arrays are around the value.

    Source: spec of evolution, D7, D8.
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


def scalar_kind(value: str | bool) -> tuple[str, Facts]:
    """Return the word of the kind of a scalar, with its facts."""
    match value:
        case Number():
            return number_kind(value)
        case Day():
            return DATE_WORD, NO_FACTS
        case Instant():
            return TIMESTAMP_WORD, instant_facts(value)
        case str():
            return STRING_WORD, NO_FACTS
    return BOOLEAN_WORD, NO_FACTS


def _observe_array(field: FieldSeen, items: list[Document], dim: int, at: Position) -> None:
    if not items:
        field.empty[dim] = field.empty.get(dim, 0) + 1
    for item in items:
        observe_value(field, item, at, dim)


def _observe_object(field: FieldSeen, record: dict[str, Document], dim: int, at: Position) -> None:
    if not record:
        field.empty_records[dim] = field.empty_records.get(dim, 0) + 1
        return
    if isinstance(record, Entries):
        field.kind(_kind(MAP_WORD, dim)).add(NO_FACTS, at, "{…}")
        for value in record.values():
            observe_value(field.entries(dim), value, at)
        return
    field.kind(_kind(RECORD_WORD, dim)).add(NO_FACTS, at, "{…}")
    observe_record(field.record(dim), record, at)


_kind = cache(Kind)


def signature(seen: Observation) -> object:
    """Return what of an observation can change a plan: two with the same signature lead to the same one.

    Counts, places and samples are left out; whether there are corrupt lines is in.
    """
    return bool(seen.corrupt), _signature(seen.root), _signature(seen.kept_out)


def _signature(record: RecordSeen) -> tuple[object, ...]:
    return tuple((key, *_field_signature(field)) for key, field in sorted(record.items()))


def _field_signature(field: FieldSeen) -> tuple[object, ...]:
    kinds = tuple(sorted((kind, _facts(seen)) for kind, seen in field.kinds.items()))
    below = tuple((dim, _signature(record)) for dim, record in sorted(field.records.items()))
    entries = tuple((dim, _field_signature(inner)) for dim, inner in sorted(field.maps.items()))
    nothing = tuple(sorted(field.nulls)), tuple(sorted(field.empty)), tuple(sorted(field.empty_records))
    return nothing, kinds, below, entries


def _facts(seen: KindSeen) -> tuple[object, ...]:
    return tuple(getattr(seen, name) for name in Facts._fields)
