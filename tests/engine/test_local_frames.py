"""Rows in this process: the same as Spark reads, from old types, mapped names, deleted rows and partitions."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from widen.errors import CorruptFile, InvalidOption, PackageMissing
from widen.files.data_reader import read_locally
from widen.spark.engine import Unsupported
from widen.table import Table, create_table

SCHEMA = (
    "id int, part date, price decimal(6,2), at timestamp, day date, small float, "
    "deep struct<n: int, tags: array<struct<k: string, v: short>>, m: map<string, int>>, bytes binary, flag boolean"
)
ROWS = """
  SELECT id, date'2024-01-31' + id % 2 AS part, CAST(id * 1.25 AS decimal(6,2)) AS price,
    timestamp_seconds(id * 86400 - 1000000000) AS at, date'0001-01-01' + id AS day, CAST(id / 3 AS float) AS small,
    IF(id % 3 = 0, NULL, named_struct('n', id, 'tags', IF(id % 4 = 0, NULL, array(named_struct('k', 'x' || id,
      'v', CAST(id AS short)), NULL)), 'm', IF(id % 5 = 0, NULL, map('a', id, 'b', NULL)))) AS deep,
    unhex('0A') AS bytes, id % 2 = 0 AS flag
  FROM (SELECT CAST(id AS int) AS id FROM range({first}, {last}))"""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A partitioned table with mapped names, deletion vectors, old types at every depth, and a column added later."""
    properties = {
        "delta.enableTypeWidening": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "true",
    }
    place = str(tmp_path_factory.mktemp("local") / "t")
    table = create_table(place, SCHEMA, partition_by=["part"], properties=properties)
    table.append(spark.sql(ROWS.format(first=1, last=30)))
    table.delete("id IN (3, 4, 17)", spark=spark)
    table.add_feature("timestampNtz")
    for column, new in (
        *(("id", "bigint"), ("price", "decimal(10,4)"), ("small", "double"), ("day", "timestamp_ntz")),
        *(("deep.n", "double"), ("deep.tags.element.v", "int"), ("deep.m.value", "bigint")),
    ):
        table.alter_column(column, type=new)
    table.rename_column("small", "large")
    table.add_columns({"late": "string"})
    table.append(spark.sql("SELECT 2L AS id, date'2024-02-01' AS part, 'z' AS late"))
    return table


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["id"], str(row["late"])))


def test_the_rows_are_those_that_spark_reads(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = table.read(spark=spark).toArrow()
    monkeypatch.setattr("widen.spark.engine.find_session", pytest.fail)
    rows = table.to_arrow()
    assert rows.num_rows == 27
    assert by_id(rows) == by_id(expected)
    assert [(field.name, str(field.type)) for field in rows.schema if not pa.types.is_nested(field.type)] == [
        *(("id", "int64"), ("part", "date32[day]"), ("price", "decimal128(10, 4)"), ("at", "timestamp[us, tz=UTC]")),
        *(("day", "timestamp[us]"), ("large", "double"), ("bytes", "binary"), ("flag", "bool"), ("late", "string")),
    ]
    assert table.to_arrow(limit=5).num_rows == 5
    assert len(table.to_pandas()) == 27


FOR_ARROW = ("id > 27", "part = date'2024-01-31' AND large < 3", "id IN (2, 5) OR late IS NOT NULL", "id < 0")
FOR_SPARK = ("id + 1 > 28", "size(deep.tags) = 2", "late LIKE upper('z')")


@pytest.mark.parametrize("where", [*FOR_ARROW, *FOR_SPARK])
def test_a_condition_needs_spark_only_if_it_computes(
    spark: SparkSession, table: Table, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = table.read(where, spark=spark).toArrow()
    assert bool(expected.num_rows) == (where not in ("id < 0", "late LIKE upper('z')"))
    if where in FOR_ARROW:
        monkeypatch.setattr("widen.spark.engine.find_session", pytest.fail)
    rows = table.to_arrow(where, spark=spark)
    assert by_id(rows) == by_id(expected)
    assert rows.schema.equals(table.to_arrow().schema, check_metadata=True)
    assert len(table.to_pandas(where, limit=1, spark=spark)) == min(rows.num_rows, 1)


def test_a_condition_on_a_column_of_spark_is_for_spark(spark: SparkSession, table: Table) -> None:
    assert table.to_arrow(F.col("id") > 27, spark=spark)["id"].to_pylist() == [28, 29]


def test_a_large_table_does_not_come_by_accident(table: Table) -> None:
    with pytest.raises(InvalidOption, match="max_rows") as caught:
        table.to_arrow(max_rows=26)
    assert "Give a limit, a condition or a larger number" in f"{caught.value.message} {caught.value.advice}"
    assert table.to_arrow(max_rows=27).num_rows == 27


def test_what_arrow_does_not_read_exactly_is_for_spark(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "t"
    table = (
        create_table(str(place), "at timestamp").append(spark.sql("SELECT timestamp'2024-01-31 12:00:00Z' AS at")).table
    )
    (file,) = table.snapshot.files()["path"].to_pylist()
    rows = pq.read_table(place / file)
    for checksum in (place / file).parent.glob(".*.crc"):
        checksum.unlink()
    pq.write_table(rows, place / file, use_deprecated_int96_timestamps=True)
    expected = [{"at": datetime(2024, 1, 31, 12, tzinfo=timezone.utc)}]
    assert read_locally(table.snapshot).to_pylist() == expected
    legacy = {**rows.schema.metadata, "org.apache.spark.legacyINT96": ""}
    pq.write_table(rows.replace_schema_metadata(legacy), place / file, use_deprecated_int96_timestamps=True)
    with pytest.raises(Unsupported, match="Julian calendar"):
        read_locally(table.snapshot)
    assert table.to_arrow(spark=spark).to_pylist() == expected
    (place / file).write_bytes(b"not Parquet")
    with pytest.raises(CorruptFile):
        table.to_arrow()


def test_a_missing_package_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(PackageMissing) as caught:
        table.to_polars()
    assert caught.value.message == "This call needs the package polars, which is not installed."
    assert caught.value.advice == "Install it with: pip install 'polars'"


def test_unified_rows_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    for number, record in enumerate(('{"id": 1, "v": "a", "w": 1}', '{"id": 2, "v": [1.5], "w": {"x": 1}}')):
        (tmp_path / f"{number}.json").write_text(record)
        widen.ingest(tmp_path / f"{number}.json", place)
    table = Table(place)
    expected = [row.asDict() for row in table.read(unified=True, spark=spark).orderBy("id").collect()]
    here = table.to_arrow("id > 0", unified=True).sort_by("id")
    there = table.to_arrow(F.col("id") > 0, unified=True, spark=spark).sort_by("id")
    assert here.to_pylist() == there.to_pylist() == expected
    assert [row["v"] for row in expected] == [["a"], ["1.5"]]
    assert here.schema.names == ["id", "v", "w"]
