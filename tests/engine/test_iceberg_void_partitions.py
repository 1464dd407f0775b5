"""Changes of rows in tables of format version 1 with dropped partition fields, which stay as void ones.

Source: Iceberg's table specification, "Partition Evolution"
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType
from pyspark.sql import SparkSession

import widen
from support.iceberg_files import append_rows, embedded_catalog

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "size", IntegerType(), required=False),
)
ROWS = [{"id": 1, "kind": "a", "size": 10}, {"id": 2, "kind": "b", "size": 20}, {"id": 3, "kind": "a", "size": 30}]
Change = Callable[[widen.IcebergTable, SparkSession, Path], Any]


def merge(table: widen.IcebergTable, spark: SparkSession, _: Path) -> None:
    source = spark.sql("VALUES (1, 'z', 11), (4, 'y', 40) AS v(id, kind, size)")
    clauses = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
    clauses.execute()


def merge_in_sql(_: widen.IcebergTable, spark: SparkSession, place: Path) -> None:
    text = """MERGE INTO ns.t USING (VALUES (1, 'z', 11), (4, 'y', 40) AS v(id, kind, size)) s ON ns.t.id = s.id
        WHEN MATCHED THEN UPDATE SET kind = s.kind, size = s.size WHEN NOT MATCHED THEN INSERT *"""
    widen.sql(text, catalog=place / "catalog.db", spark=spark)


def update_in_sql(_: widen.IcebergTable, spark: SparkSession, place: Path) -> None:
    text = "UPDATE ns.t SET kind = 'z', size = size + 1 WHERE id = 1"
    widen.sql(text, catalog=place / "catalog.db", spark=spark)


CHANGES: dict[str, tuple[Change, list[tuple[Any, ...]]]] = {
    "update": (
        lambda table, *_: table.update({"kind": "'z'", "size": "size + 1"}, where="id = 1"),
        [(1, "z", 11), (2, "b", 20), (3, "a", 30)],
    ),
    "update on Spark": (
        lambda table, spark, _: table.update({"kind": "'z'"}, where="hash(id) IS NOT NULL", spark=spark),
        [(1, "z", 10), (2, "z", 20), (3, "z", 30)],
    ),
    "update of all": (
        lambda table, *_: table.update({"kind": "'z'"}),
        [(1, "z", 10), (2, "z", 20), (3, "z", 30)],
    ),
    "update in SQL": (update_in_sql, [(1, "z", 11), (2, "b", 20), (3, "a", 30)]),
    "merge": (merge, [(1, "z", 11), (2, "b", 20), (3, "a", 30), (4, "y", 40)]),
    "merge in SQL": (merge_in_sql, [(1, "z", 11), (2, "b", 20), (3, "a", 30), (4, "y", 40)]),
    "delete": (lambda table, *_: table.delete("kind = 'a' AND id > 1"), [(1, "a", 10), (2, "b", 20)]),
    "overwrite": (
        lambda table, spark, _: table.overwrite(spark.sql("SELECT 9 AS id, 'q' AS kind, 1 AS size")),
        [(9, "q", 1)],
    ),
    "partitioning": (
        lambda table, *_: table.change_partitioning(add=["truncate(1, kind)"]).update({"size": "size + 1"}),
        [(1, "a", 11), (2, "b", 21), (3, "a", 31)],
    ),
}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.mark.parametrize(("name", "dropped"), [*zip(CHANGES, cycle([("kind",), ("kind", "number")]), strict=False)])
def test_rows_change_beside_void_partition_fields(
    spark: SparkSession, tmp_path: Path, catalog: SqlCatalog, name: str, dropped: tuple[str, ...]
) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "kind"), PartitionField(1, 1001, IdentityTransform(), "number")
    )
    table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties={"format-version": "1"})
    append_rows(catalog, ROWS[:2], ROWS[2:])
    for each in dropped:
        with table.refresh().update_spec() as update:
            update.remove_field(each)
    change, expected = CHANGES[name]
    change(widen.IcebergTable("ns.t", tmp_path / "catalog.db"), spark, tmp_path)
    found = table.refresh().scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == expected
