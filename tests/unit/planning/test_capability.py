from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.model.text import parse_type
from widen.planning.capability import AutomaticWidening, TableFormat, can_widen, parse_automatic_widening

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


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("always", AutomaticWidening.ALWAYS),
        ("ALWAYS", AutomaticWidening.ALWAYS),
        ("same_family", AutomaticWidening.SAME_FAMILY),
        ("Same_Family_Type", AutomaticWidening.SAME_FAMILY),
        ("never", AutomaticWidening.NEVER),
    ],
)
def test_modes_are_named_as_here_or_as_in_delta(text: str, mode: AutomaticWidening) -> None:
    assert parse_automatic_widening(text) is mode


@pytest.mark.parametrize("text", ["", "sometimes", "same family", "true"])
def test_another_mode_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="It is one of always, same_family, never"):
        parse_automatic_widening(text)
