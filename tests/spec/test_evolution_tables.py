"""The rules, vectors and decisions that show in tables only, from files of JSON to what stands in the table."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from widen import IngestResult, ingest
from widen.log.snapshot import open_snapshot
from widen.model.column_path import format_path
from widen.report.build_report import build_report
from widen.table import Table

UTC = timezone.utc
NOON, MAY = datetime(2024, 5, 1, 12, tzinfo=UTC), date(2024, 5, 1)
NOON_MS = 1714564800000

# The vectors with dates: the JSON values of their field in the two intervals, the columns that each interval brings
# by their suffix, and what stands in them for each value.
VECTORS: dict[str, tuple[list[str], list[str], list[dict[str, str]], list[dict[str, Any]]]] = {
    "V1": (
        ["true"],
        ['"2024-05-01"'],
        [{"": "boolean"}, {"_date": "date", "_string": "string"}],
        [{"": True}, {"_date": MAY, "_string": "2024-05-01"}],
    ),
    "V8": (
        ['"2024-05-01T12:00:00Z"'],
        ["1714564800"],
        [{"": "timestamp"}, {"_long": "bigint"}],
        [{"": NOON}, {"": NOON, "_long": 1714564800}],
    ),
    "V9": (["7"], ['"2024-05-01T12:00:00Z"'], [{"": "bigint"}, {}], [{"": 7}, {"": NOON_MS}]),
    "V10": (
        ["7", '"2024-05-01T12:00:00Z"'],
        [],
        [{"": "bigint", "_timestamp": "timestamp"}, {}],
        [{"": 7, "_timestamp": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)}, {"": NOON_MS, "_timestamp": NOON}],
    ),
    "V11a": (['"2024-05-01"'], ["7"], [{"": "date"}, {"_long": "bigint"}], [{"": MAY}, {"_long": 7}]),
    "V11b": (["7"], ['"2024-05-01"'], [{"": "bigint"}, {}], [{"": 7}, {"": 19844}]),
    "V12": (
        ["true", '"2024-05-01"'],
        [],
        [{"": "string", "_boolean": "boolean", "_date": "date"}, {}],
        [{"": "true", "_boolean": True}, {"": "2024-05-01", "_date": MAY}],
    ),
    "V21a": (
        ['"2024-05-01"'],
        ['"2024-05-01T12:00:00Z"'],
        [{"": "date"}, {"_timestamp": "timestamp"}],
        [{"": MAY}, {"_timestamp": NOON}],
    ),
    "V21b": (
        ['"2024-05-01T12:00:00Z"'],
        ['"2024-05-01"'],
        [{"": "timestamp"}, {}],
        [{"": NOON}, {"": datetime(2024, 5, 1, tzinfo=UTC)}],
    ),
}


def records(which: int) -> str:
    """The records of one interval, ``n`` numbers them, ten an interval."""
    fields = {name.lower(): vector[which] for name, vector in VECTORS.items()}
    lines = []
    for number in range(max(map(len, fields.values()))):
        told = [f'"{name}":{values[number]}' for name, values in fields.items() if number < len(values)]
        lines.append(f'{{"n":{10 * which + number},{",".join(told)}}}')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dates")


@pytest.fixture(scope="module")
def intervals(spark: SparkSession, place: Path) -> list[IngestResult]:
    """Two intervals in mode split, with the proof."""
    done = []
    for which in (0, 1):
        (place / f"{which}.jsonl").write_text(records(which), encoding="utf-8")
        words: dict[str, Any] = {"evolve": "split", "detect_dates": True, "verify": True}
        done.append(ingest(str(place / f"{which}.jsonl"), str(place / "table"), spark=spark, **words))
    assert [str(each.verification) for each in done] == [
        "13 of 13 leaves exact",
        "5 of 8 leaves exact, 3 converted as the mode says",  # V9, V11b and V21b bring no column of their own
    ]
    return done


@pytest.fixture(scope="module")
def table(intervals: list[IngestResult], place: Path) -> Table:
    return Table(str(place / "table"))


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: Table) -> dict[int, dict[str, Any]]:
    return by_number(table.read(spark=spark))


def by_number(frame: DataFrame) -> dict[int, dict[str, Any]]:
    """The rows by their number, without what is null in them."""
    instants = {name for name, data_type in frame.dtypes if data_type == "timestamp"}
    found = [row.asDict() for row in frame.collect()]
    told = [{key: value for key, value in row.items() if value is not None} for row in found]
    return {row["n"]: {k: v.astimezone(UTC) if k in instants else v for k, v in row.items()} for row in told}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_has_its_columns(intervals: list[IngestResult], name: str) -> None:
    key, had = name.lower(), set()
    for done, brought in zip(intervals, VECTORS[name][2], strict=True):
        found = {f.name: f.type.sql for f in done.plan.schema if f.name.split("_")[0] == key and f.name not in had}
        assert found == {key + suffix: text for suffix, text in brought.items()}
        had |= found.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_has_its_rows(rows: dict[int, dict[str, Any]], name: str) -> None:
    first, second, _, expected = VECTORS[name]
    numbers = [*range(len(first)), *range(10, 10 + len(second))]
    for number, cells in zip(numbers, expected, strict=True):
        told = {key: value for key, value in rows[number].items() if key.split("_")[0] == name.lower()}
        assert told == {name.lower() + suffix: value for suffix, value in cells.items()}


def test_the_vectors_are_the_same_in_iceberg(
    spark: SparkSession, place: Path, intervals: list[IngestResult], rows: dict[int, dict[str, Any]]
) -> None:
    words: dict[str, Any] = {"evolve": "split", "detect_dates": True, "verify": True, "catalog": place / "c.db"}
    for which, done in enumerate(intervals):
        ours = ingest(str(place / f"{which}.jsonl"), "shop.dates", spark=spark, **words)
        assert str(ours.verification) == str(done.verification)
        assert [str(each) for each in ours.plan.operations] == [str(each) for each in done.plan.operations]
    assert by_number(widen.IcebergTable("shop.dates", place / "c.db").read(spark=spark)) == rows


def test_u19_old_rows_are_not_rewritten(table: Table, rows: dict[int, dict[str, Any]]) -> None:
    """The files of the first interval are those of the last version, and its rows have nothing in later columns."""
    before = set(open_snapshot(table.store, 0).files()["path"].to_pylist())
    assert before < set(table.files()["path"].to_pylist())
    assert "v8_long" not in rows[0]
    assert rows[10]["v8_long"] == 1714564800


def test_u20_the_report_lists_the_columns_that_evolved_with_what_they_are_from(table: Table) -> None:
    shown = {format_path(column.path): column for column in build_report(table.snapshot).columns}
    assert (shown["v8"].evolved_from, shown["v8_long"].evolved_from) == ("", "v8")
    assert (shown["v8"].type, shown["v8_long"].type) == ("timestamp", "bigint")


def test_d9_a_column_is_found_by_its_source_after_a_rename(spark: SparkSession, tmp_path: Path) -> None:
    """Declared and made by ingestion, on the top and in a record; the next interval goes on as if nothing had been."""
    place = str(tmp_path / "table")
    widen.create_table(place, "a int, s struct<x: int>", properties={"delta.columnMapping.mode": "name"})
    for number, text in enumerate(['{"n":1,"a":1,"s":{"x":1},"new":true}', '{"n":2,"a":2,"s":{"x":2},"new":false}']):
        (tmp_path / f"{number}.jsonl").write_text(text + "\n")
        done = ingest(str(tmp_path / f"{number}.jsonl"), place, verify=True, spark=spark)
        assert done.verification is not None
        assert done.verification.is_clean
        if number == 0:
            renamed = Table(place)
            for old, new in (("a", "b"), ("s.x", "y"), ("new", "old")):
                renamed.rename_column(old, new)
    assert done.plan.is_empty
    found = [row.asDict(recursive=True) for row in Table(place).read(spark=spark).orderBy("n").collect()]
    assert found == [
        {"b": 1, "s": {"y": 1}, "n": 1, "old": True},
        {"b": 2, "s": {"y": 2}, "n": 2, "old": False},
    ]
