"""Fractions that keep the digits as written, on the fast path too, and proved."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from widen.ingestion import ingest
from widen.table import Table


def test_prices_keep_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    days = [["12.50", "7"], ["3.125", "0.10", "null"], ['"free"', "1.00"]]
    for number, day in enumerate(days):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(f'{{"n": {number}, "price": {price}}}\n' for price in day))
        done = ingest(str(file), table, numbers="decimal", verify=True, spark=spark)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
    opened = Table(table)
    assert {field.name: field.type.sql for field in opened.schema} == {
        "n": "int",
        "price": "decimal(5,3)",
        "price_string": "string",
    }
    prices = sorted(row.price for row in opened.read(spark=spark).collect() if row.price is not None)
    assert prices == [Decimal("0.100"), Decimal("1.000"), Decimal("3.125"), Decimal("7.000"), Decimal("12.500")]
