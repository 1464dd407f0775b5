"""The one table of type changes: what may widen into what, with values at the edges before and after.

Expected values are typed from the specification: the matrix of PROTOCOL.md#type-widening, exact conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

D = Decimal
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """One pair of the matrix.

    Args:
        old: The type before, in SQL.
        new: The type after.
        before: Values written in the old type.
        widened: What they read as in the new type.
        after: Values written in the new type, beyond the reach of the old one where there are such.
    """

    old: str
    new: str
    before: tuple[Any, ...]
    widened: tuple[Any, ...]
    after: tuple[Any, ...]

    @property
    def name(self) -> str:
        """A name that can be one of a column."""
        return f"{self.old}_to_{self.new}".replace("(", "_").replace(")", "").replace(",", "_")

    def __str__(self) -> str:
        return f"{self.old}->{self.new}"


BYTES = (-1, 0, 1, -128, 127)
SHORTS = (-1, 0, 1, -32768, 32767)
INTS = (-1, 0, 1, -2147483648, 2147483647)
LONGS = (-1, 0, 1, -9223372036854775808, 9223372036854775807)
DATES = (date(2020, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31))
MIDNIGHTS = (datetime(2020, 1, 1), datetime(2024, 2, 29), datetime(1, 1, 1), datetime(9999, 12, 31))
TIMES = (datetime(2020, 3, 17, 15, 23, 15, 123456), datetime(2058, 12, 31, 23, 59, 59, 999000), datetime(1, 1, 1))

CASES = (
    Case("tinyint", "smallint", BYTES, BYTES, SHORTS),
    Case("tinyint", "int", BYTES, BYTES, INTS),
    Case("tinyint", "bigint", BYTES, BYTES, LONGS),
    Case("smallint", "int", SHORTS, SHORTS, INTS),
    Case("smallint", "bigint", SHORTS, SHORTS, LONGS),
    Case("int", "bigint", INTS, INTS, LONGS),
    Case("tinyint", "double", BYTES, (-1.0, 0.0, 1.0, -128.0, 127.0), (0.1, -0.0, 1.7976931348623157e308)),
    Case("smallint", "double", SHORTS, (-1.0, 0.0, 1.0, -32768.0, 32767.0), (0.1, NAN, INF)),
    Case("int", "double", INTS, (-1.0, 0.0, 1.0, -2147483648.0, 2147483647.0), (0.1, 5e-324, -INF)),
    Case(
        "float",
        "double",
        (1234.56787109375, 3.4000000953674316, -0.0, 0.0, NAN, INF, -INF, 3.4028234663852886e38, 1.401298464324817e-45),
        (1234.56787109375, 3.4000000953674316, -0.0, 0.0, NAN, INF, -INF, 3.4028234663852886e38, 1.401298464324817e-45),
        (987654321.987654321, 3.4, -0.0, NAN, 1.7976931348623157e308, 5e-324),
    ),
    Case("date", "timestamp_ntz", DATES, MIDNIGHTS, TIMES),
    Case(
        "decimal(9,2)",
        "decimal(18,2)",
        (D("1.23"), D("0.00"), D("-9999999.99"), D("9999999.99")),
        (D("1.23"), D("0.00"), D("-9999999.99"), D("9999999.99")),
        (D("9999999999999999.99"), D("-9999999999999999.99"), D("0.01")),
    ),
    Case(
        "decimal(8,2)",
        "decimal(9,3)",
        (D("1.23"), D("-999999.99"), D("999999.99")),
        (D("1.230"), D("-999999.990"), D("999999.990")),
        (D("0.001"), D("999999.999")),
    ),
    Case(
        "decimal(9,2)",
        "decimal(19,3)",
        (D("1.23"), D("-9999999.99"), D("9999999.99")),
        (D("1.230"), D("-9999999.990"), D("9999999.990")),
        (D("9999999999999999.999"), D("0.001")),
    ),
    Case(
        "decimal(18,0)",
        "decimal(38,0)",
        (D("999999999999999999"), D("-999999999999999999")),
        (D("999999999999999999"), D("-999999999999999999")),
        (D("99999999999999999999999999999999999999"), D("0")),
    ),
    Case(
        "tinyint",
        "decimal(10,0)",
        BYTES,
        (D("-1"), D("0"), D("1"), D("-128"), D("127")),
        (D("9999999999"), D("-9999999999")),
    ),
    Case(
        "smallint",
        "decimal(12,2)",
        SHORTS,
        (D("-1.00"), D("0.00"), D("1.00"), D("-32768.00"), D("32767.00")),
        (D("9999999999.99"), D("0.01")),
    ),
    Case(
        "int",
        "decimal(10,0)",
        INTS,
        (D("-1"), D("0"), D("1"), D("-2147483648"), D("2147483647")),
        (D("9999999999"), D("-9999999999")),
    ),
    Case(
        "int",
        "decimal(38,18)",
        INTS,
        tuple(D(v).scaleb(0).quantize(D("1e-18")) for v in ("-1", "0", "1", "-2147483648", "2147483647")),
        (D("99999999999999999999.999999999999999999"), D("1e-18")),
    ),
    Case(
        "bigint",
        "decimal(20,0)",
        LONGS,
        (D("-1"), D("0"), D("1"), D("-9223372036854775808"), D("9223372036854775807")),
        (D("99999999999999999999"), D("-99999999999999999999")),
    ),
    Case(
        "bigint",
        "decimal(38,18)",
        LONGS,
        (
            D("-1.000000000000000000"),
            D("0.000000000000000000"),
            D("1.000000000000000000"),
            D("-9223372036854775808.000000000000000000"),
            D("9223372036854775807.000000000000000000"),
        ),
        (D("0.000000000000000001"),),
    ),
)
"""Every pair here is in the matrix."""

REFUSED = (
    ("int", "tinyint"),
    ("bigint", "int"),
    ("double", "float"),
    ("bigint", "double"),
    ("int", "float"),
    ("tinyint", "decimal(2,0)"),
    ("tinyint", "decimal(3,0)"),
    ("smallint", "decimal(4,0)"),
    ("int", "decimal(9,0)"),
    ("bigint", "decimal(19,0)"),
    ("timestamp_ntz", "date"),
    ("date", "timestamp"),
    ("decimal(9,2)", "decimal(9,3)"),
    ("decimal(9,2)", "decimal(8,2)"),
    ("decimal(9,2)", "decimal(10,4)"),
    ("decimal(9,2)", "double"),
    ("int", "string"),
    ("boolean", "int"),
)
"""Pairs that are not in it."""
