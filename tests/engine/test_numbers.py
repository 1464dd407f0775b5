"""Numbers that keep the digits as written, or that are rounded to doubles: on the fast path too, and proved."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from widen import check_contract, ingest
from widen.rows import row
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


@pytest.mark.parametrize(
    ("numbers", "column", "prices"),
    [
        ("decimal", "decimal(4,2)", [Decimal("0.10"), Decimal("3.00"), Decimal("12.50")]),
        ("double", "double", [0.1, 3.0, 12.5]),
    ],
)
def test_prices_in_csv_are_numbers(
    spark: SparkSession, tmp_path: Path, numbers: str, column: str, prices: list[object]
) -> None:
    (tmp_path / "a.csv").write_text("price,code\n12.50,1e3\n3,007\n0.10,1.2.3\n")
    options = {"detect_types": True, "numbers": numbers}
    done = ingest(str(tmp_path / "a.csv"), str(tmp_path / "t"), **options, verify=True, spark=spark)  # type: ignore[arg-type]
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    opened = Table(str(tmp_path / "t"))
    assert [(field.name, field.type.sql) for field in opened.schema] == [("code", "string"), ("price", column)]
    found = opened.read(spark=spark).collect()
    assert sorted(each.price for each in found) == prices
    assert sorted(each.code for each in found) == ["007", "1.2.3", "1e3"]
    kept = check_contract(str(tmp_path / "a.csv"), opened.contract(), **options, spark=spark)  # type: ignore[arg-type]
    assert kept.breaches == 0


def test_numbers_that_meet_are_rounded_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    days = [
        ["2.5", "0.12345678901234567891", "9007199254740993", "7"],
        ["[1.5, 0.30000000000000000001]", "1e400", "null"],
        ["9007199254740993", "0.1"],
    ]
    rounded = []
    for number, day in enumerate(days):
        file = tmp_path / f"{number}.jsonl"
        lines = (f'{{"id": 9007199254740993, "r": {{"x": {value}}}, "x": {value}}}\n' for value in day)
        file.write_text("".join(lines) + '{"id": 1, "x": 3}\n' * 20)
        done = ingest(str(file), table, numbers="double", verify=True, spark=spark)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
        assert done.verification.converted >= done.plan.rounded_values
        rounded.append(done.to_value()["roundedValues"])
    assert rounded == [4, 2, 2]
    opened = Table(table)
    assert {field.name: field.type.sql for field in opened.schema if field.name != "r"} == {
        "id": "bigint",
        "x": "double",
        "x_array_double": "array<double>",
        "x_array_string": "array<string>",
        "x_string": "string",
    }
    values = [each.x for each in opened.read(spark=spark).where("x <> 3").collect()]
    assert sorted(values) == [0.1, 0.12345678901234568, 2.5, 7.0, 9007199254740992.0, 9007199254740992.0]
    assert [int(each.metrics["numRoundedValues"]) for each in opened.history()] == rounded[::-1]


def test_the_proof_finds_a_number_that_is_rounded_wrongly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"x": 0.12345678901234567891}\n{"x": 2.5}\n')
    monkeypatch.setattr(row, "float", lambda text: math.nextafter(float(text), 1), raising=False)
    done = ingest(str(file), str(tmp_path / "t"), numbers="double", verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.lost == 1
