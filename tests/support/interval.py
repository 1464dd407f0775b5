"""Intervals as literals, and schemas as the vectors of the specification write them."""

from __future__ import annotations

from collections.abc import Iterator

from widen.evolution.evolve import evolve
from widen.evolution.plan import Plan
from widen.evolution.policy import Mode, Policy
from widen.json.kinds import NO_FACTS, Kind, leaf_and_dim, number_kind, parse_kind, word_of
from widen.json.observation import FieldObservation, Observation, RecordObservation, get_field
from widen.model.types import DataType, StructType

SAMPLES = {
    "boolean": "true",
    "long": "4",
    "double": "2.5",
    "date": "2024-05-01",
    "timestamp": "2024-05-01T10:00:00Z",
    "string": "x",
}
"""A value of each kind, for rows that name kinds only."""


def interval(fields: dict[str, object], file: str = "f.json", position: int = 1, corrupt: int = 0) -> Observation:
    """Return the observation of an interval with one record of these fields.

    Args:
        fields: For each key the kinds, separated by spaces (``long[]``, ``string``); a number token with its brackets
            (``9007199254740993[]``) is classified; ``null``, ``{}`` and ``empty[]`` are what has no kind. A list holds
            such texts and, for records, pairs ``(dim, sub-fields)``.
    """
    seen = _record(fields, (file, position))
    return Observation(1, corrupt, seen, apart=[[*path] for path in _apart(seen, ())])


def _apart(record: RecordObservation, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names that a record has beside the same name in another case."""
    folded = [key.lower() for key in record]
    for key, field in record.items():
        if folded.count(key.lower()) > 1:
            yield (*above, key)
        for below in field.records.values():
            yield from _apart(below, (*above, key))


def _record(fields: dict[str, object], at: tuple[str, int]) -> RecordObservation:
    record: RecordObservation = {}
    for key, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            _see(get_field(record, key), value, at)
    return record


def _see(field: FieldObservation, value: object, at: tuple[str, int]) -> None:
    if isinstance(value, tuple):
        dim, fields = value
        field.kind(Kind("record", dim)).add(NO_FACTS, at, "{...}")
        for key, seen in _record(fields, at).items():
            known = field.record(dim).get(key, FieldObservation())
            field.record(dim)[key] = known.merged(seen)
        return
    for text in str(value).split():
        _see_text(field, text, at)


def _see_text(field: FieldObservation, text: str, at: tuple[str, int]) -> None:
    dim = text.count("[]")
    word = text.replace("[]", "")
    if word in ("null", "{}", "empty"):
        counts = {"null": field.nulls, "{}": field.empty_records, "empty": field.empty}[word]
        counts[dim] = counts.get(dim, 0) + 1
    elif word in SAMPLES:
        facts = number_kind(SAMPLES[word])[1] if word in ("long", "double") else NO_FACTS
        field.kind(parse_kind(text)).add(facts, at, SAMPLES[word])
    else:
        kind, facts = number_kind(word)
        field.kind(Kind(kind, dim)).add(facts, at, word)


def columns(schema: StructType) -> list[str]:
    """Return the columns as texts like ``a_array2_long:long[][]``, sub-fields of records in braces behind."""
    return [f"{field.name}:{shown(field.type)}" for field in schema]


def shown(data_type: DataType) -> str:
    leaf, dim = leaf_and_dim(data_type)
    if isinstance(leaf, StructType):
        return "record" + "[]" * dim + "{" + ", ".join(columns(leaf)) + "}"
    word = word_of(leaf)
    return (
        str(leaf) if word in (None, "decimal") or str(leaf) in ("byte", "short", "float") else str(word)
    ) + "[]" * dim


def run(*intervals: dict[str, object], mode: Mode = Mode.SPLIT, schema: StructType | None = None) -> list[list[str]]:
    """Return for each interval the columns that it adds, run one after the other."""
    added = []
    for number, fields in enumerate(intervals):
        plan = evolve(schema, interval(fields, position=number + 1), Policy(mode))
        before = schema.names if schema else ()
        added.append([text for text in columns(plan.schema) if text.split(":")[0] not in before])
        schema = plan.schema
    return added


def plan_of(
    fields: dict[str, object], schema: StructType | None = None, policy: Policy | None = None, corrupt: int = 0
) -> Plan:
    """Return the plan for an interval with one record of these fields."""
    return evolve(schema, interval(fields, corrupt=corrupt), policy or Policy())
