"""Row tracking switched on: the names of its columns, and the tables that need a backfill first."""

from __future__ import annotations

import re

import pytest

from widen.errors import InvalidOption
from widen.planning.alter.row_tracking_setup import needs_backfill, with_tracking_columns
from widen.planning.table.table_state import TableState
from widen.protocol.actions import Metadata, Protocol

ON, SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"
ID = "delta.rowTracking.materializedRowIdColumnName"
VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"


def test_the_columns_get_names_that_no_other_column_has() -> None:
    first, second = (with_tracking_columns({ON: "true"}) for _ in range(2))
    assert re.fullmatch(r"_row-id-col-[0-9a-f-]{36}", first[ID])
    assert re.fullmatch(r"_row-commit-version-col-[0-9a-f-]{36}", first[VERSION])
    assert not {first[ID], first[VERSION]} & {second[ID], second[VERSION]}


@pytest.mark.parametrize("properties", [{}, {ON: "false"}, {ON: "true", ID: "i", VERSION: "v"}])
def test_names_that_are_there_or_are_not_needed_stay(properties: dict[str, str]) -> None:
    assert with_tracking_columns(properties) == properties


def test_it_is_not_switched_on_while_it_is_suspended() -> None:
    with pytest.raises(InvalidOption, match="rowTrackingSuspended"):
        with_tracking_columns({ON: "true", SUSPENDED: "true"})


@pytest.mark.parametrize(
    ("features", "before", "asked", "expected"),
    [
        ((), {}, {ON: "true"}, True),
        (("rowTracking",), {ON: "false"}, {"delta.ENABLErowtracking": "true"}, True),
        (("rowTracking",), {ON: "true"}, {ON: "true"}, False),
        (("rowTracking",), {}, {"delta.appendOnly": "true"}, False),
        ((), {}, {ON: "false"}, False),
    ],
)
def test_a_table_needs_a_backfill_when_it_gets_row_tracking(
    features: tuple[str, ...], before: dict[str, str], asked: dict[str, str], expected: bool
) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    metadata = Metadata(id="i", schema_string="{}", partition_columns=(), configuration=before)
    assert needs_backfill(TableState(1, protocol, metadata), asked) is expected
