"""Null and missing fields for columns with a default: null that a record says stays null."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from widen import Table, ingest
from widen.frames import table_writers

RECORDS = '{"id": 1, "s": null}\n{"id": 2}\n{"id": 3, "s": "x"}\n{"id": 4, "s": 5}\n{"id": 5, "n": [1], "s": null}\n'


def create(at: str, spark: SparkSession, columns: str = "id INT, s STRING DEFAULT 'new', n INT DEFAULT 7") -> None:
    widen.sql(f"CREATE TABLE delta.`{at}` ({columns})", spark=spark)


def rows_of(at: str, spark: SparkSession) -> dict[int, tuple[str | None, int | None]]:
    return {row["id"]: (row["s"], row["n"]) for row in Table(at).read(spark=spark).collect()}


def test_null_stays_null_and_a_missing_field_takes_the_default(spark: SparkSession, tmp_path: Path) -> None:
    at, source = str(tmp_path / "t"), tmp_path / "s.jsonl"
    create(at, spark)
    source.write_text(RECORDS, encoding="utf-8")
    done = ingest(str(source), at, verify=True, spark=spark)
    # A field with a value in another column is not missing.
    assert rows_of(at, spark) == {1: (None, 7), 2: ("new", 7), 3: ("x", 7), 4: ("5", 7), 5: (None, None)}
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize("order", ["id,s,n", "id,s"])
def test_an_empty_field_of_csv_is_null(spark: SparkSession, tmp_path: Path, order: str) -> None:
    at, source = str(tmp_path / "t"), tmp_path / "s.csv"
    create(at, spark)
    lines = {"id,s,n": "1,,\n2,x,3\n", "id,s": "1,\n2,x\n"}[order]
    source.write_text(f"{order}\n{lines}", encoding="utf-8")
    done = ingest(str(source), at, verify=True, detect_types=True, spark=spark)
    expected = {"id,s,n": {1: (None, None), 2: ("x", 3)}, "id,s": {1: (None, 7), 2: ("x", 7)}}[order]
    assert rows_of(at, spark) == expected
    assert done.verification is not None
    assert done.verification.is_clean


def test_the_type_of_a_typed_source_says_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    at, source = str(tmp_path / "t"), tmp_path / "s"
    create(at, spark)
    source.mkdir()
    for name, values in {
        "a": {"id": pa.array([1, 2], pa.int32()), "s": pa.array([None, "x"])},
        "b": {"id": pa.array([3], pa.int32()), "n": pa.array([None], pa.int32())},
    }.items():
        pq.write_table(pa.table(values), source / f"{name}.parquet")
    done = ingest(str(source), at, verify=True, spark=spark)
    assert rows_of(at, spark) == {1: (None, 7), 2: ("x", 7), 3: ("new", None)}
    assert done.verification is not None
    assert done.verification.is_clean


def test_a_null_goes_to_the_quarantine_if_the_column_is_not_null(spark: SparkSession, tmp_path: Path) -> None:
    at, source = str(tmp_path / "t"), tmp_path / "s.jsonl"
    create(at, spark, "id INT, s STRING NOT NULL DEFAULT 'new', n INT DEFAULT 7")
    source.write_text(RECORDS, encoding="utf-8")
    done = ingest(str(source), at, verify=True, spark=spark)
    assert rows_of(at, spark) == {2: ("new", 7), 3: ("x", 7), 4: ("5", 7)}
    assert (done.quarantined, done.verification and done.verification.is_clean) == (2, True)


@pytest.mark.parametrize("missing", ["null", "keep"])
def test_only_a_new_row_takes_the_default_of_a_partial_record(
    spark: SparkSession, tmp_path: Path, missing: str
) -> None:
    at = str(tmp_path / "t")
    create(at, spark, "id INT, at INT, s STRING DEFAULT 'new', n INT DEFAULT 7")
    days = [
        '{"id": 1, "at": 1, "s": "x", "n": 1}\n{"id": 2, "at": 1, "n": null}\n{"id": 3, "at": 1, "s": "a", "n": 2}\n',
        '{"id": 1, "at": 2, "n": 2}\n{"id": 3, "at": 2, "s": null, "n": 3}\n{"id": 4, "at": 1}\n{"id": 4, "at": 2}\n',
    ]
    for number, lines in enumerate(days):
        source = tmp_path / f"{number}.jsonl"
        source.write_text(lines, encoding="utf-8")
        done = ingest(str(source), at, key=["id"], sequence_by="at", missing=missing, verify=True, spark=spark)
        assert done.verification is not None
        assert done.verification.is_clean
    expected = {
        # A null of a partial record says nothing, so a new row takes the default.
        "keep": {1: ("x", 2), 2: ("new", 7), 3: ("a", 3), 4: ("new", 7)},
        "null": {1: ("new", 2), 2: ("new", None), 3: (None, 3), 4: ("new", 7)},
    }
    assert rows_of(at, spark) == expected[missing]


def test_a_proof_sees_a_null_that_became_the_default(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, source = str(tmp_path / "t"), tmp_path / "s.jsonl"
    create(at, spark)
    source.write_text(RECORDS, encoding="utf-8")
    fill = table_writers.fill_computed_columns
    monkeypatch.setattr(table_writers, "fill_computed_columns", lambda *args: fill(*args[:-1], lambda _: F.lit(True)))
    done = ingest(str(source), at, verify=True, spark=spark)
    assert done.verification is not None
    assert not done.verification.is_clean
