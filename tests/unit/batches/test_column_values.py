"""Values of Parquet files in columns of other types, without Spark: exact, or null."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.batches import column_copy
from widen.errors import EngineUnsuitable
from widen.files.arrow_types import to_arrow
from widen.files.conversions import convert_values, number_texts
from widen.files.data_reader import NotLocal
from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

NAN, INFINITE = float("nan"), float("inf")

CONVERTED: Sequence[tuple[DataType, DataType, Sequence[Any], Sequence[Any]]] = (
    (LONG, SHORT, [-(2**15), 2**15, -(2**63), None], [-(2**15), None, None, None]),
    (LONG, DOUBLE, [2**53, 2**53 + 1, 2**60, -7], [2.0**53, None, None, -7.0]),
    (LONG, FLOAT, [2**24, 2**24 + 2], [2.0**24, None]),
    (LONG, DecimalType(3, 1), [99, 100, -(2**63)], [Decimal("99.0"), None, None]),
    (LONG, STRING, [-(2**63), None], ["-9223372036854775808", None]),
    (DOUBLE, FLOAT, [0.5, 0.1, 1e300, -INFINITE], [0.5, None, None, -INFINITE]),
    (DOUBLE, DecimalType(4, 2), [1.25, 1.255, 100.0, -0.0, 1e-9, NAN], [Decimal("1.25"), None, None, None, None, None]),
    (DecimalType(20, 2), DOUBLE, [Decimal("0.10"), Decimal("123456789012345678.25")], [0.1, None]),
    (DecimalType(5, 2), DecimalType(3, 1), [*map(Decimal, ("1.50", "1.55", "100.00"))], [Decimal("1.5"), None, None]),
    (DecimalType(5, 2), STRING, [Decimal("-1.50"), Decimal("0.00")], ["-1.50", "0.00"]),
    (BOOLEAN, LONG, [True, False], [1, 0]),
    (BOOLEAN, STRING, [True, None], ["true", None]),
    (DATE, INTEGER, [date(1969, 12, 31)], [-1]),
    (DATE, STRING, [date(1, 1, 1)], ["0001-01-01"]),
    (DATE, TIMESTAMP_NTZ, [date(9999, 12, 31)], [datetime(9999, 12, 31)]),
    (TIMESTAMP_NTZ, STRING, [datetime(2024, 5, 6, 7, 8, 9, 10_000)], ["2024-05-06T07:08:09.01"]),
    (TIMESTAMP_NTZ, STRING, [datetime(2024, 5, 6)], ["2024-05-06T00:00:00"]),
    (TIMESTAMP_NTZ, LONG, [datetime(2024, 5, 6)], None),
)


@pytest.mark.parametrize(("old", "new", "values", "wanted"), CONVERTED)
def test_a_column_holds_the_values_that_it_represents_exactly(
    old: DataType, new: DataType, values: Sequence[Any], wanted: Sequence[Any] | None
) -> None:
    found = convert_values(pa.array(values, to_arrow(old)), old, new)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert found.type == to_arrow(new)
    assert found.to_pylist() == list(wanted)


def test_numbers_are_written_as_java_writes_them() -> None:
    numbers = [0.0, -0.0, 1.0, 0.001, 0.00099, 9999999.0, 1e7, 1.5e-7, 123456789.25, 1.7e308, NAN, -INFINITE, None]
    texts = ["0.0", "-0.0", "1.0", "0.001", "9.9E-4", "9999999.0", "1.0E7", "1.5E-7", "1.2345678925E8", "1.7E308"]
    assert number_texts(pa.array(numbers)).to_pylist() == [*texts, "NaN", "-Infinity", None]
    assert number_texts(pa.array([0.1, 3e10, None], pa.float32())).to_pylist() == ["0.1", "3.0E10", None]


def test_timestamps_are_numbers_only_where_they_are_whole_milliseconds() -> None:
    values = pa.array([1_000, 1_001, -1_000, -1], pa.timestamp("us", "UTC"))
    for new, wanted in ((LONG, [1, None, -1, None]), (DecimalType(5, 0), [Decimal(1), None, Decimal(-1), None])):
        found = convert_values(values, TIMESTAMP, new)
        assert found is not None
        assert found.to_pylist() == wanted


def test_the_size_of_a_number_says_what_it_counts() -> None:
    values = pa.array([10**11 - 1, 10**11, 10**14, 10**17, 10**17 + 1, -(2**63), -(2**63) + 1000 - 192])
    found = convert_values(values, LONG, TIMESTAMP)
    assert found is not None
    micros = [(10**11 - 1) * 10**6, 10**14, 10**14, 10**14, None, None, -9_223_372_036_854_775]
    assert found.cast(pa.int64()).to_pylist() == micros


@pytest.mark.parametrize("days", [-719_163, 2_932_897])
def test_years_that_not_all_systems_have_are_left_to_spark(days: int) -> None:
    with pytest.raises(NotLocal, match="years 1 and 9999"):
        convert_values(pa.array([days], pa.date32()), DATE, STRING)


@pytest.mark.parametrize("is_few", [True, False])
def test_what_this_process_does_not_convert_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_few: bool
) -> None:
    monkeypatch.setattr(column_copy, "are_few", lambda *_: is_few)
    rows = pa.table({"v": pa.array([0] * 20_000 + [2_932_897], pa.date32())})
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=10_000)
    widen.create_table(str(tmp_path / "t"), "v string")
    with pytest.raises(EngineUnsuitable, match="years 1 and 9999"):
        widen.ingest(str(tmp_path / "in.parquet"), str(tmp_path / "t"), engine="local")
    assert not [*(tmp_path / "t").glob("**/*.parquet")]
