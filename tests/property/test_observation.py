"""Laws of observations: merging is order-free, has a unit, and survives JSON."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from support.generate import observations
from widen.json.observation import Observation, merge_observations, observation_from_json


@given(observations(), observations())
def test_merging_is_commutative(left: Observation, right: Observation) -> None:
    assert left.merged(right) == right.merged(left)


@given(observations(), observations(), observations())
def test_merging_is_associative(one: Observation, two: Observation, three: Observation) -> None:
    assert one.merged(two).merged(three) == one.merged(two.merged(three))


@given(observations())
def test_the_empty_observation_is_the_unit(seen: Observation) -> None:
    assert seen.merged(Observation()) == seen == Observation().merged(seen)


@given(observations())
def test_json_brings_the_observation_back(seen: Observation) -> None:
    assert observation_from_json(seen.to_json()) == seen


@given(st.lists(observations(), max_size=4))
def test_merging_many_counts_every_record(parts: list[Observation]) -> None:
    total = merge_observations(parts)
    assert total.records == sum(part.records for part in parts)
    assert total == reduce(Observation.merged, reversed(parts), Observation())


@given(observations(), observations())
def test_merging_changes_neither_side(left: Observation, right: Observation) -> None:
    before = left.to_json(), right.to_json()
    left.merged(right)
    assert (left.to_json(), right.to_json()) == before
