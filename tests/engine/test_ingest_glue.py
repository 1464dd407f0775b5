"""Ingestion into Iceberg tables of a Glue catalog on S3, both in a server of their own process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.glue import GlueCatalog
from pyspark.sql import SparkSession

from engine.test_ingest import write_lines
from support.log_server import BUCKET, s3_server
from widen import ingest
from widen.errors import InvalidOption
from widen.iceberg.catalog import to_table_name
from widen.iceberg.table_commit import open_transaction
from widen.log.commit_outcome import Conflicted, StagedFiles


@pytest.fixture(scope="module")
def catalog() -> Iterator[GlueCatalog]:
    with s3_server() as options:
        url = options["AWS_ENDPOINT_URL"]
        properties = {"warehouse": f"s3://{BUCKET}/warehouse"}
        for service in ("glue", "s3"):
            properties |= {f"{service}.{key}": value for key, value in SETTINGS.items()} | {f"{service}.endpoint": url}
        yield GlueCatalog("glue", **properties)


SETTINGS = {"region": "us-east-1", "access-key-id": "a", "secret-access-key": "b"}


def test_glue_and_s3_with_one_set_of_settings(spark: SparkSession, tmp_path: Path, catalog: GlueCatalog) -> None:
    first = write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1}])
    second = write_lines(tmp_path / "2.jsonl", [{"n": 2**40, "a": "x"}])
    ingest(first, "shop.orders", catalog=catalog, spark=spark)
    done = ingest(second, "shop.orders", catalog=catalog, txn=("loader", 1), spark=spark)
    again = ingest(second, "shop.orders", catalog=catalog, txn=("loader", 1), spark=spark)
    assert (again.is_repeated, again.version) == (True, done.version)
    table = catalog.load_table("shop.orders")
    assert table.location() == f"s3://{BUCKET}/warehouse/shop.db/orders"
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "a": 1, "a_string": None},
        {"n": 2**40, "a": None, "a_string": "x"},
    ]


def test_a_lost_race_in_glue_is_an_outcome(spark: SparkSession, tmp_path: Path, catalog: GlueCatalog) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"n": 1}])
    ingest(source, "shop.races", catalog=catalog, spark=spark)
    name = to_table_name("shop.races", catalog)
    transaction = open_transaction(name, name.load(), ())
    transaction.add_snapshot([], {})
    ingest(source, "shop.races", catalog=catalog, spark=spark)
    assert isinstance(transaction.commit(StagedFiles()), Conflicted)
    assert name.load().scan().count() == 2


def test_a_namespace_that_is_a_table(spark: SparkSession, tmp_path: Path, catalog: GlueCatalog) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"n": 1}])
    ingest(source, "shop.flat", catalog=tmp_path / "c.db", spark=spark)
    with pytest.raises(InvalidOption, match=r"shop\.flat\.lines"):
        ingest(source, "shop.flat.lines", catalog=tmp_path / "c.db", spark=spark)
