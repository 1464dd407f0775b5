"""Which files may hold a matching row: partition values and statistics, in physical names."""

from __future__ import annotations

import pytest

from widen.model.types import INTEGER, LONG, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.data_skipping import And, Compare, FileSelection, IsNull, Predicate, UnknownPredicate

SCHEMA = StructType((Field("id", LONG), Field("p", INTEGER)))
MAPPED = StructType(tuple(field.with_metadata(**{PHYSICAL_NAME: f"col-{field.name}"}) for field in SCHEMA))
STATS = '{"numRecords":2,"minValues":{"id":10},"maxValues":{"id":20},"nullCount":{"id":0}}'

# A condition, whether the file of partition p = 1 with ids from 10 to 20 may hold a row for it.
ROWS: list[tuple[Predicate, bool]] = [
    (UnknownPredicate(), True),
    (Compare(("p",), INTEGER, "=", 1), True),
    (Compare(("p",), INTEGER, "=", 2), False),
    (IsNull(("p",), INTEGER), False),
    (Compare(("id",), LONG, ">", 20), False),
    (Compare(("id",), LONG, ">", 19), True),
    (And(Compare(("p",), INTEGER, "=", 1), Compare(("id",), LONG, "<", 10)), False),
    (And(UnknownPredicate(), Compare(("p",), INTEGER, "=", 2)), False),
]


@pytest.mark.parametrize(("predicate", "may_hold"), ROWS)
def test_a_file_is_left_out_only_for_sure(predicate: Predicate, may_hold: bool) -> None:
    assert FileSelection(predicate, SCHEMA, "none", ("p",)).can_match({"p": "1"}, STATS) is may_hold


@pytest.mark.parametrize(("predicate", "may_hold"), ROWS)
def test_mapped_columns_are_looked_up_by_their_physical_names(predicate: Predicate, may_hold: bool) -> None:
    stats = STATS.replace('"id"', '"col-id"')
    assert FileSelection(predicate, MAPPED, "name", ("p",)).can_match({"col-p": "1"}, stats) is may_hold


def test_what_is_not_known_is_not_left_out() -> None:
    selection = FileSelection(Compare(("id",), LONG, ">", 20), SCHEMA, "none", ("p",))
    assert selection.can_match({"p": "1"}, None)
    assert selection.can_match({}, "no statistics")
