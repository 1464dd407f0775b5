"""A task that learns that the plan will change: what it observes, and how exactly."""

from __future__ import annotations

from widen.model.types import StructType
from widen.observe.kind import Kind
from widen.observe.observation import Observation
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.policy import Policy
from widen.spark.source.raw_batch import as_raw_records
from widen.spark.text.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec, collect_notes, merge_notes

NUMBER, TEXT, TRUE = b'{"a": 1}', b'{"a": "x"}', b'{"a": true}'


def observed(texts: list[bytes], *, is_exhaustive: bool = False, policy: Policy | None = None) -> Observation:
    policy = policy or Policy()
    schema = evolve(None, Observation(), policy).schema
    spec = BatchWriteSpec(None, Observation().to_json(), schema, policy, is_exhaustive)
    return merge_notes(collect_notes(as_raw_records(texts, "file:/a.jsonl"), spec))


def counts(seen: Observation) -> dict[str, int]:
    return {str(kind): values.count for kind, values in seen.root["a"].kinds.items()}


def test_the_values_of_a_small_batch_are_all_counted() -> None:
    seen = observed([NUMBER] * (MIN_COUNTED_RECORDS - 10) + [TEXT] * 10)
    assert counts(seen) == {"long": MIN_COUNTED_RECORDS - 10, "string": 10}


def test_of_a_large_batch_only_records_that_bring_more_are_read_exactly() -> None:
    seen = observed([NUMBER] * 1_500 + [TEXT] + [NUMBER] * 300)
    assert seen.records == 1_801
    assert counts(seen) == {"long": MIN_COUNTED_RECORDS, "string": 1}
    assert seen.root["a"].kinds[Kind("string")].first == ("file:/a.jsonl", 1_501)


def test_a_first_pass_ends_early_and_a_later_one_reads_everything() -> None:
    texts = [NUMBER] * 5_000 + [TEXT] * 5_000 + [TRUE]
    assert counts(observed(texts)).keys() == {"long"}
    seen = observed(texts, is_exhaustive=True)
    assert seen.records == 10_001
    assert counts(seen).keys() == {"long", "string", "boolean"}


def test_keys_are_counted_where_maps_are_detected() -> None:
    texts = [b'{"a": {"k%d": 1}}' % (number % 60) for number in range(1_800)]
    seen = observed(texts, policy=Policy(detects_maps=True))
    assert counts(seen) == {"record": 1_800}
    assert evolve(None, seen, Policy(detects_maps=True)).schema != StructType()
    assert counts(observed(texts))["record"] < 1_800
