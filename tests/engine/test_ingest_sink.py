"""The sink that ingests, in Spark's streams and batch writes; tests/unit/data_source look closer at the batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from support.sink_batches import iceberg_rows, rows_of, staged_files
from widen.table import Table


def stream(rows: DataFrame, place: Path, options: dict[str, Any], table: str) -> None:
    """Run a named stream over everything that is there."""
    writer = rows.writeStream.format("widen").options(**options).queryName("orders").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start(table)
    assert query.awaitTermination(600)


def landing(spark: SparkSession, place: Path, **days: str) -> DataFrame:
    folder = place / "landing"
    folder.mkdir(exist_ok=True)
    for name, text in days.items():
        (folder / f"{name}.json").write_text(text)
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))


def test_a_stream_ingests_texts_that_drift_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    options, table = {"ingest": "json", "verify": "true", "sourceColumns": "true"}, str(tmp_path / "t")
    rows = landing(spark, tmp_path, monday='{"a": 1}\nnot JSON\n')
    if spark.version < "4.1":
        with pytest.raises(PySparkException, match=r"Use Spark 4.1 or later, or widen.ingest_stream"):
            stream(rows, tmp_path, options, table)
        return
    stream(rows, tmp_path, options, table)
    rows = landing(spark, tmp_path, tuesday='{"a": 2.5}\n{"a": "x"}\n')
    stream(rows, tmp_path, options, table)
    stream(rows, tmp_path, options, table)
    found = rows_of(table)
    assert sorted(row["a"] for row in found if row["a"] is not None) == [1.0, 2.5]
    assert [row["_corrupt_record"] for row in found if row["_corrupt_record"]] == ["not JSON"]
    assert [row["a_string"] for row in found if row["a_string"] == "x"] == ["x"]
    assert all(row["_loaded_at"] for row in found)
    assert (Table(table).version, Table(table).history(1)[0].operation) == (1, "STREAMING UPDATE")
    assert staged_files(tmp_path) == []
    landing(spark, tmp_path, wednesday='{"a": 3}\n')
    for name in ("plan_hash", "txnAppId"):
        with pytest.raises(PySparkException, match=f"{name} cannot be 'x'"):
            stream(rows, tmp_path, {**options, name: "x"}, table)


def test_a_stream_into_an_iceberg_table_replaces_rows_by_key(spark: SparkSession, tmp_path: Path) -> None:
    if spark.version < "4.1":
        return  # the test above holds what Spark 4.0 refuses
    catalog = tmp_path / "c.db"
    options = {"ingest": "json", "catalog": str(catalog), "key": "id", "sequenceBy": "at"}
    days = {"monday": '{"id": 1, "at": 1, "v": 1}\n', "tuesday": '{"id": 1, "at": 2, "v": 5000000000}\n'}
    stream(landing(spark, tmp_path, **days), tmp_path, options, "shop.orders")
    assert iceberg_rows("shop.orders", catalog) == [{"at": 2, "id": 1, "v": 5_000_000_000}]
    assert staged_files(tmp_path) == []


def test_a_batch_write_ingests_texts_or_rows(spark: SparkSession, tmp_path: Path) -> None:
    texts = spark.createDataFrame([('{"a": 1}', "k"), ('{"a": "x"}', "k")], "payload string, key string")
    table = str(tmp_path / "t")
    texts.write.format("widen").options(ingest="json", column="payload").mode("append").save(table)
    assert sorted(row["a"] for row in rows_of(table)) == ["1", "x"]
    rows = str(tmp_path / "rows")
    for query in ("SELECT 1 AS id, named_struct('n', 1) AS r", "SELECT 2 AS id, named_struct('n', 5000000000) AS r"):
        spark.sql(query).write.format("widen").option("ingest", "rows").mode("append").save(rows)
    assert sorted((row["id"], row["r"]["n"]) for row in rows_of(rows)) == [(1, 1), (2, 5_000_000_000)]
    for _ in range(2):  # as a scheduler does that runs a failed job again
        once = texts.write.format("widen").options(ingest="json", column="payload", txnAppId="nightly", txnVersion="1")
        once.mode("append").save(table)
    assert sorted(row["a"] for row in rows_of(table)) == ["1", "1", "x", "x"]
    with pytest.raises(PySparkException, match="mode cannot be 'overwrite or complete'"):
        texts.write.format("widen").option("ingest", "json").mode("overwrite").save(table)
    assert staged_files(tmp_path) == []
