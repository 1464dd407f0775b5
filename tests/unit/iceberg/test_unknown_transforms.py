"""Tables that another writer has partitioned or sorted by a transform that PyIceberg does not know.

Source: Iceberg's table specification, "Partition Transforms"
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from support.command_line import run
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import UnsupportedFeatureForWrite

NAME = "shop.orders"


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


def load(place: Path, number: int, **words: Any) -> widen.IngestResult:
    path = place / f"{number}.jsonl"
    path.write_text(json.dumps({"id": number, "day": "mon"}) + "\n")
    return ingest(str(path), NAME, catalog=place / "catalog.db", engine="local", **words)


def edit(catalog: SqlCatalog, change: Callable[[dict[str, Any]], None]) -> widen.IcebergTable:
    """Change the newest metadata file as another writer could have written it."""
    path = Path(catalog.load_table(NAME).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))
    return widen.IcebergTable(NAME, path.parents[4] / "catalog.db")


def with_partition(metadata: dict[str, Any]) -> None:
    metadata["partition-specs"][-1]["fields"][0]["transform"] = "zorder[3]"


def with_sort_order(metadata: dict[str, Any]) -> None:
    field = {"transform": "zorder[3]", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    metadata["sort-orders"].append({"order-id": 9, "fields": [field]})
    metadata["default-sort-order-id"] = 9


WRITERS: dict[str, Callable[[widen.IcebergTable, Path], object]] = {
    "ingest": lambda table, place: load(place, 2),
    "ingest by key": lambda table, place: load(place, 2, key=["id"]),
    "update": lambda table, place: table.update({"id": "id + 1"}),
    "delete": lambda table, place: table.delete("id = 1"),
    "delete all": lambda table, place: table.delete(),
    "optimize": lambda table, place: table.optimize(),
    "properties": lambda table, place: table.set_properties({"a": "b"}),
    "columns": lambda table, place: widen.sql(f"ALTER TABLE {NAME} ADD COLUMN c INT", catalog=place / "catalog.db"),
    "partitioning": lambda table, place: table.change_partitioning(add=["id"]),
    "sort order": lambda table, place: table.set_sort_order("id"),
    "branch": lambda table, place: table.create_branch("b"),
    "restore": lambda table, place: table.restore(table.table.snapshots()[0].snapshot_id),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", [with_partition, with_sort_order])
def test_a_table_with_an_unknown_transform_is_read_and_not_written(
    tmp_path: Path, catalog: SqlCatalog, kind: Callable[[dict[str, Any]], None], writer: str
) -> None:
    load(tmp_path, 1, partition_by=["day"])
    load(tmp_path, 3)
    table = edit(catalog, kind)
    before = catalog.load_table(NAME).metadata_location
    with pytest.raises(UnsupportedFeatureForWrite, match=r"cannot write to the table at .* transform zorder\[3\]"):
        WRITERS[writer](table, tmp_path)
    assert catalog.load_table(NAME).metadata_location == before
    words = ("--catalog", str(tmp_path / "catalog.db"))
    rows = run("read", NAME, "--where", "day = 'mon' AND id < 2", "--json", *words).stdout.splitlines()
    assert [json.loads(row) for row in rows] == [{"id": 1, "day": "mon"}]
    assert table.partition_by == (("zorder[3](day)",) if kind is with_partition else ("day",))
    assert table.sort_order == ()


def test_an_unknown_transform_of_older_files_keeps_nobody_from_writing(tmp_path: Path, catalog: SqlCatalog) -> None:
    load(tmp_path, 1, partition_by=["day"])
    widen.IcebergTable(NAME, tmp_path / "catalog.db").change_partitioning(drop=["day"])

    def with_old_partition(metadata: dict[str, Any]) -> None:
        metadata["partition-specs"][0]["fields"][0]["transform"] = "zorder[3]"

    table = edit(catalog, with_old_partition)
    load(tmp_path, 2)
    table.update({"id": "id + 10"}, where="day = 'mon'")
    assert sorted(catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist()) == [11, 12]
