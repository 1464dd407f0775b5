"""Which values of table properties are taken: those that Delta Lake takes."""

from __future__ import annotations

import pytest

from support.table_property import REFUSED, TAKEN
from widen.errors import InvalidOption
from widen.model.types import INTEGER, Field, StructType
from widen.schema.table_definition import plan_create_table, plan_set_properties
from widen.schema.table_state import TableState

SCHEMA = StructType((Field("id", INTEGER),))


def state(**properties: str) -> TableState:
    metadata, protocol = plan_create_table(SCHEMA, (), properties, 0).actions
    return TableState(protocol, metadata, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), TAKEN)
def test_taken(key: str, value: str) -> None:
    plan_create_table(SCHEMA, (), {f"delta.{key}": value}, 0)
    plan_set_properties(state(), {f"delta.{key}": value})


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidOption):
        plan_create_table(SCHEMA, (), {f"delta.{key}": value}, 0)
    with pytest.raises(InvalidOption):
        plan_set_properties(state(), {f"delta.{key}": value})


def test_the_nearest_property_is_named() -> None:
    with pytest.raises(InvalidOption) as caught:
        plan_create_table(SCHEMA, (), {"delta.enableTypeWidning": "true"}, 0)
    assert "Did you mean delta.enableTypeWidening?" in str(caught.value.advice)


def test_deleted_files_are_not_kept_longer_than_the_log_that_is_set_already() -> None:
    both = {"delta.logRetentionDuration": "90 days", "delta.deletedFileRetentionDuration": "60 days"}
    long = state(**both)
    plan_set_properties(long, {"delta.deletedFileRetentionDuration": "80 days"})
    with pytest.raises(InvalidOption) as caught:
        plan_set_properties(long, {"delta.logRetentionDuration": "50 days"})
    assert caught.value.advice == "Must not be longer than delta.logRetentionDuration, which is 50 days."
