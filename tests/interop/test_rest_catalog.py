"""Iceberg tables in the REST catalog server of Apache Iceberg: intervals, faults in a commit, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

import widen
from interop.rest_catalog import Fault, Proxy, rest_catalog
from widen.errors import CatalogError, CatalogRefused, InvalidOption, SnapshotUnknown
from widen.iceberg.catalog import TableName, to_table_name
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.table_commit import CommitResult, NewTable, open_transaction
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.model.types import LONG, Field, StructType

COLUMNS = StructType((Field("n", LONG),))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as found:
        yield found


@pytest.fixture
def catalog(address: str, monkeypatch: pytest.MonkeyPatch) -> RestCatalog:
    """The catalog ``rest`` of PyIceberg's configuration."""
    configure(address, monkeypatch)
    monkeypatch.setattr(Proxy, "fault", None)
    monkeypatch.setattr(Proxy, "is_down", False)
    return RestCatalog("rest", uri=address)


def configure(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the address of the catalog; PyIceberg reads its configuration once."""
    monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", address)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def lines(path: Path, *records: object) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def test_intervals_and_a_quarantine(spark: SparkSession, tmp_path: Path, catalog: RestCatalog) -> None:
    place = {"catalog": "rest", "spark": spark}
    first = lines(tmp_path / "1.jsonl", {"n": 1, "a": 1, "k": 1})
    second = lines(tmp_path / "2.jsonl", {"n": 2**40, "a": "x", "k": 2}, {"n": 3, "k": "x"})
    for source in (first, second):
        done = widen.ingest(source, "shop.orders", verify=True, new=True, partition_by=["k"], **place)
        assert done.verification is not None
        assert done.verification.is_clean
    assert done.quarantined == 1
    assert widen.ingest(second, "shop.orders", new=True, **place).is_unchanged
    table = catalog.load_table("shop.orders")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"]) == [
        {"n": 1, "a": 1, "k": 1, "a_string": None},
        {"n": 2**40, "a": None, "k": 2, "a_string": "x"},
    ]
    assert str(table.schema().find_type("n")) == "long"
    assert catalog.load_table("shop.orders_quarantine").scan().count() == 1
    read = widen.IcebergTable("shop.orders", catalog="rest").read("n = 1", spark=spark)
    assert [row.a for row in read.collect()] == [1]


# ---- commits that fail ---------------------------------------------------------------------------


def append(name: TableName) -> tuple[CommitResult, Path]:
    """Append a file with one row, as an ingestion does, and return the outcome and the file."""
    transaction = open_transaction(name, name.find(), (), NewTable(COLUMNS))
    with StagedFiles() as staged:
        path = Path(data_location(transaction.metadata).removeprefix("file://")) / "job" / f"{Proxy.fault}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        pq.write_table(pa.table({"n": [1]}, schema=ids), path)
        staged.add_undo(path.unlink)
        transaction.add_snapshot(
            [IcebergFile(f"job/{path.name}", path.stat().st_size, '{"rows":1,"offsets":[4],"columns":{}}')], {}
        )
        return transaction.commit(staged), path


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("fault", Fault)
def test_a_commit_that_fails_loses_nothing(catalog: RestCatalog, fault: Fault, is_new: bool) -> None:
    name = to_table_name(f"faults.{fault.name.lower()}_{is_new}", catalog)
    rows = 0 if is_new else 1
    if not is_new:
        append(name)
    Proxy.fault = fault
    if fault in (Fault.BAD_GATEWAY, Fault.LOST_ANSWER):
        outcome, path = append(name)
        assert outcome == name.load().metadata.current_snapshot_id
        assert path.exists()
        rows += 1
    else:
        with pytest.raises(CatalogRefused if fault is Fault.FORBIDDEN else SnapshotUnknown) as failure:
            append(name)
        Proxy.is_down = False
        left = [] if name.find() is None else [*Path(name.load().location().removeprefix("file://")).rglob("*.parquet")]
        if fault is Fault.FORBIDDEN:
            assert "Nothing was committed" in str(failure.value)
            assert len(left) == rows
        else:
            assert "Its files are kept" in str(failure.value)
            assert is_new or len(left) == rows + 1
            rows += fault is Fault.GONE
    table = name.find()
    assert (0 if table is None else table.scan().count()) == rows
    append(name)
    assert name.load().scan().count() == rows + 1


def test_a_lost_race_is_an_outcome(catalog: RestCatalog) -> None:
    name = to_table_name("faults.race", catalog)
    append(name)
    transaction = open_transaction(name, name.load(), ())
    transaction.add_snapshot([], {})
    append(name)
    assert isinstance(transaction.commit(StagedFiles()), Conflicted)
    assert len(name.load().snapshots()) == 2


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("made_by", ["client", "load", "upgrade"])
def test_a_table_of_version_3(spark: SparkSession, tmp_path: Path, catalog: RestCatalog, made_by: str) -> None:
    name = to_table_name(f"shop.three_{made_by}", catalog)
    name.create_namespace()
    given: dict[str, Any] = {"format_version": 3} if made_by == "load" else {}
    if made_by != "load":
        schema, version = pa.schema([pa.field("n", pa.int32())]), "3" if made_by == "client" else "2"
        catalog.create_table(name.identifier, schema, properties={"format-version": version})
    table_name = ".".join(name.identifier)
    if made_by == "upgrade":
        widen.IcebergTable(table_name, catalog="rest").set_properties({"format-version": "3", "owner": "shop"})
    for day, value in enumerate((1, 2**40), start=1):
        source = lines(tmp_path / f"{day}.jsonl", {"n": value, "m": {"x": day}})
        widen.ingest(source, table_name, catalog="rest", verify=True, **given)
    table = widen.IcebergTable(table_name, catalog="rest")
    table.add_columns({"late": "string"})
    table.delete("n = 1")
    metadata = name.load().metadata
    assert (metadata.format_version, metadata.next_row_id) == (3, 2)
    rows = table.refresh().read(row_lineage=True, spark=spark).select("n", "late", "_row_id").collect()
    assert [tuple(row) for row in rows] == [(2**40, None, 1)]


def test_a_namespace_that_is_a_table(catalog: RestCatalog) -> None:
    append(to_table_name("shop.flat", catalog))
    with pytest.raises(InvalidOption, match=r"shop\.flat is a table"):
        append(to_table_name("shop.flat.lines", catalog))


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    configure("http://127.0.0.1:1", monkeypatch)
    with pytest.raises(CatalogError, match="Check the address"):
        widen.IcebergTable("shop.orders", catalog="rest")
