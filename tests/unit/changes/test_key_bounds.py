"""Which files can have some keys: by the smallest and the largest key, where their order is that of the column."""

from __future__ import annotations

from datetime import date

import pytest

from widen.changes.overwrite import _has_one_order, within_bounds
from widen.model.types import DATE, DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, DataType, DecimalType, Field
from widen.protocol.file_statistics import Bounds
from widen.protocol.partition_values import Scalar

ORDERS = [
    (INTEGER, LONG, True),
    (LONG, INTEGER, True),
    (DATE, DATE, True),
    (STRING, STRING, True),
    (DecimalType(9, 2), DecimalType(9, 2), True),
    (DecimalType(9, 2), DecimalType(10, 2), False),
    (INTEGER, STRING, False),
    (DATE, TIMESTAMP, False),
    (TIMESTAMP, TIMESTAMP, False),
    (DOUBLE, DOUBLE, False),
]


@pytest.mark.parametrize(("column", "key", "expected"), ORDERS)
def test_types_with_one_order(column: DataType, key: DataType, expected: bool) -> None:
    assert _has_one_order(column, key) is expected


FILES = [
    (INTEGER, (3, 5, False), Bounds(6, 9), False),
    (INTEGER, (3, 5, False), Bounds(5, 9), True),
    (INTEGER, (3, 2**40, False), Bounds(1, 2), False),
    (INTEGER, (3, 5, False), Bounds(6, 9, may_be_null=False), False),
    (INTEGER, (3, 5, True), Bounds(6, 9, may_be_null=True), True),
    (INTEGER, (3, 5, True), Bounds(6, 9, may_be_null=False), False),
    (INTEGER, (None, None, True), Bounds(6, 9, may_be_null=True), True),
    (INTEGER, (None, None, True), Bounds(6, 9, may_be_null=False), False),
    (STRING, ("b", "c", False), Bounds("ca", "d"), False),
    (DATE, (19723, 19724, False), Bounds(date(2024, 1, 3), date(2024, 1, 4)), False),
    (DATE, (19723, 19724, False), Bounds(date(2024, 1, 2), date(2024, 1, 4)), True),
    (DATE, (-800_000, 19724, False), Bounds(date(2023, 1, 3), date(2023, 1, 4)), True),
    (DATE, (-800_000, 19724, False), Bounds(date(2025, 1, 3), date(2025, 1, 4)), False),
]
"""The last two have a key before the year 1, which Python does not have: only the last key is known."""


@pytest.mark.parametrize(("data_type", "keys", "bounds", "expected"), FILES)
def test_files_with_the_keys(
    data_type: DataType, keys: tuple[Scalar | None, Scalar | None, bool], bounds: Bounds, expected: bool
) -> None:
    low, high, has_null = keys
    predicate = within_bounds(Field("k", data_type), low, high, has_null=has_null)
    assert predicate.can_be(lambda *_: bounds, truth=True) is expected
