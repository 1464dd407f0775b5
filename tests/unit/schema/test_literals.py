"""Constants of conditions: their values, and the types that Spark gives them."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from widen.schema.literals import read_literal
from widen.schema.table_state import parse_expression

LITERALS: dict[str, tuple[Any, str]] = {
    "NULL": (None, "void"),
    "true": (True, "boolean"),
    "'5'": ("5", "string"),
    "5": (5, "integer"),
    "2147483647": (2**31 - 1, "integer"),
    "2147483648": (2**31, "long"),
    "-2147483648": (-(2**31), "integer"),
    "-(2147483647)": (1 - 2**31, "integer"),
    "-9223372036854775808": (-(2**63), "long"),
    "9223372036854775808": (2**63, "decimal(19,0)"),
    "5L": (5, "long"),
    "5S": (5, "short"),
    "CAST(127 AS TINYINT)": (127, "byte"),
    "1.50": (Decimal("1.50"), "decimal(3,2)"),
    "-.05": (Decimal("-0.05"), "decimal(2,2)"),
    "5.50BD": (Decimal("5.50"), "decimal(3,2)"),
    "5e0": (5.0, "double"),
    "5.5D": (5.5, "double"),
    "5.5F": (5.5, "float"),
    "double('Infinity')": (float("inf"), "double"),
    "DATE '2024-02-29'": (date(2024, 2, 29), "date"),
    "TIMESTAMP_NTZ '2024-02-29 12:00:00'": (datetime(2024, 2, 29, 12), "timestamp_ntz"),
    "TIMESTAMP '2024-02-29 12:00:00+02:00'": (datetime(2024, 2, 29, 10, tzinfo=timezone.utc), "timestamp"),
}


@pytest.mark.parametrize("text", LITERALS)
def test_a_literal_has_the_type_that_spark_gives_it(text: str) -> None:
    found = read_literal(parse_expression(text))
    assert found is not None
    assert (found.value, str(found.type)) == LITERALS[text]
    assert type(found.value) is type(LITERALS[text][0])


@pytest.mark.parametrize(
    "text",
    [
        *("a", "1 + 1", "-(-2147483648)", "CAST(128 AS TINYINT)", "CAST('5' AS INT)", "float(0.1)"),
        *("DATE '2024-2-29'", "TIMESTAMP '2024-02-29 12:00:00'", f"1{'0' * 38}", "1e999", "CAST(1.5 AS DECIMAL(9,3))"),
    ],
)
def test_what_depends_on_more_is_no_literal(text: str) -> None:
    assert read_literal(parse_expression(text)) is None
