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
from widen.errors import SourceContentError
from widen.files.arrow_types import to_arrow
from widen.files.conversions import TOTAL_CONVERSIONS, convert_values, number_texts, temporal_values
from widen.json.observation import TemporalString
from widen.model.schema_json import parse_type
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


TIMES = TemporalString(has_instants=True, has_local_times=True)
MANY_YEARS: Sequence[tuple[DataType, Sequence[int | None], Sequence[str | None]]] = (
    (DATE, [-719_163, -800_000, 2_932_896, 2_932_897, 2**31 - 1, None],
     ["0000-12-31", "-0221-09-04", "9999-12-31", "+10000-01-01", "+5881580-07-11", None]),
    (TIMESTAMP, [-62_135_596_800_000_001, 253_402_300_800_000_000, 500_000],
     ["0000-12-31T23:59:59.999999Z", "+10000-01-01T00:00:00Z", "1970-01-01T00:00:00.5Z"]),
    (TIMESTAMP_NTZ, [253_402_300_800_000_000, 2**63 - 1], ["+10000-01-01T00:00:00", "+294247-01-10T04:00:54.775807"]),
)  # fmt: skip


@pytest.mark.parametrize(("old", "numbers", "texts"), MANY_YEARS)
def test_years_that_not_all_systems_have_are_texts_as_spark_writes_them(
    old: DataType, numbers: Sequence[int | None], texts: Sequence[str | None]
) -> None:
    values = pa.array(numbers, pa.int32() if old == DATE else pa.int64()).cast(to_arrow(old))
    found = convert_values(values, old, STRING)
    assert found is not None
    assert found.to_pylist() == texts


def test_small_fractions_are_written_without_an_exponent() -> None:
    values = pa.array([Decimal("0.0000001"), Decimal("-12.5"), None], pa.decimal128(20, 8))
    found = convert_values(pa.concat_arrays([values, values]).slice(2, 3), DecimalType(20, 8), STRING)
    assert found is not None
    assert found.to_pylist() == [None, "0.00000010", "-12.50000000"]


def test_strings_are_read_as_dates_and_times_of_the_calendar() -> None:
    texts = pa.array(["2024-02-29", "2023-02-29", "1900-02-29", "0000-01-01", "2024-05-01T10:00:00.5Z", "x", None])
    days, instants = (temporal_values(texts, each) for each in (DATE, TIMESTAMP))
    assert days.to_pylist() == [date(2024, 2, 29), *[None] * 6]
    assert instants.cast(pa.int64()).to_pylist() == [*[None] * 4, 1_714_557_600_500_000, None, None]
    numbers = convert_values(texts, TIMES, LONG)
    assert numbers is not None
    assert numbers.to_pylist() == [19_782, None, None, None, 1_714_557_600_500, None, None]


@pytest.mark.parametrize("is_few", [True, False])
def test_a_date_that_no_timestamp_has_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_few: bool
) -> None:
    monkeypatch.setattr(column_copy, "are_few", lambda *_: is_few)
    rows = pa.table({"v": pa.array([0] * 20_000 + [2**31 - 1], pa.date32())})
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=10_000)
    widen.create_table(str(tmp_path / "t"), "v timestamp")
    with pytest.raises(SourceContentError, match="292,000 years away"):
        widen.ingest(str(tmp_path / "in.parquet"), str(tmp_path / "t"), engine="local")
    assert not [*(tmp_path / "t").glob("**/*.parquet")]


DECIDED: Sequence[tuple[str, str, Sequence[object], Sequence[object]]] = (
    # The shortest text of the nearest double must denote the same integer.
    ("bigint", "double", [2**53, 2**53 + 1, 2**62, 1234567890123456770, 1234567890123456800],
     [2.0**53, None, None, None, 1234567890123456800.0]),
    ("bigint", "float", [2**24, 2**24 + 1, -(2**24)], [2.0**24, None, -(2.0**24)]),
    ("decimal(38,10)", "double", [Decimal("1E+23"), Decimal("0.1")], [1e23, 0.1]),
    ("double", "string", [1e23, 5e-324, 1e7, 0.001, -0.0, float("nan"), float("-inf")],
     ["1.0E23", "5.0E-324", "1.0E7", "0.001", "-0.0", "NaN", "-Infinity"]),
    ("float", "string", [9007199254740992.0, 1e17, 0.1], ["9.007199E15", "1.0E17", "0.1"]),
    ("double", "decimal(38,10)", [1e23, 0.1, 1e-11, -0.0, float("nan")],
     [Decimal("1E+23"), Decimal("0.1"), None, None, None]),
    ("float", "decimal(12,8)", [0.1, 12.345, 1e-8, 5e-9, -0.0, 1e10, float("inf")],
     [Decimal("0.1"), Decimal("12.34500027"), Decimal("1E-8"), None, None, None, None]),
    ("float", "decimal(38,38)", [0.5, 1.4e-45, 1.0], [Decimal("0.5"), None, None]),
    ("decimal(12,8)", "float", [Decimal("0.1"), Decimal("123.45678901"), Decimal("0.5")], [0.1, None, 0.5]),
    ("decimal(12,8)", "string", [Decimal("0.0000001"), Decimal("-0.5")], ["0.00000010", "-0.50000000"]),
    ("decimal(12,8)", "decimal(5,2)", [Decimal("1.25"), Decimal("1.255"), Decimal(1000)],
     [Decimal("1.25"), None, None]),
    ("boolean", "decimal(5,2)", [True, False], [1, 0]),
    ("boolean", "string", [True, False], ["true", "false"]),
    ("date", "timestamp_ntz", [date(2024, 5, 1)], [datetime(2024, 5, 1)]),
    ("date", "decimal(5,2)", [date(1970, 1, 2), date(2024, 5, 1)], [1, None]),
    ("timestamp", "bigint", [datetime(1970, 1, 1, 0, 0, 0, 1000), datetime(1970, 1, 1, 0, 0, 0, 1)], [1, None]),
    ("int", "tinyint", [127, 128, -128, -129], [127, None, -128, None]),
)  # fmt: skip
"""Values of a type, and what a column of another type holds of them: exactly that, or nothing."""


@pytest.mark.parametrize(("old", "new", "values", "held"), DECIDED)
def test_a_column_holds_a_value_exactly_or_not_at_all(
    old: str, new: str, values: Sequence[object], held: Sequence[object]
) -> None:
    types = parse_type(old), parse_type(new)
    found = convert_values(pa.array([*values, None], to_arrow(types[0])), *types)
    assert found is not None
    expected = pa.array([*held, None], to_arrow(types[1]))
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(("old", "new"), sorted(TOTAL_CONVERSIONS))
def test_a_column_that_holds_every_value_loses_none(old: str, new: str) -> None:
    values = {"boolean": [True, False], "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]}[old]
    types = parse_type(old), parse_type({"byte": "tinyint", "short": "smallint"}.get(new, new))
    found = convert_values(pa.array(values, to_arrow(types[0])), *types)
    assert found is not None
    assert (found.null_count, len(found.unique())) == (0, len(values))
