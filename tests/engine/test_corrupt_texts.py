"""Texts of typed sources that are not UTF-8: their records are corrupt, and kept whole, as in JSON and CSV."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import widen

GOOD, BAD = b"Gr\xc3\xb6\xc3\x9fe", b"Gr\xf6\xdfe"


def texts(*values: bytes | None) -> pa.Array:
    """Texts that Arrow does not check."""
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


def struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values, pa.array(range(len(values)))], ["x", "y"])


def lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(list(range(len(values) + 1)), values)


def keys(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(list(range(len(values) + 1)), values, pa.array(["v"] * len(values)))


def entries(values: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(list(range(len(values) + 1)), pa.array(["k"] * len(values)), values)


PLACES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "top": lambda values: values,
    "struct": struct,
    "list": lists,
    "key": keys,
    "value": entries,
    "deep": lambda values: lists(struct(lists(values))),
}


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Where the loads run."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


def write(place: Path, values: pa.Array, **columns: Any) -> None:
    count = len(values)
    pq.write_table(pa.table({"id": pa.array(range(count)), "v": values, **columns}), place, row_group_size=2)


def load(source: Any, table: Path, **options: Any) -> widen.IngestResult:
    done = widen.ingest(source, str(table), verify=True, **options)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def corrupt(table: str | Path, **options: Any) -> dict[str, bytes]:
    """The bytes of the corrupt records by the place that the table names."""
    rows = widen.Table(str(table), **options).to_arrow().to_pylist()
    found = [row for row in rows if row["_corrupt_record"] is not None]
    assert all(row["id"] is None and row["v"] is None for row in found)
    return {row["_corrupt_at"].rpartition("/")[2]: ast.literal_eval(row["_corrupt_record"]) for row in found}


@pytest.mark.parametrize("place", PLACES)
def test_the_record_is_corrupt_and_the_others_are_loaded(tmp_path: Path, engine: str, place: str) -> None:
    write(tmp_path / "a.parquet", PLACES[place](texts(GOOD, GOOD, GOOD, BAD, GOOD, BAD)))
    write(tmp_path / "b.parquet", PLACES[place](texts(GOOD)))
    for _ in range(2):  # with and without the column of corrupt records
        done = load(str(tmp_path / "*.parquet"), tmp_path / "table", engine=engine)
        assert (done.records, done.corrupt) == (5, 2)
    assert widen.Table(str(tmp_path / "table")).to_arrow().num_rows == 14
    found = corrupt(tmp_path / "table")
    reason = " (not a Parquet record: a text is not UTF-8)"
    assert set(found) == {f"a.parquet:4{reason}", f"a.parquet:6{reason}"}
    assert all(BAD in text for text in found.values())
    record = json.loads(found[f"a.parquet:4{reason}"].decode("latin-1"))
    assert record["id"] == 3


def test_a_first_load_without_a_good_record(tmp_path: Path, engine: str) -> None:
    write(tmp_path / "a.parquet", texts(BAD))
    write(tmp_path / "b.parquet", texts(GOOD))
    done = load(str(tmp_path / "*.parquet"), tmp_path / "table", engine=engine)
    assert (done.records, done.corrupt) == (1, 1)


def test_texts_are_checked_where_columns_are_converted(tmp_path: Path, engine: str) -> None:
    """Dates and numbers beside texts; the quarantine names the right record."""
    table = tmp_path / "table"
    widen.create_table(str(table), "id bigint, v string, n int NOT NULL")
    write(tmp_path / "a.parquet", texts(GOOD, BAD, GOOD, None), n=pa.array([1, 2, None, 4], pa.int16()))
    done = widen.ingest(str(tmp_path / "a.parquet"), str(table), engine=engine)
    assert (done.records, done.quarantined, done.corrupt) == (2, 2, 0)
    rows = widen.Table(f"{table}_quarantine").to_arrow().to_pylist()
    assert sorted((row["position"], "UTF-8" in row["reason"] or row["reason"]) for row in rows)[1][0] == 3


def test_in_an_iceberg_table(tmp_path: Path, engine: str) -> None:
    catalog = str(tmp_path / "catalog.db")
    write(tmp_path / "a.parquet", lists(texts(GOOD, BAD)))
    done = load(str(tmp_path / "a.parquet"), Path("ns.t"), engine=engine, to="iceberg", catalog=catalog)
    assert (done.records, done.corrupt) == (1, 1)


def test_rows_of_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS id, CAST(X'4772f6' AS string) AS v UNION ALL SELECT 2, 'x'")
    done = load(frame, tmp_path / "table")
    assert (done.records, done.corrupt) == (1, 1)
    [(place, text)] = corrupt(tmp_path / "table").items()
    assert b"Gr\xf6" in text
    assert place.endswith("(not a DataFrame record: a text is not UTF-8)")


def test_the_reason_names_the_format(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS id, CAST(X'4772f6' AS string) AS v UNION ALL SELECT 2, 'x'")
    frame.coalesce(1).write.orc(str(tmp_path / "files"))
    done = load(str(tmp_path / "files"), tmp_path / "table")
    assert (done.records, done.corrupt) == (1, 1)
    assert done.corrupt_reason == "not an ORC record: a text is not UTF-8"
    [place] = corrupt(tmp_path / "table")
    assert place.endswith(" (not an ORC record: a text is not UTF-8)")


def test_tasks_that_copy_columns_check_them(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", texts(GOOD))
    load(str(tmp_path / "good.parquet"), tmp_path / "table", engine="spark")
    write(tmp_path / "bad.parquet", texts(GOOD, BAD))
    done = load(str(tmp_path / "bad.parquet"), tmp_path / "table", engine="spark")
    assert (done.records, done.corrupt) == (1, 1)
