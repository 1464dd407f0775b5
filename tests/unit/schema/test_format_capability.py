"""The capability table: every pair of types, crossed with every format; and the table as it is printed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from widen.model.schema_json import parse_type
from widen.model.types import BYTE, DATE, DOUBLE, FLOAT, INTEGER, LONG, SHORT, TIMESTAMP_NTZ, DecimalType
from widen.schema.source_metadata import TableFormat, can_widen

DELTA, COMPAT = TableFormat.DELTA, TableFormat.DELTA_ICEBERG_COMPAT
V2, V3 = TableFormat.ICEBERG_V2, TableFormat.ICEBERG_V3
EACH = (DELTA, COMPAT, V2, V3)

# PROTOCOL.md#type-widening and #writer-requirements-for-type-widening; Iceberg's table of promotions.
ALLOWED = {
    ("tinyint", "smallint"): {DELTA, COMPAT},
    ("tinyint", "int"): {DELTA, COMPAT},
    ("tinyint", "bigint"): {DELTA, COMPAT},
    ("smallint", "int"): {DELTA, COMPAT},
    ("smallint", "bigint"): {DELTA, COMPAT},
    ("int", "bigint"): {*EACH},
    ("float", "double"): {*EACH},
    ("tinyint", "double"): {DELTA},
    ("smallint", "double"): {DELTA},
    ("int", "double"): {DELTA},
    ("date", "timestamp_ntz"): {DELTA, V3},
    ("tinyint", "decimal(10,0)"): {DELTA},
    ("smallint", "decimal(10,0)"): {DELTA},
    ("int", "decimal(10,0)"): {DELTA},
    ("tinyint", "decimal(12,2)"): {DELTA},
    ("smallint", "decimal(12,2)"): {DELTA},
    ("int", "decimal(12,2)"): {DELTA},
    ("tinyint", "decimal(14,4)"): {DELTA},
    ("smallint", "decimal(14,4)"): {DELTA},
    ("int", "decimal(14,4)"): {DELTA},
    ("tinyint", "decimal(20,0)"): {DELTA},
    ("smallint", "decimal(20,0)"): {DELTA},
    ("int", "decimal(20,0)"): {DELTA},
    ("bigint", "decimal(20,0)"): {DELTA},
    ("decimal(10,2)", "decimal(12,2)"): {*EACH},
    ("decimal(10,2)", "decimal(14,4)"): {DELTA},
    ("decimal(12,2)", "decimal(14,4)"): {DELTA},
    ("decimal(10,0)", "decimal(20,0)"): {*EACH},
    ("decimal(10,0)", "decimal(12,2)"): {DELTA},
    ("decimal(10,0)", "decimal(14,4)"): {DELTA},
    ("decimal(9,2)", "decimal(10,2)"): {*EACH},
    ("decimal(9,2)", "decimal(12,2)"): {*EACH},
    ("decimal(9,2)", "decimal(14,4)"): {DELTA},
}
TYPES = sorted({text for pair in ALLOWED for text in pair} | {"timestamp", "string", "boolean", "binary"})


def test_which_formats_widen_in_place() -> None:
    able = {
        (old, new): {each for each in TableFormat if can_widen(each, parse_type(old), parse_type(new))}
        for old, new in product(TYPES, TYPES)
    }
    assert {pair: formats for pair, formats in able.items() if formats} == ALLOWED


TABLE = """\
| from | to | delta | delta-iceberg-compat | iceberg-v2 |
|---|---|---|---|---|
| byte | short | ✓ | ✓ | – |
| byte, short | integer | ✓ | ✓ | – |
| byte, short | long | ✓ | ✓ | – |
| integer | long | ✓ | ✓ | ✓ |
| float | double | ✓ | ✓ | ✓ |
| byte, short, integer | double | ✓ | – | – |
| date | timestamp_ntz | ✓ | – | – |
| decimal(p,s) | decimal(p+a, s), a > 0 | ✓ | ✓ | ✓ |
| decimal(p,s) | decimal(p+a, s+b), a ≥ b > 0 | ✓ | – | – |
| byte, short, integer | decimal(10+a, b), a ≥ b ≥ 0 | ✓ | – | – |
| long | decimal(20+a, b), a ≥ b ≥ 0 | ✓ | – | – |"""


# Every change that any format supports: its text, and one pair of types as an example.
CHANGES = (
    ("byte", "short", BYTE, SHORT),
    ("byte, short", "integer", SHORT, INTEGER),
    ("byte, short", "long", SHORT, LONG),
    ("integer", "long", INTEGER, LONG),
    ("float", "double", FLOAT, DOUBLE),
    ("byte, short, integer", "double", INTEGER, DOUBLE),
    ("date", "timestamp_ntz", DATE, TIMESTAMP_NTZ),
    ("decimal(p,s)", "decimal(p+a, s), a > 0", DecimalType(5, 2), DecimalType(6, 2)),
    ("decimal(p,s)", "decimal(p+a, s+b), a ≥ b > 0", DecimalType(5, 2), DecimalType(6, 3)),
    ("byte, short, integer", "decimal(10+a, b), a ≥ b ≥ 0", INTEGER, DecimalType(10, 0)),
    ("long", "decimal(20+a, b), a ≥ b ≥ 0", LONG, DecimalType(20, 0)),
)


def test_the_table_is_printed() -> None:
    formats = (TableFormat.DELTA, TableFormat.DELTA_ICEBERG_COMPAT, TableFormat.ICEBERG_V2)
    lines = [f"| from | to | {' | '.join(each.value for each in formats)} |", "|---" * (2 + len(formats)) + "|"]
    for old, new, old_type, new_type in CHANGES:
        marks = ("✓" if can_widen(each, old_type, new_type) else "–" for each in formats)
        lines.append(f"| {old} | {new} | {' | '.join(marks)} |")
    assert "\n".join(lines) == TABLE


def test_the_readme_has_the_printed_table() -> None:
    assert TABLE in (Path(__file__).parents[3] / "docs" / "type-widening.md").read_text(encoding="utf-8")
