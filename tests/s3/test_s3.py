"""Tables in S3 with one set of storage options, for the log and for Spark's readers and writers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from support.log_server import BUCKET
from widen.report.iceberg_report import build_iceberg_report
from widen.table import Table, create_table

PROPERTIES = {"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true"}


def ids(table: Table, spark: SparkSession, where: str = "true") -> list[int]:
    return sorted(row.id for row in table.read(where, spark=spark).select("id").collect())


def test_the_session_has_no_credentials(spark: SparkSession, options: dict[str, str]) -> None:
    assert [key for key in spark.conf.getAll if "access.key" in key or "secret.key" in key or "endpoint" in key] == []


def test_a_table_lives_in_s3(spark: SparkSession, options: dict[str, str]) -> None:
    place = f"s3://{BUCKET}/lake/orders"
    table = create_table(
        place, "id int, day date, v string", partition_by=["day"], properties=PROPERTIES, storage_options=options
    )
    rows = (
        "SELECT CAST(id AS {}) AS id, date'2024-01-01' + CAST(id % 2 AS int) AS day, 'v' || id AS v FROM range({}, {})"
    )
    table.append(spark.sql(rows.format("int", 0, 10)))
    table.alter_column("id", type="bigint")
    table.append(spark.sql(rows.format("bigint", 10, 20)))
    assert ids(table, spark) == [*range(20)]
    assert ids(table, spark, "id >= 8 AND day = date'2024-01-01'") == [8, 10, 12, 14, 16, 18]
    assert Table(place, options).read(version=1, spark=spark).count() == 10
    table.delete("id IN (1, 2)", spark=spark)
    table.update({"v": "'new'"}, "id = 3", spark=spark)
    merge = table.merge(spark.sql(rows.format("bigint", 19, 22)), "t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert ids(table, spark) == [0, *range(3, 22)]
    assert ids(table, spark, "v = 'new'") == [3]
    merged = table.version
    table.optimize(spark=spark)
    assert table.version == merged + 1
    vacuumed = table.vacuum(0, force=True)
    assert len(vacuumed.files) > 0
    assert ids(table, spark) == [0, *range(3, 22)]
    table.delete("id < 10", spark=spark)
    table.restore(merged + 1)
    assert ids(table.refresh(), spark) == [0, *range(3, 22)]


def test_a_table_in_s3_is_mirrored(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    properties = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
    place = f"s3://{BUCKET}/lake/mirrored"
    table = create_table(place, "id int, v string", properties=properties, storage_options=options)
    table.append(spark.sql("SELECT CAST(id AS int) AS id, 'v' || id AS v FROM range(5)"))
    catalog = iceberg_catalog(options, tmp_path)
    catalog.create_namespace("shop")
    table.mirror(catalog=catalog, identifier="shop.orders")
    rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 3, 4]
    catalog.close()


def iceberg_catalog(options: dict[str, str], folder: Path) -> SqlCatalog:
    settings = {"s3.endpoint": options["AWS_ENDPOINT_URL"], "s3.region": options["AWS_REGION"]}
    settings |= {"s3.access-key-id": "a", "s3.secret-access-key": "b", "warehouse": f"s3://{BUCKET}/warehouse"}
    return SqlCatalog("s3", uri=f"sqlite:///{folder}/lake.db", **settings)


def test_an_iceberg_table_needs_only_the_settings_of_its_catalog(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    catalog = iceberg_catalog(options, tmp_path)
    for day, values in enumerate(([1, 2], [3_000_000_000, "x"])):
        lines = [json.dumps({"id": 10 * day + at, "value": value}) for at, value in enumerate(values)]
        (tmp_path / f"{day}.json").write_text("\n".join(lines))
        result = widen.ingest(tmp_path / f"{day}.json", "lake.orders", catalog=catalog, verify=True, spark=spark)
        assert result.verification is not None
        assert result.verification.is_clean
    widen.create_table(f"s3://{BUCKET}/lake/changes", "id int, value int", storage_options=options).append(
        spark.sql("SELECT 1 id, 7 value")
    )
    words = {"catalog": catalog, "checkpoint": tmp_path / "flow", "storage_options": options, "spark": spark}
    widen.flow(f"s3://{BUCKET}/lake/changes", "lake.orders", keys=["id"], once=True, **words)
    table = widen.IcebergTable("lake.orders", catalog=catalog)
    assert ids(table, spark) == [0, 1, 10, 11]
    assert ids(table, spark, "value > 5") == [1, 10]
    assert table.location.startswith(f"s3://{BUCKET}/")
    assert sorted(catalog.load_table("lake.orders").scan().to_arrow()["id"].to_pylist()) == [0, 1, 10, 11]
    assert build_iceberg_report(table.table, "lake.orders").rows == 4
    catalog.close()


def test_sources_flows_and_checkpoints_are_in_s3(
    spark: SparkSession, options: dict[str, str], store: obstore.store.S3Store
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    lake = f"s3://{BUCKET}/flow"
    for day, values in enumerate(([1, 2], [3_000_000_000])):
        lines = [json.dumps({"id": 10 * day + at, "value": value}) for at, value in enumerate(values)]
        obstore.put(store, f"landing/{day}.json", "\n".join(lines).encode())
        stream = widen.ingest_stream(
            f"s3://{BUCKET}/landing",
            f"{lake}/bronze",
            checkpoint=f"s3a://{BUCKET}/checkpoints/bronze",
            once=True,
            storage_options=options,
            spark=spark,
        )
        stream.wait()
        widen.flow(
            f"{lake}/bronze",
            f"{lake}/silver",
            sql="SELECT id, value * 2 AS twice FROM source",
            keys=["id"],
            checkpoint=f"s3://{BUCKET}/checkpoints/silver",
            once=True,
            storage_options=options,
            spark=spark,
        )
    rows = Table(f"{lake}/silver", options).read(spark=spark).collect()
    assert sorted(map(tuple, rows)) == [(0, 2), (1, 4), (10, 6_000_000_000)]
    result = widen.ingest(f"s3a://{BUCKET}/landing", f"{lake}/all", verify=True, storage_options=options, spark=spark)
    assert (result.records, result.verification is not None and result.verification.is_clean) == (3, True)
    assert [key for key in spark.conf.getAll if "access.key" in key or "secret.key" in key] == []


def test_records_are_ingested_and_verified(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    place = f"s3://{BUCKET}/lake/events"
    for day, values in enumerate(([1, 2], [3_000_000_000, 2.5], ["x", 4])):
        lines = [json.dumps({"id": 10 * day + at, "value": value}) for at, value in enumerate(values)]
        (landing / f"{day}.json").write_text("\n".join(lines) + "\n")
        result = widen.ingest(landing / f"{day}.json", place, verify=True, storage_options=options, spark=spark)
        assert result.verification is not None
        assert result.verification.is_clean
    assert ids(Table(place, options), spark) == [0, 1, 10, 11, 20, 21]
    streamed = f"s3://{BUCKET}/lake/streamed"
    stream = widen.ingest_stream(
        landing,
        streamed,
        checkpoint=tmp_path / "checkpoint",
        once=True,
        verify=True,
        storage_options=options,
        spark=spark,
    )
    stream.wait()
    assert ids(Table(streamed, options), spark) == [0, 1, 10, 11, 20, 21]


def test_the_data_source_takes_the_same_options(spark: SparkSession, options: dict[str, str]) -> None:
    widen.register(spark)
    place = f"s3a://{BUCKET}/lake/source"
    rows = spark.range(100)
    rows.write.format("widen").mode("append").options(**options).save(place)
    loaded = spark.read.format("widen").options(**options).load(place)
    assert sorted(row.id for row in loaded.collect()) == [*range(100)]


def test_writers_race_and_no_row_is_lost(spark: SparkSession, options: dict[str, str]) -> None:
    place = f"s3://{BUCKET}/lake/raced"
    create_table(place, "id bigint, writer int", storage_options=options)

    def write(writer: int) -> None:
        for turn in range(4):
            first = 1000 * writer + 10 * turn
            rows = spark.sql(f"SELECT id, {writer} AS writer FROM range({first}, {first + 10})")
            Table(place, options).append(rows)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    table = Table(place, options)
    assert table.version == 12
    assert ids(table, spark) == [1000 * writer + at for writer in range(3) for at in range(40)]


def test_wrong_credentials_are_not_hidden_by_the_session(spark: SparkSession, options: dict[str, str]) -> None:
    wrong = {**options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    with pytest.raises(widen.WidenError):
        Table(f"s3://{BUCKET}/lake/orders", wrong)


def test_without_credentials_spark_is_told_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(widen.WidenError, match=r"has no credentials.*storage_options"):
        widen.ingest("s3a://another-bucket/landing/1.json", tmp_path / "t", spark=spark)


def test_both_engines_load_the_same_files(
    spark: SparkSession, options: dict[str, str], store: obstore.store.S3Store, tmp_path: Path
) -> None:
    """Files have the same names for both, so that one knows what the other has loaded."""
    for name in ("day=1/a b.json", "day=1/ü%20#+;@.json", "day=2/c.json"):
        obstore.put(store, f"both/{name}", b'{"id": 1, "v": 1}\n{"id": 2, "v": "x"}\nbroken\n')
    for scheme in ("s3", "s3a"):
        source, words = f"{scheme}://{BUCKET}/both/", {"storage_options": options, "new": True}
        done = [
            widen.ingest(source, tmp_path / f"{scheme}_{name}", verify=True, **words, **engine)
            for name, engine in (("local", {"engine": "local"}), ("spark", {"spark": spark}))
        ]
        assert [(each.records, each.corrupt, str(each.verification), each.plan.hash) for each in done[:1]] == [
            (each.records, each.corrupt, str(each.verification), each.plan.hash) for each in done[1:]
        ]
        tables = [
            sorted(map(repr, Table(str(tmp_path / f"{scheme}_{name}")).to_arrow(spark=spark).to_pylist()))
            for name in ("local", "spark")
        ]
        assert tables[0] == tables[1]
        assert widen.ingest(source, tmp_path / f"{scheme}_local", spark=spark, **words).is_unchanged
        assert widen.ingest(source, tmp_path / f"{scheme}_spark", engine="local", **words).is_unchanged
