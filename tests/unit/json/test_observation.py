from __future__ import annotations

from widen.json.kinds import NO_FACTS, Kind, ValueFacts, number_kind
from widen.json.observation import FieldObservation, KindObservation, Observation, get_field, merge_observations


def test_facts_of_many_values_are_those_of_the_worst() -> None:
    seen = KindObservation()
    for token in ("7", "9007199254740993", "300"):
        seen.add(number_kind(token)[1], ("f", 1), token)
    assert (seen.count, seen.integer_digits, seen.fits_int32, seen.exact_double) == (3, 16, False, False)


def test_the_first_position_is_kept_with_its_sample() -> None:
    late, early = KindObservation(), KindObservation()
    late.add(NO_FACTS, ("b", 1), "late")
    early.add(NO_FACTS, ("a", 9), "nine")
    early.add(NO_FACTS, ("a", 2), "two")
    assert (late.merged(early).first, late.merged(early).sample) == (("a", 2), "two")


def test_a_sample_without_a_position_is_kept() -> None:
    sample, other, nothing = (KindObservation(sample=text) for text in ("x", "y", ""))
    assert sample.merged(nothing).sample == nothing.merged(sample).sample == "x"
    assert sample.merged(other).sample == other.merged(sample).sample == "x"


def test_a_sample_is_cut() -> None:
    seen = KindObservation()
    seen.add(NO_FACTS, ("f", 1), "x" * 200)
    assert len(seen.sample) == 80


def test_fields_merge_by_key_kind_and_dim() -> None:
    left, right = Observation(1), Observation(2, 1)
    get_field(left.root, "a").kind(Kind("long")).add(ValueFacts(1), ("f", 1), "7")
    get_field(left.root, "a").record(1)["b"] = FieldObservation({0: 1})
    get_field(right.root, "a").kind(Kind("long", 1)).add(ValueFacts(2), ("f", 2), "17")
    get_field(right.root, "a").record(1)["b"] = FieldObservation({0: 2}, {1: 1})
    both = merge_observations([left, right])
    assert (both.records, both.corrupt) == (3, 1)
    assert set(both.root["a"].kinds) == {Kind("long"), Kind("long", 1)}
    assert both.root["a"].records[1]["b"] == FieldObservation({0: 3}, {1: 1})


def test_json_names_a_kind_by_its_text() -> None:
    seen = Observation(1)
    get_field(seen.root, "a").kind(Kind("long", 2)).add(ValueFacts(1), ("f", 1), "7")
    assert b'"long[][]":{"count":1' in seen.to_json()
