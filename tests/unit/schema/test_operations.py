"""What each kind of operation requires besides its checks on the schema."""

from __future__ import annotations

from typing import get_args

import pytest

from widen.model.types import INTEGER, LONG
from widen.schema.operations import (
    REQUIREMENTS,
    AddConstraint,
    DropNotNull,
    Operation,
    SetDefault,
    SetNotNull,
    SyncIdentity,
    WidenType,
    added_features,
    depends_on_rows,
    needs_spark,
    row_checks,
)

CHECK, NOT_NULL = AddConstraint("positive", "a > 0"), SetNotNull(("a",))
DEFAULT, SYNC = SetDefault(("a",), "1"), SyncIdentity(("a",), 7)
WIDEN = WidenType(("a",), INTEGER, LONG)


def test_every_kind_of_operation_is_in_the_table() -> None:
    assert set(REQUIREMENTS) == set(get_args(Operation))


@pytest.mark.parametrize(
    ("operation", "features", "has_row_check", "spark", "rows"),
    [
        (CHECK, {"checkConstraints"}, True, True, True),
        (NOT_NULL, {"invariants"}, True, True, True),
        (DEFAULT, set(), False, True, False),
        (SYNC, set(), False, False, True),
        (WIDEN, set(), False, False, False),
        (DropNotNull(("a",)), set(), False, False, False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else str(value),
)
def test_one_operation(operation: Operation, features: set[str], has_row_check: bool, spark: bool, rows: bool) -> None:
    assert added_features([operation]) == features
    assert row_checks([operation]) == [operation] * has_row_check
    assert needs_spark([operation]) is spark
    assert depends_on_rows([operation]) is rows


def test_several_operations_require_what_each_requires() -> None:
    both = [WIDEN, CHECK, NOT_NULL]
    assert added_features(both) == {"checkConstraints", "invariants"}
    assert row_checks(both) == [CHECK, NOT_NULL]
    assert needs_spark(both)
    assert depends_on_rows([DEFAULT, SYNC])
    assert not depends_on_rows([DEFAULT, WIDEN])
