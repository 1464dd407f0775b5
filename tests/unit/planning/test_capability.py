from __future__ import annotations

import pytest

from widen.model.text import parse_type
from widen.planning.capability import TableFormat, can_widen

DELTA, COMPAT = TableFormat.DELTA, TableFormat.DELTA_ICEBERG_COMPAT
V2, V3 = TableFormat.ICEBERG_V2, TableFormat.ICEBERG_V3
ROWS = [
    ("int", "bigint", {DELTA, COMPAT, V2, V3}),
    ("float", "double", {DELTA, COMPAT, V2, V3}),
    ("decimal(5,2)", "decimal(9,2)", {DELTA, COMPAT, V2, V3}),
    ("decimal(5,2)", "decimal(9,4)", {DELTA}),
    ("decimal(5,2)", "decimal(5,3)", set()),
    ("int", "double", {DELTA}),
    ("int", "decimal(10,0)", {DELTA}),
    ("bigint", "decimal(20,0)", {DELTA}),
    ("date", "timestamp_ntz", {DELTA, V3}),
    ("date", "timestamp", set()),
    ("bigint", "double", set()),
    ("int", "string", set()),
    ("int", "int", set()),
]


@pytest.mark.parametrize(("old", "new", "able"), ROWS, ids=[f"{row[0]} to {row[1]}" for row in ROWS])
def test_which_formats_widen_in_place(old: str, new: str, able: set[TableFormat]) -> None:
    assert {each for each in TableFormat if can_widen(each, parse_type(old), parse_type(new))} == able
