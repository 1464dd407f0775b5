"""UPDATE and DELETE of Iceberg tables without Spark, judged by PyIceberg's scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

import widen
from support.iceberg_files import (
    append_deletes,
    append_rows,
    deletion_vector,
    embedded_catalog,
    equality_deletes,
    field,
    position_deletes,
)
from widen.changes import iceberg_copies
from widen.errors import EngineUnsuitable, SchemaMismatch
from widen.frames import iceberg_scan
from widen.spark.engine import Engine, LocalSession

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "size", DoubleType(), required=False),
    NestedField(4, "place", StructType(NestedField(5, "zip", StringType(), required=False)), required=False),
)
Row = dict[str, Any]
ROWS: list[Row] = [
    {"id": 1, "kind": "a", "size": 10.5, "place": {"zip": "x"}},
    {"id": 2, "kind": "a", "size": None, "place": None},
    {"id": 3, "kind": "b", "size": 30.0, "place": {"zip": None}},
    {"id": 4, "kind": None, "size": 40.0, "place": {"zip": "y"}},
    {"id": 5, "kind": "b", "size": 50.0, "place": {"zip": "z"}},
    {"id": 6, "kind": "c", "size": None, "place": {"zip": "x"}},
]
LAYOUTS: Mapping[str, Transform[Any, Any] | None] = {
    "whole": None,
    "by kind": IdentityTransform(),
    "by bucket": BucketTransform(2),
}
HERE: Any = LocalSession(Engine.LOCAL, pytest.fail)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


def make(catalog: SqlCatalog, transform: Transform[Any, Any] | None = None) -> Table:
    """Return a table with two files, or more in several partitions."""
    spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(2, 1000, transform, "p"))
    table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties={"format-version": "2"})
    append_rows(catalog, ROWS[:4], ROWS[4:])
    return table.refresh()


def rows(table: Table) -> list[Row]:
    found: list[Row] = table.refresh().scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def files(table: Table) -> set[str]:
    return {each["file_path"] for each in table.refresh().inspect.files().to_pylist()}


CHANGES: Mapping[str, tuple[Callable[[widen.IcebergTable], Any], Callable[[Row], Row | None]]] = {
    "delete by a column": (
        lambda table: table.delete("size > 20", spark=HERE),
        lambda row: None if (row["size"] or 0) > 20 else row,
    ),
    "delete by the partition": (
        lambda table: table.delete("KIND = 'b'", spark=HERE),
        lambda row: None if row["kind"] == "b" else row,
    ),
    "delete where null": (
        lambda table: table.delete("kind IS NULL OR place.zip IS NULL", spark=HERE),
        lambda row: row if row["kind"] and row["place"] and row["place"]["zip"] else None,
    ),
    "delete all rows": (lambda table: table.delete(spark=HERE), lambda _: None),
    "delete with LIKE": (
        lambda table: table.delete("kind LIKE 'a%'", spark=HERE),
        lambda row: None if row["kind"] == "a" else row,
    ),
    "update columns": (
        lambda table: table.update({"size": "size + id", "Kind": "concat(kind, '!')"}, "id IN (1, 5)", spark=HERE),
        lambda row: {**row, "size": row["size"] + row["id"], "kind": row["kind"] + "!"} if row["id"] in (1, 5) else row,
    ),
    "update all rows": (
        lambda table: table.update({"kind": "place.zip", "place": "NULL"}, spark=HERE),
        lambda row: {**row, "kind": row["place"] and row["place"]["zip"], "place": None},
    ),
    "update with a wider type": (
        lambda table: table.update({"size": "7"}, "size IS NULL", spark=HERE),
        lambda row: {**row, "size": 7.0} if row["size"] is None else row,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", CHANGES)
def test_rows_change_in_one_snapshot(catalog: SqlCatalog, layout: str, change: str) -> None:
    table, (act, expected) = make(catalog, LAYOUTS[layout]), CHANGES[change]
    before = files(table)
    done = act(widen.IcebergTable("ns.t", catalog=catalog))
    assert rows(table) == [row for row in map(expected, ROWS) if row is not None]
    assert len(table.metadata.snapshots) == 3
    changed = [row for row in ROWS if expected(row) != row]
    name = "numDeletedRows" if done.operation == "delete" else "numUpdatedRows"
    removed, added = before - files(table), files(table) - before
    assert done.metrics == {name: len(changed), "numAddedFiles": len(added), "numRemovedFiles": len(removed)}
    folder = Path(table.location().removeprefix("file://"))
    written = {f"file://{path}" for path in folder.rglob("*.parquet")}
    assert written == before | added


@pytest.mark.parametrize("kind", ["positions", "vectors"])
def test_rows_that_others_have_deleted_stay_deleted(catalog: SqlCatalog, kind: str) -> None:
    table = make(catalog)
    first = max(table.inspect.files().to_pylist(), key=lambda file: file["record_count"])["file_path"]
    path = Path(first.removeprefix("file://"))
    ids = pa.parquet.read_table(path)["id"].to_pylist()
    gone = [ids.index(1), ids.index(3)]
    deletes = {"positions": lambda: position_deletes(table, [(path, at) for at in gone])}
    deletes["vectors"] = lambda: deletion_vector(table, {path: gone})
    append_deletes(table, deletes[kind]())
    opened = widen.IcebergTable("ns.t", catalog=catalog)
    assert opened.update({"size": "0.5"}, "id < 5", spark=HERE).metrics["numUpdatedRows"] == 2
    left = [{**row, "size": 0.5} if row["id"] < 5 else row for row in ROWS if row["id"] not in (1, 3)]
    assert rows(table) == left
    assert opened.delete("id IN (1, 2)", spark=HERE).metrics["numDeletedRows"] == 1
    assert rows(table) == left[1:]
    assert opened.delete(spark=HERE).metrics["numDeletedRows"] == 3


def test_nothing_to_change_is_no_snapshot(catalog: SqlCatalog) -> None:
    table = make(catalog)
    opened = widen.IcebergTable("ns.t", catalog=catalog)
    before = opened.version
    for done in (opened.delete("id > 9", spark=HERE), opened.update({"size": "1"}, "kind = 'none'", spark=HERE)):
        assert (done.version, done.metrics) == (before, {})
    assert len(table.refresh().metadata.snapshots) == 2


REFUSED: Mapping[str, tuple[Callable[[widen.IcebergTable], Any], str]] = {
    "a function": (lambda table: table.delete("crc32(kind) = 7", spark=HERE), "evaluates CRC32"),
    "a field of a struct": (lambda table: table.update({"place.zip": "'x'"}, spark=HERE), "fields of structs"),
    "a required column": (lambda table: table.update({"id": "NULL"}, spark=HERE), "would be null"),
    "a condition in double quotes": (lambda table: table.delete('kind = "a"', spark=HERE), "not plain SQL"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_only_spark_does_leaves_nothing(catalog: SqlCatalog, what: str) -> None:
    table, (act, reason) = make(catalog), REFUSED[what]
    before = files(table)
    with pytest.raises(EngineUnsuitable, match=reason):
        act(widen.IcebergTable("ns.t", catalog=catalog))
    assert (files(table), rows(table)) == (before, ROWS)


def test_values_of_another_type_are_refused_without_spark(catalog: SqlCatalog) -> None:
    make(catalog)
    with pytest.raises(SchemaMismatch):
        widen.IcebergTable("ns.t", catalog=catalog).update({"place": "1"}, spark=HERE)


def test_tables_that_only_spark_changes(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(catalog)
    opened = widen.IcebergTable("ns.t", catalog=catalog)
    monkeypatch.setattr(iceberg_copies, "HELD_BYTES", 100)
    with pytest.raises(EngineUnsuitable, match="new values have more than"):
        opened.update({"size": "1"}, spark=HERE)
    monkeypatch.setattr(iceberg_copies, "COPIED_BYTES", 100)
    with pytest.raises(EngineUnsuitable, match="files that may have such rows have"):
        opened.delete("size = 10.5", spark=HERE)
    append_deletes(table, equality_deletes(table, [field("id", pa.int64(), 1)], [{"id": 5}], [1]))
    monkeypatch.undo()
    monkeypatch.setattr(iceberg_scan, "EQUALITY_BYTES", 100)
    for act in (lambda: opened.refresh().delete("id = 1", spark=HERE), lambda: opened.delete(spark=HERE)):
        with pytest.raises(EngineUnsuitable, match="the table has equality deletes"):
            act()
    monkeypatch.undo()
    assert len(table.refresh().metadata.snapshots) == 3
    assert opened.delete("id >= 4", spark=HERE).metrics["numDeletedRows"] == 2
    assert opened.delete(spark=HERE).metrics["numDeletedRows"] == 3
