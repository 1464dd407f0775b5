"""Generated documents and the observations of them, for laws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from widen.json.kinds import NO_FACTS, Kind, ValueFacts, number_kind
from widen.json.observation import FieldObservation, Observation, RecordObservation, get_field
from widen.schema.field_names import FieldNames, NameUse

KEYS = ("a", "b", "A", "a b", "a_string", "a_b", "a_long", "_rescued", "")
"""Keys that get into each other's way."""

TOKENS = (
    *("0", "7", "-5", "2147483648", "9007199254740993", "9223372036854775807", "18446744073709551616"),
    *("2.5", "1e3", "-0.0", "1e300", "0.1000000000000000000001", "12345678901234567.89", "1e400"),
    *("99999999999999999999999999999999999999", "0.00000000000000000000000000000000000001"),
)
"""Number tokens at the edges of the types."""

SCALARS = ("string", "boolean", "date", "timestamp", "timestamp-micros")

leaves = st.one_of(
    st.sampled_from(TOKENS).map(lambda token: ("number", token)),
    st.sampled_from(SCALARS).map(lambda word: ("scalar", word)),
)
values = st.one_of(
    leaves,
    st.lists(leaves, min_size=1, max_size=3),
    st.recursive(
        st.one_of(leaves, st.none()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
        max_leaves=8,
    ),
)
"""Mostly scalars and short arrays of them, so that fields meet other types of themselves; deep documents too."""

one_field = st.fixed_dictionaries({"a": values})
one_sub_field = st.fixed_dictionaries({"a": st.fixed_dictionaries({"b": values})})
records = st.one_of(one_field, one_sub_field, st.dictionaries(st.sampled_from(KEYS), values, max_size=4))
batches = st.lists(records, min_size=1, max_size=4)


def observations() -> st.SearchStrategy[Observation]:
    """Return observations of one to four records."""
    return st.tuples(batches, st.sampled_from("fg"), st.integers(0, 1)).map(lambda drawn: observed(*drawn))


def observed(batch: list[dict[str, Any]], file: str = "f", corrupt: int = 0) -> Observation:
    """Return the observation of a batch: records of the values above."""
    root: RecordObservation = {}
    for position, record in enumerate(batch):
        _observe_record(root, record, (file, position))
    use = NameUse()
    for record in batch:
        FieldNames().record(record, use)
    return Observation(len(batch), corrupt, root, apart=sorted([*path] for path in use.apart))


def _observe_record(seen: RecordObservation, record: dict[str, Any], at: tuple[str, int]) -> None:
    for key, value in record.items():
        _observe(get_field(seen, key), value, 0, at)


def _observe(field: FieldObservation, value: Any, dim: int, at: tuple[str, int]) -> None:
    match value:
        case None:
            field.nulls[dim] = field.nulls.get(dim, 0) + 1
        case []:
            field.empty[dim + 1] = field.empty.get(dim + 1, 0) + 1
        case list():
            for item in value:
                _observe(field, item, dim + 1, at)
        case dict() if not value:
            field.empty_records[dim] = field.empty_records.get(dim, 0) + 1
        case dict():
            field.kind(Kind("record", dim)).add(NO_FACTS, at, "{}")
            _observe_record(field.record(dim), value, at)
        case ("number", token):
            word, facts = number_kind(token)
            field.kind(Kind(word, dim)).add(facts, at, token)
        case (_, word):
            facts = ValueFacts(epoch_ms_exact=word != "timestamp-micros")
            field.kind(Kind(word.removesuffix("-micros"), dim)).add(facts, at, word)
