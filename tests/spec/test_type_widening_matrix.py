"""The matrix of type widening, typed from the protocol: every pair of atomic types, and the decimals at their edges.

Source: PROTOCOL.md#type-widening, #writer-requirements-for-type-widening
"""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.model.schema_json import parse_type
from widen.protocol.type_widening import (
    DECIMAL,
    WIDENINGS,
    Widening,
    is_iceberg_compatible,
    is_same_family,
    is_widening,
)
from widen.schema.source_metadata import AutomaticWidening, TableFormat, can_widen_automatically

PAGE = Path(__file__).resolve().parents[2] / "docs" / "type-widening.md"

TYPES = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(10,0)",
    "decimal(20,0)",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "binary",
    "boolean",
    "void",
]

# A row for the old type, a column for the new one, in the order of TYPES: A explicit, F automatic within one family,
# I known to Iceberg, . refused, = the same.
TABLE = """
tinyint        =   AFI AFI AFI .   A   A   A   .   .   .   .   .   .   .
smallint       .   =   AFI AFI .   A   A   A   .   .   .   .   .   .   .
int            .   .   =   AFI .   A   A   A   .   .   .   .   .   .   .
bigint         .   .   .   =   .   .   .   A   .   .   .   .   .   .   .
float          .   .   .   .   =   AFI .   .   .   .   .   .   .   .   .
double         .   .   .   .   .   =   .   .   .   .   .   .   .   .   .
decimal(10,0)  .   .   .   .   .   .   =   AFI .   .   .   .   .   .   .
decimal(20,0)  .   .   .   .   .   .   .   =   .   .   .   .   .   .   .
date           .   .   .   .   .   .   .   .   =   .   AF  .   .   .   .
timestamp      .   .   .   .   .   .   .   .   .   =   .   .   .   .   .
timestamp_ntz  .   .   .   .   .   .   .   .   .   .   =   .   .   .   .
string         .   .   .   .   .   .   .   .   .   .   .   =   .   .   .
binary         .   .   .   .   .   .   .   .   .   .   .   .   =   .   .
boolean        .   .   .   .   .   .   .   .   .   .   .   .   .   =   .
void           .   .   .   .   .   .   .   .   .   .   .   .   .   .   =
"""

DECIMALS = """
decimal(9,2)   decimal(18,2)   AFI
decimal(8,2)   decimal(9,3)    AF
decimal(9,2)   decimal(19,3)   AF
decimal(6,2)   decimal(10,4)   AF
decimal(5,2)   decimal(8,4)    AF
decimal(10,2)  decimal(38,30)  AF
decimal(10,1)  decimal(11,3)   .
decimal(10,1)  decimal(12,3)   AF
decimal(9,2)   decimal(9,3)    .
decimal(9,2)   decimal(8,2)    .
decimal(18,2)  decimal(8,1)    .
decimal(18,2)  decimal(19,1)   .
decimal(9,2)   decimal(10,4)   .
decimal(18,2)  decimal(12,1)   .
decimal(9,2)   double          .
float          decimal(38,10)  .
tinyint        decimal(3,0)    .
tinyint        decimal(9,0)    .
tinyint        decimal(11,1)   A
smallint       decimal(5,0)    .
smallint       decimal(12,2)   A
int            decimal(9,0)    .
int            decimal(10,0)   A
int            decimal(12,3)   .
int            decimal(15,5)   A
int            decimal(38,28)  A
int            decimal(38,29)  .
bigint         decimal(19,0)   .
bigint         decimal(20,0)   A
bigint         decimal(21,1)   A
bigint         decimal(25,5)   A
bigint         decimal(38,19)  .
bigint         decimal(38,18)  A
"""

PAIRS = [
    (old, new, marks)
    for line in TABLE.strip().splitlines()
    for old, *row in [line.split()]
    for new, marks in zip(TYPES, row, strict=True)
] + [(old, new, marks) for line in DECIMALS.strip().splitlines() for old, new, marks in [line.split()]]

DEPTHS = ("c {}", "c struct<x: {}>", "c array<{}>", "c map<{}, int>", "c map<int, {}>", "c array<map<int, array<{}>>>")


def test_the_matrix() -> None:
    rules = {"A": is_widening, "F": is_same_family, "I": is_iceberg_compatible}
    found = {
        (old, new): {mark for mark, rule in rules.items() if rule(parse_type(old), parse_type(new))}
        for old, new, _ in PAIRS
    }
    assert found == {(old, new): set(marks) & {*rules} for old, new, marks in PAIRS}


@pytest.mark.parametrize(
    ("table", "always", "same_family"),
    [
        (TableFormat.DELTA, "A", "F"),
        (TableFormat.DELTA_ICEBERG_COMPAT, "I", "FI"),
        (TableFormat.DELTA_FIXED, "no mark", "no mark"),
    ],
)
def test_what_a_write_may_widen_by_itself(table: TableFormat, always: str, same_family: str) -> None:
    needed = {AutomaticWidening.ALWAYS: always, AutomaticWidening.SAME_FAMILY: same_family}
    found = {
        (old, new, mode): can_widen_automatically(table, mode, parse_type(old), parse_type(new))
        for old, new, _ in PAIRS
        for mode in AutomaticWidening
    }
    assert found == {
        (old, new, mode): mode in needed and {*needed[mode]} <= {*marks}
        for old, new, marks in PAIRS
        for mode in AutomaticWidening
    }


@pytest.mark.parametrize("wide", ["struct<x: bigint>", "array<bigint>", "map<int, bigint>"])
def test_no_nested_type_widens_as_a_whole(wide: str) -> None:
    assert not is_widening(parse_type(wide.replace("bigint", "int")), parse_type(wide))
    assert not is_widening(parse_type("int"), parse_type(wide))


def test_widening_in_steps_stays_in_the_matrix() -> None:
    """A file may be several changes old: readers meet every composed pair."""
    names = [*TYPES, "decimal(12,2)", "decimal(22,2)", "decimal(38,18)"]
    types = [parse_type(name) for name in names]
    steps = {(a, b) for a in types for b in types if is_widening(a, b)}
    assert [f"{a} {b} {c}" for a, b in steps for c in types if (b, c) in steps and (a, c) not in steps] == []


PRINTED = """\
| from | to | A | F | I |
|---|---|---|---|---|
| byte | short, integer, long | ✓ | ✓ | ✓ |
| short | integer, long | ✓ | ✓ | ✓ |
| integer | long | ✓ | ✓ | ✓ |
| float | double | ✓ | ✓ | ✓ |
| byte, short, integer | double | ✓ | – | – |
| date | timestamp_ntz | ✓ | ✓ | – |
| decimal(p,s) | decimal(p+a, s), a ≥ 0 | ✓ | ✓ | ✓ |
| decimal(p,s) | decimal(p+a, s+b), a ≥ b ≥ 0 | ✓ | ✓ | – |
| byte, short, integer | decimal(10+a, b), a ≥ b ≥ 0 | ✓ | – | – |
| long | decimal(20+a, b), a ≥ b ≥ 0 | ✓ | – | – |"""


def test_the_rule_can_be_printed_and_the_documentation_shows_it() -> None:
    assert _printed_matrix() == PRINTED
    assert PRINTED in PAGE.read_text(encoding="utf-8")


def _printed_matrix() -> str:
    """The matrix as the documentation shows it, a row for each row of `WIDENINGS`.

    A: explicit changes, and automatic widening without restriction. F: automatic widening limited to one family of
    types. I: supported by Iceberg V2 too.
    """
    lines = ["| from | to | A | F | I |", "|---|---|---|---|---|"]
    for row in WIDENINGS:
        marks = (True, row.same_family, row.iceberg)
        old, new = _to_text(row.old, "decimal(p,s)"), _to_text(row.new, _new_decimal(row))
        lines.append(f"| {old} | {new} | " + " | ".join("✓" if mark else "–" for mark in marks) + " |")
    return "\n".join(lines)


def _to_text(names: tuple[str, ...], decimal: str) -> str:
    return ", ".join(decimal if name == DECIMAL else name for name in names)


def _new_decimal(row: Widening) -> str:
    if row.keeps_scale:
        return "decimal(p+a, s), a ≥ 0"
    start = f"{row.integer_digits}+a, b" if row.integer_digits else "p+a, s+b"
    return f"decimal({start}), a ≥ b ≥ 0"
