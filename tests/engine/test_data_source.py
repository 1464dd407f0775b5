"""The data source: what it reads and streams is what Table.read returns, and what it writes, tables read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import widen
from support.covering import covering
from support.start_stream import start_stream
from widen.table import Table, create_table

ROWS = """
  SELECT CAST(id AS int) AS id, date'2024-01-31' + CAST(id % 2 AS int) AS part,
    CAST(id * 1.25 AS decimal(6,2)) AS price, timestamp_seconds(id * 86400 - 1000000000) AS at,
    IF(id % 3 = 0, NULL, named_struct('n', CAST(id AS int), 'tags', IF(id % 4 = 0, NULL, array(named_struct(
      'k', 'x' || id, 'v', CAST(id AS short)), NULL)), 'm', IF(id % 5 = 0, NULL, map('a', CAST(id AS int))))) AS deep
  FROM range({first}, {last})"""
SCHEMA = (
    "id int, part date, price decimal(6,2), at timestamp, "
    "deep struct<n: int, tags: array<struct<k: string, v: short>>, m: map<string, int>>"
)
PROPERTIES = {
    "delta.enableTypeWidening": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
}


FEED: list[str] = []
"""The changes up to version 3, which `Table.changes` returned before the types changed."""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A partitioned table with mapped names, deletion vectors, changed rows, and old types at every depth."""
    table = create_table(
        str(tmp_path_factory.mktemp("source") / "t"), SCHEMA, partition_by=["part"], properties=PROPERTIES
    )
    table.append(spark.sql(ROWS.format(first=1, last=30)))
    table.delete("id IN (3, 4, 17)", spark=spark)
    table.update({"price": "price + 1"}, "id IN (5, 6)", spark=spark)
    FEED.extend(rows_of(table.changes(1, 3, spark=spark)))
    new_types = {"id": "bigint", "deep.n": "double", "deep.tags.element.v": "int", "price": "decimal(10,4)"}
    for column, new in new_types.items():
        table.alter_column(column, type=new)
    table.append(spark.sql(ROWS.format(first=30, last=40)))
    return table


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def load(spark: SparkSession, table: Table, **options: object) -> DataFrame:
    return (
        spark.read.format("widen").options(**{key: str(value) for key, value in options.items()}).load(table.location)
    )


def test_a_read_returns_the_rows_of_the_table(spark: SparkSession, table: Table) -> None:
    rows = rows_of(load(spark, table))
    assert len(rows) == 36
    assert rows == rows_of(table.read(spark=spark))
    assert rows_of(load(spark, table, versionAsOf=1)) == rows_of(table.read(version=1, spark=spark))


def test_a_view_in_sql_filters_and_aggregates(spark: SparkSession, table: Table) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW from_widen USING widen OPTIONS (path '{table.location}')")
    (row,) = spark.sql("SELECT count(*), sum(id) FROM from_widen WHERE part > '2024-01-31' AND id > 30").collect()
    assert tuple(row) == (5, 31 + 33 + 35 + 37 + 39)


def test_the_change_feed_is_that_of_the_table(spark: SparkSession, table: Table) -> None:
    feed = load(spark, table, versionAsOf=3, readChangeFeed=True, startingVersion=1)
    assert len(FEED) == 29 + 3 + 4
    assert rows_of(feed) == FEED


def test_filters_skip_files_where_spark_pushes_them(spark: SparkSession, table: Table) -> None:
    if spark.version < "4.1":
        return  # Spark 4.0 pushes no filters to Python data sources
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        widen.register(spark)
        where = "id > 35 AND part = date'2024-01-31' AND deep.n IS NOT NULL AND price < 1000"
        assert rows_of(load(spark, table).where(where)) == rows_of(table.read(where, spark=spark))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        widen.register(spark)


def refusal(call: Callable[[], object], *texts: str) -> None:
    with pytest.raises(PySparkException) as caught:
        call()
    assert [text for text in texts if text not in str(caught.value)] == []


def test_what_cannot_be_read_is_refused(spark: SparkSession, table: Table) -> None:
    refusal(lambda: load(spark, table, versionAs=1), "an option cannot be 'versionas'")
    refusal(lambda: load(spark, table, versionAsOf=1, timestampAsOf="2024-01-01"), "Give versionAsOf or timestampAsOf")
    wrong = spark.read.format("widen").schema("id int")
    refusal(lambda: wrong.load(table.location).collect(), "the query expects struct<id: int>")
    refusal(lambda: spark.read.format("widen").load([table.location, "/other"]).collect(), "Load one table at a time")


def test_an_iceberg_table_is_refused_with_what_to_use(spark: SparkSession, tmp_path: Path) -> None:
    catalog = str(tmp_path / "catalog.db")
    rows = spark.sql("SELECT 1 AS id")
    widen.ingest(rows, "shop.orders", catalog=catalog)
    path = widen.IcebergTable("shop.orders", catalog).location.removeprefix("file://")
    reason = f"cannot read {path}: it is an Iceberg table"
    reads = ("widen.IcebergTable(NAME, CATALOG).read()", "spark.read.format('iceberg')")
    refusal(lambda: spark.read.format("widen").option("versionAsOf", 0).load(path), reason, *reads)
    refusal(
        lambda: spark.readStream.format("widen").load(path), reason, "widen.flow", "spark.readStream.format('iceberg')"
    )
    by_name = spark.readStream.format("widen").option("catalog", catalog)
    refusal(lambda: by_name.load("shop.orders"), "cannot read shop.orders: it is an Iceberg table")
    write = rows.write.format("widen").mode("append")
    refusal(lambda: write.save(path), f"cannot write {path}: it is an Iceberg table", "Add the option ingest")
    refusal(lambda: write.option("catalog", catalog).save("shop.orders"), "cannot write shop.orders: it is an Iceberg")
    assert widen.IcebergTable("shop.orders", catalog).read(spark=spark).count() == 1
    assert not (Path(path) / "_delta_log").exists()


def test_a_table_of_sparks_catalog_is_refused_since_spark_passes_no_path(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    create = f"CREATE TABLE in_catalog USING widen OPTIONS (path '{table.location}')"
    refusal(lambda: spark.sql(create), "CREATE TEMPORARY VIEW")
    rows = spark.sql("SELECT 1 AS id")
    refusal(lambda: rows.write.format("widen").mode("append").saveAsTable("in_catalog"), "CREATE TEMPORARY VIEW")
    spark.sql("DROP TABLE IF EXISTS in_catalog")
    refusal(lambda: rows.writeTo("in_catalog").using("widen").create(), "CREATE TEMPORARY VIEW")
    spark.sql("DROP TABLE IF EXISTS in_catalog")


def test_a_view_takes_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id int")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sink_view USING widen OPTIONS (path '{table.location}')")
    spark.sql("INSERT INTO sink_view VALUES (7)")
    assert rows_of(spark.table("sink_view")) == rows_of(table.refresh().read(spark=spark))
    assert spark.table("sink_view").count() == 1


# ---- writes ----------------------------------------------------------------------------------------


def test_writes_create_append_and_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    rows = spark.sql(ROWS.format(first=0, last=50))
    options = {"partitionBy": "part", **PROPERTIES}
    rows.write.format("widen").mode("append").options(**options).save(place)
    table = Table(place)
    assert (table.version, table.partition_by, table.properties["delta.enableTypeWidening"]) == (0, ("part",), "true")
    assert rows_of(table.read(spark=spark)) == rows_of(rows)
    wider = spark.sql(
        f"SELECT id + 3000000000 AS id, part, price, at, deep, 'new' AS extra FROM ({ROWS.format(first=50, last=52)})"
    )
    refusal(lambda: wider.write.format("widen").mode("append").save(place), "extra (string) is not in the table")
    wider.write.format("widen").mode("append").option("mergeSchema", "true").save(place)
    assert str(table.refresh().schema.find("id").type) == "long"
    assert rows_of(table.read("id > 3000000000", spark=spark)) == rows_of(wider)
    assert table.read("id = 7 AND extra IS NULL AND deep.n = 7", spark=spark).count() == 1
    rows.write.format("widen").mode("overwrite").save(place)
    assert table.refresh().read("extra IS NULL", spark=spark).count() == table.read(spark=spark).count() == 50
    assert table.history(1)[0].operation == "WRITE"
    table.add_constraint("positive", "id >= 0", spark=spark)
    refusal(lambda: rows.write.format("widen").mode("append").save(place), "it has CHECK constraints. Use Table.append")
    assert table.refresh().read(spark=spark).count() == 50


def after_the_other_task(folder: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches; the second half of the numbers waits until the first one has been written."""
    end = time.monotonic() + 120
    for batch in batches:
        while batch["id"][0].as_py() >= 50 and time.monotonic() < end:
            time.sleep(1)  # also what the other task has left to do when its file is there
            if list(folder.rglob("*.parquet")):
                break
        yield batch


def test_a_failed_write_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Spark does not wait for a task that still writes, so the one that fails does."""
    table = create_table(str(tmp_path / "t"), "id bigint not null, v string")
    rows = spark.sql("SELECT IF(id = 90, NULL, id) AS id, 'v' AS v FROM range(0, 100, 1, 2)")
    rows = rows.mapInArrow(partial(after_the_other_task, tmp_path), rows.schema)
    refusal(lambda: rows.write.format("widen").mode("append").save(table.location), "but a row has null in it")
    assert table.refresh().version == 0
    assert list(tmp_path.rglob("*.parquet")) == []


# ---- streams ---------------------------------------------------------------------------------------


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Table:
    """Three files, one of them with a deletion vector."""
    table = create_table(str(tmp_path / "source"), "id int, v string", properties=PROPERTIES)
    for first in (0, 10, 20):
        table.append(
            spark.sql(f"SELECT CAST(id AS int) AS id, 'v' || id AS v FROM range({first}, {first + 10})").coalesce(1)
        )
    table.delete("id = 3", spark=spark)
    return table


def stream(spark: SparkSession, source: Table, tmp_path: Path, *, to: str = "sink", **options: Any) -> StreamingQuery:
    rows = spark.readStream.format("widen").options(**{k: str(v) for k, v in options.items()}).load(source.location)
    rows = rows.toDF(*(name.removeprefix("_") for name in rows.columns))
    writer = rows.writeStream.format("widen").options(mergeSchema="true", **PROPERTIES)
    writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{to}")).trigger(availableNow=True)
    writer = writer.queryName(f"to {to}")  # Spark passes it as an option
    query = start_stream(lambda: writer.start(str(tmp_path / to)))
    assert query.awaitTermination(300)
    return query


def test_a_stream_copies_new_rows_and_stops_at_a_change_of_columns(
    spark: SparkSession, source: Table, tmp_path: Path
) -> None:
    if spark.version < "4.1":
        refusal(lambda: stream(spark, source, tmp_path), "Use Spark 4.1 or later, or foreachBatch with Table.append")
        return
    has_limits = spark.version >= "4.2"
    if not has_limits:
        refusal(lambda: stream(spark, source, tmp_path, to="limited", maxFilesPerTrigger=2), "Needs Spark 4.2 or later")
    query = stream(spark, source, tmp_path, **({"maxFilesPerTrigger": 2} if has_limits else {}))
    sink = Table(tmp_path / "sink")
    sizes = [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]
    assert sizes == ([19, 10] if has_limits else [29])
    assert rows_of(sink.read(spark=spark)) == rows_of(source.read(spark=spark))
    source.append(spark.sql("SELECT 100 AS id, 'before' AS v"))
    rows = spark.readStream.format("widen").load(source.location).writeStream.format("widen")
    rows = rows.options(checkpointLocation=str(tmp_path / "checkpoint-sink"), mergeSchema="true")
    running = start_stream(lambda: rows.trigger(processingTime="1 second").start(str(tmp_path / "sink")))
    while sink.refresh().read("id = 100", spark=spark).isEmpty():
        assert not running.awaitTermination(1)
    source.alter_column("id", type="bigint")
    source.add_columns({"w": "double"})
    source.append(spark.sql("SELECT 5000000000 AS id, 'after' AS v, 1.5D AS w"))
    with pytest.raises(PySparkException, match=r"DELTA_SCHEMA_CHANGED_WITH_VERSION.*Version 6"):
        running.awaitTermination(120)
    stream(spark, source, tmp_path)
    stream(spark, source, tmp_path)
    assert rows_of(sink.refresh().read(spark=spark)) == rows_of(source.read(spark=spark))
    assert sink.history(1)[0].operation == "STREAMING UPDATE"
    source.delete("id = 100", spark=spark)
    with pytest.raises(PySparkException, match="updated or deleted rows"):
        stream(spark, source, tmp_path)
    version = sink.refresh().version
    stream(spark, source, tmp_path, skipChangeCommits=True)
    assert sink.refresh().version == version


def test_a_stream_of_the_change_feed_has_every_change(spark: SparkSession, source: Table, tmp_path: Path) -> None:
    if spark.version < "4.1":
        return  # the test above holds what Spark 4.0 refuses
    stream(spark, source, tmp_path, to="changes", readChangeFeed=True, startingVersion=1)
    source.update({"v": "'new'"}, "id < 2", spark=spark)
    stream(spark, source, tmp_path, to="changes", readChangeFeed=True, startingVersion=1)
    changes = Table(tmp_path / "changes").read(spark=spark).toDF(*source.changes(1, spark=spark).columns)
    assert rows_of(changes) == rows_of(source.changes(1, spark=spark))
    assert changes.count() == 30 + 1 + 4


def test_a_stream_of_the_change_feed_goes_on_in_new_columns(spark: SparkSession, source: Table, tmp_path: Path) -> None:
    """A run says that the columns changed, and the next one reads every change once, also where a batch is repeated."""
    if spark.version < "4.1":
        return
    words = {"to": "changes", "readChangeFeed": True, "startingVersion": 1}
    stream(spark, source, tmp_path, **words)
    sink, folder = Table(tmp_path / "changes"), tmp_path / "checkpoint-changes"
    source.update({"v": "'before'"}, "id < 2", spark=spark)
    rows = spark.readStream.format("widen").options(readChangeFeed="true", startingVersion="1").load(source.location)
    writer = rows.toDF(*(name.removeprefix("_") for name in rows.columns)).writeStream.format("widen")
    writer = writer.options(mergeSchema="true", checkpointLocation=str(folder))
    running = start_stream(lambda: writer.trigger(processingTime="1 second").start(str(tmp_path / "changes")))
    while sink.refresh().read("v = 'before'", spark=spark).isEmpty():
        assert not running.awaitTermination(1)
    old = Table(source.location)
    source.alter_column("id", type="bigint")
    source.add_columns({"w": "double"})
    source.append(spark.sql("SELECT 5000000000 AS id, 'after' AS v, 1.5D AS w"))
    source.update({"w": "2.5D"}, "id = 5", spark=spark)
    with pytest.raises(PySparkException, match=r"DELTA_SCHEMA_CHANGED_WITH_VERSION.*Start the stream again") as error:
        running.awaitTermination(120)
    assert "Version 6 of" in str(error.value)
    # The last batch was written, and Spark stopped before it could say so: the batch is read again, in new columns.
    newest = max(folder.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    # Each run ends before the next change of columns, or after the last one.
    stream(spark, source, tmp_path, **words)
    stream(spark, source, tmp_path, **words)
    later = source.refresh().changes(6, spark=spark)
    early = old.changes(1, spark=spark).selectExpr("*", "CAST(NULL AS double) AS w")
    expected = early.withColumn("id", early.id.cast("bigint")).select(later.columns).unionAll(later)
    found = sink.refresh().read(spark=spark).select(*(name.removeprefix("_") for name in later.columns))
    assert rows_of(found.toDF(*later.columns)) == rows_of(expected)


def test_a_stream_of_a_frame_from_before_a_change_of_columns_reads_what_is_before_it(
    spark: SparkSession, source: Table, tmp_path: Path
) -> None:
    """In a pipeline, Spark plans all streams first, and starts some of them much later."""
    if spark.version < "4.1":
        return
    rows = spark.readStream.format("widen").load(source.location)
    source.alter_column("id", type="bigint")
    source.add_columns({"w": "double"})
    source.append(spark.sql("SELECT 5000000000 AS id, 'after' AS v, 1.5D AS w"))

    def run(frame: DataFrame) -> None:
        writer = frame.writeStream.format("widen").options(mergeSchema="true", **PROPERTIES)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert start_stream(lambda: writer.start(str(tmp_path / "sink"))).awaitTermination(300)

    run(rows)
    assert Table(tmp_path / "sink").read(spark=spark).count() == 29
    run(spark.readStream.format("widen").load(source.location))
    assert rows_of(Table(tmp_path / "sink").read(spark=spark)) == rows_of(source.read(spark=spark))
    refusal(lambda: run(rows), "the checkpoint is after version 5, which changed them", "Load the DataFrame again")


REPEATED: list[tuple[dict[str, Any], list[int], list[int]]] = [
    ({}, [0, 1], [2, 9]),
    ({"maxFilesPerTrigger": 1}, [0], [1, 2, 9]),
    ({"startingVersion": 2}, [1], [2, 9]),
    ({"startingVersion": "latest"}, [], [2, 9]),
    ({"startingTimestamp": "2999-01-01T00:00:00"}, [], [2, 9]),
    ({"readChangeFeed": True}, [0, 1], [2, 9]),
    ({"readChangeFeed": True, "startingVersion": "latest"}, [], [2, 9]),
]
"""The options of a stream, and the rows of its first batch and of the later ones."""


@pytest.mark.parametrize(("case", "is_widened"), covering(REPEATED, [False, True]))
def test_a_first_batch_that_is_repeated_reads_the_same(
    spark: SparkSession, tmp_path: Path, case: tuple[dict[str, Any], list[int], list[int]], *, is_widened: bool
) -> None:
    """Spark asks again where the stream begins, after the table has changed, and passes the end that it has stored."""
    options, first, later = case
    if "maxFilesPerTrigger" in options and spark.version < "4.2":
        return
    table = create_table(str(tmp_path / "t"), "id int", properties=PROPERTIES)

    def append(number: int) -> None:
        table.append(spark.sql(f"SELECT CAST({number} AS {'bigint' if is_widened and number > 1 else 'int'}) AS id"))

    append(0)
    append(1)
    batches: dict[int, list[list[int]]] = {}
    must_fail = True

    def write(frame: DataFrame, number: int) -> None:
        batches.setdefault(number, []).append(sorted(row.id for row in frame.collect()))
        if must_fail:
            raise RuntimeError("the sink fails")

    def run() -> None:
        rows = spark.readStream.format("widen").options(**{name: str(value) for name, value in options.items()})
        writer = rows.load(table.location).writeStream.foreachBatch(write).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert start_stream(writer.start).awaitTermination(300)

    with pytest.raises(PySparkException, match="the sink fails"):
        run()
    if is_widened:
        table.alter_column("id", type="bigint")
    append(2)
    must_fail = False
    run()
    append(9)
    run()
    assert batches.pop(0) == [first, first]
    assert sorted(number for [numbers] in batches.values() for number in numbers) == later
