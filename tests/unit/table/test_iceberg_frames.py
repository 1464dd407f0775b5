"""Rows of Iceberg tables as Arrow tables, pandas and polars DataFrames, without Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from support.iceberg_files import embedded_catalog
from widen.errors import InvalidOption

DAYS = (
    [{"id": 1, "total": 1, "n": {"x": 1}, "tags": ["a"]}, {"id": 2, "total": 2, "n": None, "tags": []}],
    [{"id": 2**40, "total": "free", "n": {"x": 1.5, "y": "z"}, "tags": ["b", None]}],
)


@pytest.fixture
def table(tmp_path: Path) -> widen.IcebergTable:
    for day, records in enumerate(DAYS):
        path = tmp_path / f"{day}.json"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        widen.ingest(path, "ns.t", catalog=tmp_path / "catalog.db", partition_by=["id"] if not day else None)
    return widen.IcebergTable("ns.t", tmp_path / "catalog.db")


def rows(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: row["id"])  # type: ignore[no-any-return]


def test_all_rows_are_what_pyiceberg_reads(table: widen.IcebergTable) -> None:
    found = table.to_arrow()
    assert rows(found) == rows(table.table.scan().to_arrow())
    assert [str(field.type) for field in found.schema][:2] == ["int64", "struct<x: int32, x_double: double, y: string>"]


@pytest.mark.parametrize(
    ("where", "ids"), [("id > 1", [2, 2**40]), ("n.y = 'z'", [2**40]), ("total IS NULL", [2**40]), ("id < 0", [])]
)
def test_conditions(table: widen.IcebergTable, where: str, ids: list[int]) -> None:
    assert [row["id"] for row in rows(table.to_arrow(where))] == ids


def test_one_column_for_each_field(table: widen.IcebergTable) -> None:
    found = table.to_arrow(unified=True)
    assert [row["total"] for row in rows(found)] == ["1", "2", "free"]
    assert [*table.to_pandas(unified=True).sort_values("id")["total"]] == ["1", "2", "free"]


def test_limits(table: widen.IcebergTable) -> None:
    assert table.to_arrow(limit=2).num_rows == 2
    assert table.to_polars("id = 1", limit=2)["total"].to_list() == [1]
    with pytest.raises(InvalidOption, match="Give a limit"):
        table.to_arrow(max_rows=2)
    with pytest.raises(InvalidOption, match="limit"):
        table.to_arrow(limit=-1)


def test_the_snapshot_of_the_object_is_read(table: widen.IcebergTable, tmp_path: Path) -> None:
    before = table.version
    widen.IcebergTable("ns.t", tmp_path / "catalog.db").delete("id = 1")
    assert table.version == before
    assert table.to_arrow().num_rows == 3
    assert table.refresh().to_arrow().num_rows == 2


def test_an_empty_table(tmp_path: Path) -> None:
    catalog: SqlCatalog = embedded_catalog(tmp_path)
    catalog.create_table("ns.empty", pa.schema([("id", pa.int64())]))
    found = widen.IcebergTable("ns.empty", catalog).to_arrow()
    assert (found.num_rows, found.schema.names) == (0, ["id"])


def test_no_java_is_started(table: widen.IcebergTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.java_gateway", None)
    assert table.to_arrow("id > 1").num_rows == 2
