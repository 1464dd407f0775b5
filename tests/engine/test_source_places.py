"""What an ingestion takes for its source: tables are never read as files, and links and patterns name a file once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from support.command_line import run, run_json
from support.covering import covering
from widen.errors import InvalidOption, SourceError
from widen.sources import find_files, listing, places
from widen.table import Table
from widen.table.table import create_table_as


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of which 2 of 5 rows are live, one with partitions and vectors, and links to both."""
    place = tmp_path_factory.mktemp("shop")
    rows = spark.range(1, 6).selectExpr("cast(id AS int) AS n", "concat('t', id) AS t").coalesce(1)
    create_table_as(str(place / "orders"), rows).delete("n > 2")
    properties = {"delta.enableDeletionVectors": "true"}
    create_table_as(str(place / "days"), rows, partition_by=["t"], properties=properties)
    spark_rows = spark.range(1, 6).selectExpr("cast(id AS int) AS n", "'x' AS t").coalesce(1)
    create_table_as(str(place / "vectors"), spark_rows, properties=properties).delete("n > 2")
    (place / "link").symlink_to(place / "orders")
    return place


def numbers(spark: SparkSession, table: Path | str) -> list[int]:
    return sorted(row.n for row in Table(str(table)).read(spark=spark).collect())


def put(place: Path, name: str, *found: int) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("".join(json.dumps({"n": number}) + "\n" for number in found))
    return place / name


# ---- tables ----------------------------------------------------------------------------------------

WHOLE = ["orders", "orders/", "orders/../orders", "link", "./link/", "vectors"]


@pytest.mark.parametrize(("spelling", "scheme"), covering(WHOLE, ["", "file:", "file://"]))
def test_a_table_is_read_as_its_current_version(
    spark: SparkSession, shop: Path, tmp_path: Path, spelling: str, scheme: str
) -> None:
    source = f"{scheme}{shop}/{spelling}"
    assert widen.plan(source, tmp_path / "t", spark=spark).source_table.startswith("version 1 of the Delta table /")
    done = widen.ingest(source, tmp_path / "t", spark=spark, verify=True)
    assert (done.records, done.plan.source_table[:9]) == (2, "version 1")
    assert done.verification is not None
    assert done.verification.is_clean
    assert numbers(spark, tmp_path / "t") == [1, 2]


def test_the_command_says_that_it_reads_a_table(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    done = run("ingest", str(shop / "orders"), "--into", str(tmp_path / "t"))
    assert done.exit_code == 0, done.stderr
    assert f"the source is read as a table: version 1 of the Delta table {shop}/orders" in done.stderr
    done = run("plan", str(shop / "orders"), "--into", str(tmp_path / "t"))
    assert "the source is read as a table" in done.stderr
    assert run_json("ingest", str(shop / "orders"), "--into", str(tmp_path / "t"))["records"] == 2


PARTS = ["", "o*", "orders/*", "orders/part-*", "{orders,days}", "days/*/", "orders/_delta_log", "days/t=*"]


@pytest.mark.parametrize(("part", "is_here"), covering(PARTS, [True, False]))
def test_what_has_tables_or_is_a_part_of_one_is_refused(
    spark: SparkSession, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, is_here: bool
) -> None:
    """Also where only Spark sees the store, as with S3 and from a client of Spark Connect."""
    if not is_here:
        for module in (places, listing, find_files):
            monkeypatch.setattr(module, "is_driver", lambda _: False)
        monkeypatch.setattr(places, "will_run_here", lambda _: False)
    for call in (widen.ingest, widen.plan):
        with pytest.raises(SourceError, match="is a Delta table, whose files also contain") as caught:
            call(f"{shop}/{part}", str(tmp_path / "t"), spark=spark)
        assert str(shop) in caught.value.advice
    assert not (tmp_path / "t").exists()


def test_one_file_of_a_table(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    file = next(path for path in (shop / "orders").rglob("*.parquet") if "_delta_log" not in path.parts)
    (tmp_path / "linked.parquet").symlink_to(file)
    for source in (file, tmp_path / "linked.parquet", [tmp_path / "linked.parquet", put(tmp_path, "a.json", 1)]):
        with pytest.raises(SourceError, match="is a Delta table"):
            widen.ingest(source, tmp_path / "t", spark=spark)


def test_a_table_in_a_list_of_sources(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", 1)
    with pytest.raises(SourceError, match="is a Delta table"):
        widen.ingest([shop / "orders", file], tmp_path / "t", spark=spark)


def test_new_files_and_streams_point_at_flows(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        widen.ingest(shop / "orders", tmp_path / "t", new=True, spark=spark)
    assert f"widen flow {shop}/orders" in caught.value.advice
    with pytest.raises(SourceError) as caught:
        widen.ingest_stream(shop / "orders", tmp_path / "t", checkpoint=tmp_path / "c", once=True, spark=spark)
    assert f"widen flow {shop}/orders" in caught.value.advice
    shutil.copytree(shop / "orders", tmp_path / "lake" / "orders")
    stream = widen.ingest_stream(tmp_path / "lake", tmp_path / "t", checkpoint=tmp_path / "c", once=True, spark=spark)
    with pytest.raises(SourceError, match="is a Delta table"):
        stream.wait()
    assert not (tmp_path / "t").exists()


def test_a_contract_is_checked_on_the_current_version(spark: SparkSession, shop: Path) -> None:
    contract = Table(str(shop / "orders")).contract()
    assert widen.check_contract(shop / "orders", contract, spark=spark).records == 2
    with pytest.raises(SourceError, match="is a Delta table"):
        widen.check_contract(shop, contract, spark=spark)


def test_options_for_files_do_not_apply_to_a_table(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    for words in ({"format": "parquet"}, {"options": {"sep": ";"}}, {"detect_types": True}):
        with pytest.raises(InvalidOption, match="cannot be"):
            widen.ingest(shop / "orders", tmp_path / "t", spark=spark, **words)  # type: ignore[arg-type]


def test_a_table_is_not_ingested_into_itself(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    widen.ingest(put(tmp_path / "in", "a.json", 1, 2), table, spark=spark)
    (tmp_path / "link").symlink_to(table)
    for source in (table, f"{table}/", f"file://{table}", tmp_path / "link", table / ".." / "t"):
        with pytest.raises(InvalidOption, match="source cannot be"):
            widen.ingest(source, table, spark=spark)
    with pytest.raises(InvalidOption, match="source cannot be"):
        widen.ingest(table, tmp_path / "link", spark=spark)
    (file,) = table.rglob("*.parquet")
    with pytest.raises(SourceError, match="is a Delta table"):
        widen.ingest(file.parent / "part-*", table, spark=spark)
    assert numbers(spark, table) == [1, 2]
    below = tmp_path / "in" / "t"
    with pytest.raises(InvalidOption, match="into cannot be"):
        widen.ingest(tmp_path / "in", below, spark=spark)
    with pytest.raises(InvalidOption, match="quarantine cannot be"):
        widen.ingest(tmp_path / "in", table, quarantine=below, spark=spark)
    assert not below.exists()


def test_the_quarantine_of_a_table_is_replayed(spark: SparkSession, tmp_path: Path) -> None:
    create_table_as(str(tmp_path / "t_quarantine"), spark.sql("SELECT 1 AS n"))
    with pytest.raises(InvalidOption) as caught:
        widen.ingest(tmp_path / "t_quarantine", tmp_path / "t", spark=spark)
    assert "widen replay" in caught.value.advice


def test_iceberg_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    catalog = tmp_path / "c.db"
    widen.ingest(put(tmp_path / "in", "a.json", 1, 2), "shop.orders", to="iceberg", catalog=catalog, spark=spark)
    root = tmp_path / "c_warehouse" / "shop" / "orders"
    for part in (root, root / "data", tmp_path / "c_warehouse", root / "metadata"):
        with pytest.raises(SourceError, match="is an Iceberg table") as caught:
            widen.ingest(part, tmp_path / "t", spark=spark)
        if part == root:
            assert "--source-catalog" in caught.value.advice


# ---- links -----------------------------------------------------------------------------------------


def test_a_folder_that_links_to_itself(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    put(landing, "a.json", 1)
    put(landing / "sub", "b.json", 2)
    put(landing / "_hidden", "c.json", 9)
    for at, name in enumerate(("self", "sub/parent", "sub/again")):
        (landing / name).symlink_to(landing, target_is_directory=True)
        done = widen.ingest(landing, tmp_path / str(at), spark=spark, verify=True)
        assert (done.records, numbers(spark, tmp_path / str(at))) == (2, [1, 2])
        assert sorted(file.path for file in Table(tmp_path / str(at)).loads()[0].files) == [
            f"file:{landing}/a.json",
            f"file:{landing}/sub/b.json",
        ]
    assert widen.ingest(landing, tmp_path / "0", new=True, spark=spark).is_unchanged
    with pytest.raises(SourceError, match="name the same files"):
        widen.ingest_stream(landing, tmp_path / "s", checkpoint=tmp_path / "c", once=True, spark=spark)


def test_two_links_to_one_folder_or_file(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "store", "a.json", 1, 2)
    landing = tmp_path / "landing"
    landing.mkdir()
    for name in ("one", "two"):
        (landing / name).symlink_to(tmp_path / "store")
        (landing / f"{name}.json").symlink_to(tmp_path / "store" / "a.json")
    widen.ingest(landing, tmp_path / "t", spark=spark, verify=True)
    assert numbers(spark, tmp_path / "t") == [1, 2]


def test_files_that_are_named_twice(spark: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path / "in", "a.json", 1, 2)
    (tmp_path / "link.json").symlink_to(file)
    (tmp_path / "in" / "a b.json").symlink_to(file)
    folder = tmp_path / "in"
    sources: list[Any] = [[file, file], [folder, file], [folder, folder], [f"{folder}/*.json", f"{folder}/a*"]]
    sources += [[tmp_path / "link.json", file], [f"{folder}/", f"{folder}/../in"], [folder, f"file://{folder}"]]
    for at, source in enumerate(sources):
        assert widen.ingest(source, tmp_path / str(at), spark=spark, verify=True).records == 2, source
    with pytest.raises(SourceError, match="name the same files"):
        widen.ingest_stream([folder, folder], tmp_path / "s", checkpoint=tmp_path / "c", once=True, spark=spark)
    (tmp_path / "other").symlink_to(folder)
    with pytest.raises(SourceError, match="name the same files"):
        widen.ingest_stream(
            [folder, tmp_path / "other"], tmp_path / "s", checkpoint=tmp_path / "c", once=True, spark=spark
        )


def test_many_files_behind_a_link(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_files, "MAX_LISTED_FILES", 3)
    for number in range(10):
        put(tmp_path / "in" / "sub", f"{number}.json", number)
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    widen.ingest(tmp_path / "in", tmp_path / "t", spark=spark)
    assert numbers(spark, tmp_path / "t") == [*range(10)]


def test_parquet_behind_links(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "in" / "day=1" / "a.parquet")
    (tmp_path / "in" / "day=1" / "loop").symlink_to(tmp_path / "in")
    widen.ingest(tmp_path / "in", tmp_path / "t", spark=spark, verify=True)
    assert [tuple(row) for row in Table(str(tmp_path / "t")).read(spark=spark).orderBy("n").collect()] == [
        ("1", 1),
        ("1", 2),
    ]


# ---- nothing new -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "empty.json", ".hidden.json", "sub/empty.csv"])
def test_no_new_file_is_no_error(spark: SparkSession, tmp_path: Path, name: str) -> None:
    landing, table = tmp_path / "landing", tmp_path / "t"
    landing.mkdir()
    if name:
        (landing / name).parent.mkdir(exist_ok=True)
        (landing / name).touch()
    for exists in (False, True):
        done = widen.ingest(landing, table, new=True, spark=spark)
        assert (done.version, done.is_unchanged, table.exists()) == (0 if exists else None, True, exists)
        assert widen.plan(landing, table, new=True, spark=spark).is_empty
        answer = run("ingest", str(landing), "--into", str(table), "--new")
        assert (answer.exit_code, answer.stdout) == (
            0,
            f"No new files: {table} {'has version 0' if exists else 'does not exist yet'}.\n",
        )
        assert run_json("ingest", str(landing), "--into", str(table), "--new")["version"] == done.version
        assert run("plan", str(landing), "--into", str(table), "--new").exit_code == 0
        stream = ["--once", "--checkpoint", str(tmp_path / f"c{exists}")]
        assert run("ingest", str(landing), "--into", str(table), *stream).exit_code == 0
        if not exists:
            widen.ingest(put(tmp_path / "other", "a.json", 1), table, spark=spark)
    with pytest.raises(SourceError, match=r"there is no file|the files are empty"):
        widen.ingest(landing, table, spark=spark)


def test_a_missing_folder_is_an_error_with_new(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        widen.ingest(tmp_path / "missing", tmp_path / "t", new=True, spark=spark)


def test_no_new_file_for_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    words: Any = {"to": "iceberg", "catalog": tmp_path / "c.db", "spark": spark}
    done = widen.ingest(tmp_path / "in", "shop.orders", new=True, **words)
    assert (done.version, done.is_unchanged) == (None, True)
    if (tmp_path / "c.db").exists():
        assert SqlCatalog("default", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)).list_namespaces() == []
    put(tmp_path / "in", "a.json", 1)
    assert widen.ingest(tmp_path / "in", "shop.orders", new=True, **words).records == 1
    os.truncate(put(tmp_path / "in", "b.json"), 0)
    assert widen.ingest(tmp_path / "in", "shop.orders", new=True, **words).is_unchanged
