"""Parquet columns of the type null: no column until there is a value, on Spark and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import widen
from widen.batches import int96_times

NULL = pa.null()
RECORD = pa.struct({"x": pa.int64(), "n": NULL})
NULLS = pa.table(
    {
        "id": pa.array([1, 2]),
        "n": pa.nulls(2),
        "s": pa.array([{"x": 1}] * 2, RECORD),
        "o": pa.array([{"n": None}, None], pa.struct({"n": NULL})),
        "l": pa.array([[None, None], []], pa.list_(NULL)),
        "r": pa.array([[], None], pa.list_(NULL)),
        "m": pa.array([[("k", None)], []], pa.map_(pa.string(), NULL)),
        "d": pa.array([[{"n": None}], []], pa.list_(pa.struct({"n": NULL}))),
    }
)
TEXTS = pa.table(
    {
        "id": [3],
        "n": ["a"],
        "s": [{"x": 1, "n": "b"}],
        "o": [{"n": "c"}],
        "l": [["d"]],
        "r": [[{"a": 1, "b": "e"}]],
        "m": pa.array([[("k", "f")]], pa.map_(pa.string(), pa.string())),
        "d": [[{"n": "g"}]],
    }
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "n": None,
        "s": {"x": 1, "n": None},
        "o": {"n": None},
        "l": [None, None],
        "r": [],
        "m": [("k", None)],
        "d": [{"n": None}],
    },
    {"id": 2, "n": None, "s": {"x": 1, "n": None}, "o": None, "l": [], "r": None, "m": [], "d": []},
]
"""The records of `NULLS` in a table that has a column for each field."""


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Where the loads run."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


def load(files: Path, table: Path, engine: str, **options: Any) -> widen.IngestResult:
    done = widen.ingest(str(files), str(table), engine=engine, verify=True, **options)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def read(table: Path) -> list[dict[str, Any]]:
    return sorted(widen.Table(str(table)).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_no_column_until_there_is_a_value(tmp_path: Path, engine: str) -> None:
    pq.write_table(NULLS, tmp_path / "nulls.parquet")
    pq.write_table(TEXTS, tmp_path / "texts.parquet")
    table = tmp_path / "table"
    plan = load(tmp_path / "nulls.parquet", table, engine).plan
    assert {".".join(each.source) for each in plan.pending} == {"n", "s.n", "o.n", "l", "r", "m", "d.n"}
    assert widen.Table(str(table)).schema.sql == "struct<id: bigint, s: struct<x: bigint>>"
    load(tmp_path / "texts.parquet", table, engine)
    names = {"id", "s", "l", "m", "d", "n", "o", "r"}
    assert set(widen.Table(str(table)).schema.names) == names
    assert load(tmp_path / "nulls.parquet", table, engine).plan.is_empty
    assert set(widen.Table(str(table)).schema.names) == names
    again = [row for row in read(table) if row["id"] < 3 and (row["l"] is not None)]
    assert again == [{name: row[name] for name in again[0]} for row in ROWS]


def test_nulls_of_one_file_stand_beside_values_of_another(tmp_path: Path, engine: str) -> None:
    """Spark takes nulls for integers, so it merges files of nulls and of integers, and not those of nulls and texts."""
    pq.write_table(NULLS, tmp_path / "a.parquet")
    pq.write_table(TEXTS, tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": [4], "i": pa.array([1], pa.int32())}), tmp_path / "c.parquet")
    pq.write_table(pa.table({"id": [5], "i": pa.nulls(1)}), tmp_path / "d.parquet")
    load(tmp_path / "*.parquet", tmp_path / "table", engine)
    schema = widen.Table(str(tmp_path / "table")).schema
    assert {each.name: each.type.sql for each in schema if each.name in "nil"} == {
        "n": "string",
        "i": "int",
        "l": "array<string>",
    }
    assert [{key: row[key] for key in ROWS[0]} for row in read(tmp_path / "table")][:2] == ROWS


def test_a_masked_null_column_waits_for_a_value(tmp_path: Path, engine: str) -> None:
    pq.write_table(NULLS.drop_columns(["m"]), tmp_path / "nulls.parquet")
    plan = load(tmp_path / "nulls.parquet", tmp_path / "t", engine, mask=["n"], exclude=["o"]).plan
    assert widen.Table(str(tmp_path / "t")).schema.names == ("id", "s")
    assert {".".join(each.source) for each in plan.pending} == {"s.n", "l", "r", "d.n"}


def test_files_that_only_spark_can_open(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(NULLS, tmp_path / "nulls.parquet")
    opened = int96_times._open

    def refuse(path: str, content: bytes | None = None, unit: str = "us") -> pq.ParquetFile:
        if content is None:
            raise OSError("no filesystem for this scheme")
        return opened(path, content, unit)

    monkeypatch.setattr(int96_times, "_open", refuse)
    load(tmp_path / "nulls.parquet", tmp_path / "table", "spark")
    assert widen.Table(str(tmp_path / "table")).schema.names == ("id", "s")


def test_many_files_are_looked_at_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int96_times, "DRIVER_FOOTERS", 1)
    for number in range(2):
        pq.write_table(NULLS, tmp_path / f"{number}.parquet")
    load(tmp_path / "*.parquet", tmp_path / "table", "spark")
    assert widen.Table(str(tmp_path / "table")).schema.names == ("id", "s")
