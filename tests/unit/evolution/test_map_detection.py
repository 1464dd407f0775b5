"""Objects that look like maps: what is detected, what the plan says, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.interval import columns
from widen.errors import InvalidOption, TooManyKeys
from widen.evolution.evolve import evolve
from widen.evolution.map_detection import find_map
from widen.evolution.plan import MAX_LINES, Plan, explain_plan
from widen.evolution.policy import ANY_MAP, Mode, build_field_rules
from widen.ingestion.options import parse_policy
from widen.json.document import parse_document
from widen.json.field_rules import PLAIN, FieldRules
from widen.json.observation import Observation, observe_record
from widen.model.schema_json import from_json, to_json


def observed(records: list[dict[str, Any]], rules: FieldRules = PLAIN) -> Observation:
    found = Observation(records=len(records))
    for number, record in enumerate(records):
        document = parse_document(json.dumps(record).encode())
        assert isinstance(document, dict)
        observe_record(found.root, rules.record(document), ("f.json", number + 1))
    return found


def users(objects: int = 100, keys: int = 3, value: Any = 7) -> list[dict[str, Any]]:
    return [{"by_user": {f"u{number}_{key}": value for key in range(keys)}, "n": number} for number in range(objects)]


def planned(records: list[dict[str, Any]], **settings: Any) -> Plan:
    return evolve(None, observed(records), parse_policy(**settings))


ADDON = {"version": "1.0", "scope": 1, "isSystem": False}


@pytest.mark.parametrize("value", [7, "x", [1], ADDON])
def test_many_keys_that_records_do_not_share_are_a_map(value: Any) -> None:
    records = users(value=value)
    assert find_map(("by_user",), observed(records).root["by_user"]) is not None
    assert find_map(("n",), observed(records).root["n"]) is None


@pytest.mark.parametrize(
    "records",
    [
        users(keys=60, objects=3),
        users(objects=10),
        [{"by_user": {f"u{key}": 1 for key in range(60)}} for _ in range(20)],
        [{"by_user": {f"u{number}_{key}": [1, "x", {"a": 1}][key] for key in range(3)}} for number in range(100)],
        [{"by_user": {f"u{number}": {f"f{number}": 1}}} for number in range(100)],
    ],
    ids=["few objects", "few keys", "the same keys", "values of several shapes", "records without common fields"],
)
def test_what_is_a_record(records: list[dict[str, Any]]) -> None:
    assert find_map(("by_user",), observed(records).root["by_user"]) is None


def test_the_plan_says_so_with_the_pin() -> None:
    plan = planned(users())
    assert [(each.source, each.keys, each.objects) for each in plan.maps] == [(("by_user",), 300, 100)]
    assert explain_plan(plan)[-2:] == (
        "Objects that look like maps:",
        "  by_user: 300 keys in 100 objects; use --detect-maps or --pin 'by_user=map'",
    )
    assert plan.to_value()["maps"] == [{"source": ("by_user",), "keys": 300, "objects": 100}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, "by_user:map<string,int>"),
        ("x", "by_user:map<string,string>"),
        (ADDON, "by_user:map<string,struct<isSystem: boolean, scope: int, version: string>>"),
    ],
)
def test_detected_maps_are_one_column(value: Any, expected: str) -> None:
    plan = planned(users(value=value), detect_maps=True)
    field = next(iter(plan.schema))
    assert f"{field.name}:{field.type.sql}" == expected
    assert plan.maps == ()
    assert [event.count for event in plan.events if event.column == ("by_user",)] == [300]


def test_values_of_several_kinds_keep_the_rules() -> None:
    records = [{"by_user": {f"u{n}": n, f"v{n}": n}} for n in range(100)] + [{"by_user": {"w": "x"}}]
    names = columns(planned(records, detect_maps=True, evolve="split").schema)
    assert len(names) == 2
    assert names[0].startswith("by_user:")


def test_a_detected_map_stays_one_and_a_second_pass_reads_maps() -> None:
    policy = parse_policy(detect_maps=True)
    first = observed(users())
    plan = evolve(None, first, policy)
    second = observed(users(), build_field_rules(plan.schema, policy))
    assert evolve(None, first.merged(second, max), policy) == plan
    later = evolve(from_json(to_json(plan.schema)), Observation(), policy)
    assert later.is_empty


def test_the_pin_map_leaves_the_type_to_the_rules() -> None:
    policy = parse_policy(pins={"by_user": "map"})
    assert policy.pins == {("by_user",): ANY_MAP}
    assert (policy.type_of(("by_user",)), policy.mode_of(("by_user",))) == (None, Mode.WIDEN)


def test_detect_maps_is_true_or_false() -> None:
    with pytest.raises(InvalidOption, match="detect_maps cannot be 'yes'"):
        parse_policy(detect_maps="yes")  # type: ignore[arg-type]


def test_long_lists_are_folded_for_people_and_whole_as_json() -> None:
    plan = planned([{f"f{number}": number for number in range(200)}])
    assert len(plan.to_value()["events"]) == 200
    lines = explain_plan(plan)
    assert f"  … and {200 - MAX_LINES} more" in lines
    assert len(lines) < 2 * MAX_LINES + 10


def test_the_log_has_one_event_for_a_new_record_and_those_of_its_conflicts() -> None:
    record = {f"f{number}": number for number in range(200)}
    plan = planned([{"wide": record}, {"wide": {"f0": "x"}}])
    assert len(plan.events) > 200
    logged = plan.logged_events()
    assert [(event["column"][0], event["grade"]) for event in logged] == [("wide", "additive"), ("wide", "conflict")]


# ---- too many keys -----------------------------------------------------------------------------------


def test_a_batch_with_more_keys_than_the_limit_is_refused_with_the_name_of_the_field() -> None:
    seen = observed([{"a": record} for record in users(40)])
    assert evolve(None, seen, parse_policy(max_keys=120)).operations
    with pytest.raises(TooManyKeys, match=r"field a\.by_user have more than 119 keys") as refused:
        evolve(None, seen, parse_policy(max_keys=119))
    assert "--detect-maps" in str(refused.value)
    assert "--pin 'a.by_user=map'" in str(refused.value)


@pytest.mark.parametrize("words", [{"detect_maps": True}, {"evolve": "freeze"}, {"pins": {"by_user": "freeze"}}])
def test_keys_that_become_no_columns_are_not_limited(words: dict[str, Any]) -> None:
    assert evolve(None, observed(users(40)), parse_policy(max_keys=50, **words)).schema is not None


def test_records_themselves_may_have_too_many_keys() -> None:
    with pytest.raises(TooManyKeys, match="The records have more than 3 keys"):
        evolve(None, observed([{f"k{number}": 1} for number in range(4)]), parse_policy(max_keys=3))
