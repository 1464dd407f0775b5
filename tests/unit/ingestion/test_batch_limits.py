"""Limits of a batch: counts, shares, and the severity of changes."""

from __future__ import annotations

import pytest

from support.interval import interval
from widen.errors import InvalidOption, LimitExceeded
from widen.evolution.evolve import evolve
from widen.evolution.plan import Plan
from widen.evolution.policy import Policy
from widen.ingestion.options import NO_LIMITS, parse_limits
from widen.json.observation import Observation
from widen.model.types import StructType

EMPTY = Plan((), StructType())
SEEN = Observation(records=950, corrupt=10, quarantined=40)


def planned(*days: dict[str, object]) -> Plan:
    plan = EMPTY
    for number, day in enumerate(days):
        plan = evolve(plan.schema if number else None, interval(day), Policy())
    return plan


@pytest.mark.parametrize(
    ("corrupt", "quarantined_records", "reason"),
    [
        (10, 40, ""),
        ("1%", "4%", ""),
        ("0.99%", None, "10 of 1000 lines are not records, the limit is 0.99%"),
        (9, None, "10 of 1000 lines are not records, the limit is 9"),
        (None, "39", "40 of 1000 records do not fit fixed columns, the limit is 39"),
        (0, "0%", "the limit is 0; 40 of 1000 records"),
    ],
)
def test_counts_and_shares(corrupt: int | str | None, quarantined_records: int | str | None, reason: str) -> None:
    limits = parse_limits(corrupt, quarantined_records)
    if not reason:
        limits.ensure_fulfilled(EMPTY, SEEN)
        return
    with pytest.raises(LimitExceeded) as caught:
        limits.ensure_fulfilled(EMPTY, SEEN)
    assert reason in caught.value.message


def test_the_first_bad_line_is_named() -> None:
    seen = Observation(records=990, corrupt=10, first_corrupt=("file:/landing/3.json", 7))
    with pytest.raises(LimitExceeded, match=r"are not records, the first at file:/landing/3\.json:7, the limit is 9"):
        parse_limits(9).ensure_fulfilled(EMPTY, seen)


def test_an_empty_batch_is_within_every_limit() -> None:
    parse_limits("0%", 0, "conflict").ensure_fulfilled(EMPTY, Observation())
    NO_LIMITS.ensure_fulfilled(EMPTY, SEEN)


@pytest.mark.parametrize(
    ("grade", "second", "fails"),
    [
        ("conflict", {"a": "2.5"}, False),
        ("conflict", {"a": "string"}, True),
        ("conflict", {"a": "string[]"}, True),
        ("structural", {"a": "string"}, False),
        ("structural", {"a": "long[]"}, True),
    ],
)
def test_changes_of_a_grade_or_worse(grade: str, second: dict[str, object], fails: bool) -> None:
    plan, limits = planned({"a": "4"}, second), parse_limits(fail_on=grade)
    if not fails:
        limits.ensure_fulfilled(plan, Observation(records=1))
        return
    with pytest.raises(LimitExceeded, match=f"changes of the grade {grade} or worse: a_"):
        limits.ensure_fulfilled(plan, Observation(records=1))


@pytest.mark.parametrize("value", ["101%", "-1", "many", "", "1.5", -1])
def test_a_limit_must_be_a_number_or_a_share(value: int | str) -> None:
    with pytest.raises(InvalidOption, match="max_corrupt cannot be"):
        parse_limits(value)


def test_additive_changes_cannot_be_refused() -> None:
    with pytest.raises(InvalidOption, match="fail_on cannot be 'additive'"):
        parse_limits(fail_on="additive")
