"""Null and missing fields for columns with a default: null that a record says stays null."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.iceberg_files import embedded_catalog
from widen import Table, ingest
from widen.frames import table_writers
from widen.iceberg.column_defaults import default_text
from widen.iceberg.schema_conversion import from_model_type
from widen.model.schema_json import parse_type
from widen.rows.row_builder import MissingColumn

RECORDS = '{"id": 1, "s": null}\n{"id": 2}\n{"id": 3, "s": "x"}\n{"id": 4, "s": 5}\n{"id": 5, "n": [1], "s": null}\n'


@dataclass
class Target:
    """A table of one of the formats in a folder.

    Args:
        catalog: The catalog of an Iceberg table; None for a Delta table.
    """

    spark: SparkSession
    folder: Path
    catalog: Path | None

    @property
    def at(self) -> str:
        return "ns.t" if self.catalog else str(self.folder / "t")

    def create(self, columns: str = "id INT, s STRING DEFAULT 'new', n INT DEFAULT 7") -> None:
        if self.catalog is None:
            widen.sql(f"CREATE TABLE delta.`{self.at}` ({columns})", spark=self.spark)
            return
        embedded_catalog(self.folder)
        plain, properties = re.sub(r" DEFAULT \S+(?=,|$)", "", columns), "TBLPROPERTIES ('format-version' = '3')"
        widen.sql(f"CREATE TABLE ns.t ({plain}) USING iceberg {properties}", catalog=self.catalog)
        for column, default in re.findall(r"(\w+) \w+ (?:NOT NULL )?DEFAULT (\S+)(?=,|$)", columns):
            widen.sql(f"ALTER TABLE ns.t ALTER COLUMN {column} SET DEFAULT {default}", catalog=self.catalog)

    def ingest(self, source: Path, **options: Any) -> Any:
        return ingest(str(source), self.at, catalog=self.catalog, verify=True, spark=self.spark, **options)

    @property
    def rows(self) -> dict[int, tuple[str | None, int | None]]:
        table = Table(self.at) if self.catalog is None else widen.IcebergTable(self.at, self.catalog)
        return {row["id"]: (row["s"], row["n"]) for row in table.read(spark=self.spark).collect()}


@pytest.fixture(params=["delta", "iceberg"])
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, tmp_path, tmp_path / "catalog.db" if request.param == "iceberg" else None)


def test_null_stays_null_and_a_missing_field_takes_the_default(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "s.jsonl"
    target.create()
    source.write_text(RECORDS, encoding="utf-8")
    done = target.ingest(source)
    # A field with a value in another column is not missing.
    assert target.rows == {1: (None, 7), 2: ("new", 7), 3: ("x", 7), 4: ("5", 7), 5: (None, None)}
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize("order", ["id,s,n", "id,s"])
def test_an_empty_field_of_csv_is_null(target: Target, tmp_path: Path, order: str) -> None:
    source = tmp_path / "s.csv"
    target.create()
    lines = {"id,s,n": "1,,\n2,x,3\n", "id,s": "1,\n2,x\n"}[order]
    source.write_text(f"{order}\n{lines}", encoding="utf-8")
    done = target.ingest(source, detect_types=True)
    expected = {"id,s,n": {1: (None, None), 2: ("x", 3)}, "id,s": {1: (None, 7), 2: ("x", 7)}}[order]
    assert target.rows == expected
    assert done.verification is not None
    assert done.verification.is_clean


def test_the_type_of_a_typed_source_says_what_is_missing(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "s"
    target.create()
    source.mkdir()
    for name, values in {
        "a": {"id": pa.array([1, 2], pa.int32()), "s": pa.array([None, "x"])},
        "b": {"id": pa.array([3], pa.int32()), "n": pa.array([None], pa.int32())},
    }.items():
        pq.write_table(pa.table(values), source / f"{name}.parquet")
    done = target.ingest(source)
    assert target.rows == {1: (None, 7), 2: ("x", 7), 3: ("new", None)}
    assert done.verification is not None
    assert done.verification.is_clean


def test_a_null_goes_to_the_quarantine_if_the_column_is_not_null(target: Target, tmp_path: Path) -> None:
    source = tmp_path / "s.jsonl"
    target.create("id INT, s STRING NOT NULL DEFAULT 'new', n INT DEFAULT 7")
    source.write_text(RECORDS, encoding="utf-8")
    done = target.ingest(source)
    assert target.rows == {2: ("new", 7), 3: ("x", 7), 4: ("5", 7)}
    assert (done.quarantined, done.verification and done.verification.is_clean) == (2, True)


@pytest.mark.parametrize("missing", ["null", "keep"])
def test_only_a_new_row_takes_the_default_of_a_partial_record(target: Target, tmp_path: Path, missing: str) -> None:
    target.create("id INT, at INT, s STRING DEFAULT 'new', n INT DEFAULT 7")
    days = [
        '{"id": 1, "at": 1, "s": "x", "n": 1}\n{"id": 2, "at": 1, "n": null}\n{"id": 3, "at": 1, "s": "a", "n": 2}\n',
        '{"id": 1, "at": 2, "n": 2}\n{"id": 3, "at": 2, "s": null, "n": 3}\n{"id": 4, "at": 1}\n{"id": 4, "at": 2}\n',
    ]
    for number, lines in enumerate(days):
        source = tmp_path / f"{number}.jsonl"
        source.write_text(lines, encoding="utf-8")
        done = target.ingest(source, key=["id"], sequence_by="at", missing=missing)
        assert done.verification is not None
        assert done.verification.is_clean
    expected = {
        # A null of a partial record says nothing, so a new row takes the default.
        "keep": {1: ("x", 2), 2: ("new", 7), 3: ("a", 3), 4: ("new", 7)},
        "null": {1: ("new", 2), 2: ("new", None), 3: (None, 3), 4: ("new", 7)},
    }
    assert target.rows == expected[missing]


def test_a_proof_sees_a_null_that_became_the_default(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "s.jsonl"
    target.create()
    source.write_text(RECORDS, encoding="utf-8")
    fill = table_writers.fill_computed_columns
    monkeypatch.setattr(table_writers, "fill_computed_columns", lambda *args: fill(*args[:-1], lambda _: F.lit(True)))
    monkeypatch.setattr(MissingColumn, "names_by_key", lambda *_: {})  # for tasks that fill the columns themselves
    done = target.ingest(source)
    assert done.verification is not None
    assert not done.verification.is_clean


def test_statements_and_frames_take_the_default(target: Target) -> None:
    target.create()
    table = target.at if target.catalog else f"delta.`{target.at}`"

    def run(text: str) -> None:
        widen.sql(text.format(t=table), catalog=target.catalog, spark=target.spark)

    run("INSERT INTO {t} (id, n) VALUES (1, NULL), (2, DEFAULT)")
    run("INSERT INTO {t} (id, s) VALUES (3, 'x')")
    run(
        "MERGE INTO {t} t USING (SELECT explode(array(3, 4)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = DEFAULT WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, NULL)"
    )
    run("UPDATE {t} SET n = DEFAULT WHERE id = 1")
    opened = Table(target.at) if target.catalog is None else widen.IcebergTable(target.at, target.catalog)
    opened.append(target.spark.createDataFrame([(5, None)], "id int, s string"))
    assert target.rows == {1: ("new", 7), 2: ("new", 7), 3: ("new", 7), 4: (None, 7), 5: (None, 7)}


def test_defaults_are_described(target: Target) -> None:
    target.create()
    table = target.at if target.catalog else f"delta.`{target.at}`"
    found = widen.sql(f"DESCRIBE EXTENDED {table}", catalog=target.catalog, spark=target.spark).collect()
    assert found[-3][0] == "# Column Default Values"
    assert [tuple(row) for row in found[-2:]] == [("s", "string", "'new'"), ("n", "int", "7")]


def test_spark_and_arrow_read_the_same_in_old_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Also in copies that Spark makes, and by conditions that Spark evaluates."""
    target = Target(spark, tmp_path, tmp_path / "catalog.db")
    target.create("id INT, s STRING")
    opened = widen.IcebergTable("ns.t", tmp_path / "catalog.db")
    opened.append(spark.createDataFrame([(1, "a"), (2, "b"), (3, "c")], "id int, s string"))
    for column, default in (("n", "7"), ("m", "DATE '1969-12-31'"), ("z", "TIMESTAMP '0001-01-01 00:00:00Z'")):
        kind = {"n": "int", "m": "date", "z": "timestamp"}[column]
        widen.sql(f"ALTER TABLE ns.t ADD COLUMN {column} {kind} DEFAULT {default}", catalog=tmp_path / "catalog.db")
    opened.refresh().update({"s": F.upper("s")}, F.pmod("n", F.lit(4)) + F.col("id") == 4)
    widen.IcebergTable("ns.t", tmp_path / "catalog.db").append(spark.createDataFrame([(4,)], "id int"))
    table = opened.refresh()
    here = table.to_arrow()
    assert table.read(spark=spark).toArrow().cast(here.schema).sort_by("id") == here.sort_by("id")
    assert here.sort_by("id")["s"].to_pylist() == ["A", "b", "c", None]
    assert set(here["n"].to_pylist()) == {7}
    assert table.read("m < DATE '1970-01-01' AND n = 7", spark=spark).count() == 4
    assert table.read("n <> 7 OR z IS NULL", spark=spark).count() == 0
    assert table.read("date_add(m, 1) = DATE '1970-01-01'", spark=spark).count() == 4


def test_spark_reads_a_literal_as_the_value_that_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    """Loads evaluate the literal with Spark, and old rows have the value: both must be the same."""
    rng, columns, values = random.Random(7), dict[str, dict[str, str]](), dict[str, Any]()
    texts = ["", "it's", "\\", "a\\nb", "\n\t\0", "%_", "ö\U0001f600", '"', "${x}"]
    kinds: dict[str, Callable[[], Any]] = {
        "int": lambda: rng.randint(-(2**31), 2**31 - 1),
        "bigint": lambda: rng.randint(-(2**63), 2**63 - 1),
        "double": lambda: rng.choice([rng.uniform(-1, 1), 10.0 ** rng.randint(-300, 300), -0.0, 5e-324, 1e22]),
        "decimal(38,6)": lambda: Decimal(rng.randint(-(10**38) + 1, 10**38 - 1)).scaleb(-6, Context(prec=50)),
        "string": lambda: rng.choice(texts),
        "binary": lambda: rng.randbytes(rng.randint(0, 4)),
        "date": lambda: date(1, 1, 1) + timedelta(days=rng.randint(0, 3_652_058)),
        "timestamp_ntz": lambda: datetime(1, 1, 1) + timedelta(seconds=rng.randint(0, 315_537_897_599), microseconds=5),
        "timestamp": lambda: datetime(1900, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=rng.randint(0, 10**15)),
    }
    for number in range(90):
        kind = [*kinds][number % len(kinds)]
        values[f"c{number}"] = value = kinds[kind]()
        columns[f"c{number}"] = {"type": kind, "default": default_text(from_model_type(parse_type(kind)), value) or ""}
    target = Target(spark, tmp_path, tmp_path / "catalog.db")
    target.create("id INT")
    opened = widen.IcebergTable("ns.t", tmp_path / "catalog.db")
    opened.append(spark.createDataFrame([(1,)], "id int"))
    opened.add_columns(columns)
    opened.append(spark.createDataFrame([(2,)], "id int"))
    rows = opened.to_arrow().sort_by("id").drop_columns("id").to_pylist()
    assert rows[0] == values
    assert rows[1] == values
