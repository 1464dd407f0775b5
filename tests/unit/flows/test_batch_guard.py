"""A batch is committed once, and by one process."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from widen.changes.overwrite import ReplacedRows
from widen.errors import FlowKeyRefused, FlowTaken
from widen.evolution.plan import Plan
from widen.flows.flow_step import FlowGuard
from widen.model.types import INTEGER, STRING, Field, StructType
from widen.schema.source_metadata import source_field
from widen.targets.table_format import TransactionId


def target(last: int | None) -> Any:
    known = None if last is None else TransactionId("flow", last)
    return Mock(
        location="t",
        last_interval=lambda _: known,
        has_interval=lambda interval: last is not None and last >= interval.number,
    )


def guard(number: int, previous: int | None, replaced: ReplacedRows | None = None) -> FlowGuard:
    before = None if previous is None else TransactionId("flow", previous)
    return FlowGuard(TransactionId("flow", number), "t", before, replaced)


def test_a_batch_is_written_after_the_one_that_it_follows() -> None:
    assert not guard(3, None).is_repeated(target(None))
    assert not guard(5, 3).is_repeated(target(3))
    assert guard(5, 3).is_repeated(target(5))
    assert guard(5, 3).is_repeated(target(6))


@pytest.mark.parametrize(("previous", "last"), [(3, 4), (None, 4)])
def test_a_batch_of_another_process_is_told(previous: int | None, last: int) -> None:
    with pytest.raises(FlowTaken, match="version 4"):
        guard(5, previous).is_repeated(target(last))


def test_a_rebuild_may_be_done_again() -> None:
    assert not guard(5, None, ReplacedRows(Mock())).is_repeated(target(5))


def test_a_key_must_stay_in_its_column() -> None:
    keyed, draft = guard(5, 3, ReplacedRows(Mock(), ("day",), Mock())), Mock(spec=["with_replaced_rows", "commit"])
    sibling = source_field("day_string", STRING, ("day",), is_evolved=True)
    with pytest.raises(FlowKeyRefused, match="cannot hold"):
        keyed.prepare_draft(draft, Plan((), StructType((Field("day", INTEGER), sibling))))
    with pytest.raises(FlowKeyRefused, match="cannot hold"):
        keyed.prepare_draft(draft, Plan((), StructType((Field("n", INTEGER),))))
