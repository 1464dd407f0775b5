"""The layout of a table depends on its batches; a new table may begin with that of another."""

from __future__ import annotations

from dataclasses import replace

from support.interval import columns, interval
from widen.evolution.evolve import evolve
from widen.evolution.policy import Policy
from widen.model.types import StructType
from widen.schema.operations import CreateTable
from widen.schema.source_metadata import to_layout

MONDAY, TUESDAY = interval({"total": "2.5"}), interval({"total": "string"})
BOTH = MONDAY.merged(TUESDAY)
ADDED_LATER = ["total:double", "total_string:string"]


def day_by_day() -> StructType:
    return evolve(evolve(None, MONDAY, Policy()).schema, TUESDAY, Policy()).schema


def test_the_order_of_batches_decides_who_has_the_plain_name() -> None:
    assert columns(day_by_day()) == ADDED_LATER
    assert columns(evolve(None, BOTH, Policy()).schema) == ["total:string", "total_double:double"]


def test_a_new_table_with_a_layout_is_that_of_day_by_day() -> None:
    plan = evolve(None, BOTH, replace(Policy(), layout=to_layout(day_by_day())))
    assert columns(plan.schema) == ADDED_LATER
    assert plan.operations == (CreateTable(plan.schema),)
    assert plan.schema.fields[1].metadata["widen.source"] == ["total"]


def test_a_layout_has_no_effect_on_a_table_that_exists() -> None:
    policy = replace(Policy(), layout=to_layout(day_by_day()))
    assert columns(evolve(StructType(), MONDAY, policy).schema) == ["total:double"]


def test_what_belongs_to_the_files_of_the_old_table_is_left_out() -> None:
    field = day_by_day().fields[1].with_metadata(**{"delta.columnMapping.id": 7, "comment": "c"})
    layout = to_layout(StructType((replace(field, nullable=False),)))
    assert layout.fields[0].nullable
    assert layout.fields[0].metadata == {
        "comment": "c",
        "widen.source": ["total"],
        "widen.evolvedFrom": "total",
    }
