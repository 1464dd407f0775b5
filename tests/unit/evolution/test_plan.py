from __future__ import annotations

import pytest

from support.interval import interval, plan_of
from widen.evolution.evolve import evolve
from widen.evolution.plan import Grade, Plan, PlanEvent, explain_plan, mark_returning
from widen.evolution.policy import Mode, Policy, Samples
from widen.model.schema_json import parse_type
from widen.model.types import INTEGER, LONG, Field, StructType
from widen.schema.operations import AddColumn, WidenType


def declared(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


def test_a_plan_says_what_it_does_and_why() -> None:
    plan = evolve(declared("a: int"), interval({"a": "2.5", "n": "null empty[]"}, "day2.json", 17), Policy())
    assert explain_plan(plan) == (
        "Changes:",
        "  widen a from int to double",
        "Because:",
        "  D1 widening: a, for 1 double; first '9.9' at day2.json:17",
        "Waiting for a first value:",
        "  n: 1 null, 1 []",
    )


def test_values_are_shown_where_that_is_asked_for() -> None:
    for samples, shown in ((Samples.RAW, " '2.5'"), (Samples.MASKED, " '9.9'"), (Samples.NONE, "")):
        plan = evolve(declared("a: int"), interval({"a": "2.5"}, "day2.json", 17), Policy(samples=samples))
        assert explain_plan(plan)[-1] == f"  D1 widening: a, for 1 double; first{shown} at day2.json:17"


def test_what_is_refused_and_rescued_is_said() -> None:
    refused = explain_plan(plan_of({"a": "string"}, declared("a: int"), Policy(Mode.FAIL)))
    assert refused[:2] == ("Refused by the policy:", "  add a_string string")
    rescued = explain_plan(plan_of({"a": "string"}, declared("a: int"), Policy(Mode.FREEZE)))
    assert rescued[-2:] == ("Stored in the rescue column:", "  a: 1 string (freeze); first 'x' at f.json:1")


def test_an_empty_plan_says_so() -> None:
    assert explain_plan(plan_of({"a": "7"}, declared("a: int"))) == ("Nothing to change.",)


def test_a_column_that_was_dropped_before_is_marked() -> None:
    """Names are compared as readers compare them; a widened column is none that comes back."""
    added = [AddColumn((), Field(name, LONG)) for name in ("Tag", "new")]
    events = tuple(
        PlanEvent(("U4",), (name,), ("long",), (name,), 1, None, "", Grade.ADDITIVE) for name in ("Tag", "new", "id")
    )
    plan = Plan((*added, WidenType(("id",), INTEGER, LONG)), StructType(()), events)
    marked = mark_returning(plan, lambda: {("tag",): "version 7", ("id",): "version 3"})
    assert [event.dropped_in for event in marked.events] == ["version 7", "", ""]
    assert marked.hash == plan.hash
    assert [event.get("dropped_in") for event in marked.to_value()["events"]] == ["version 7", None, None]
    told = [line for line in explain_plan(marked) if "version 7 dropped a column of this name" in line]
    assert len(told) == 1
    unchanged = Plan((WidenType(("id",), INTEGER, LONG),), StructType(()), events)
    assert mark_returning(unchanged, lambda: pytest.fail("the history is not read")) is unchanged
