"""Which columns a table once had, as far as its history or its metadata tell."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from support.log_table import write_commit
from widen.evolution.policy import Policy
from widen.table import create_table
from widen.targets import find_table


def test_the_history_of_a_delta_table_tells_the_last_drop(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    mapped = {"delta.columnMapping.mode": "name"}
    table = create_table(place, "a int, b int, `x.y` int, s struct<c: int, d: int>", properties=mapped)
    assert find_table(place).open(Policy()).dropped_columns() == {}
    table.drop_columns("b", "`x.y`", "s.c").rename_column("a", "z")
    table.add_columns({"b": "int"}).drop_columns("b")
    info = {"operation": "DROP COLUMNS", "operationParameters": {"columns": "no list"}}
    write_commit(tmp_path / "t", table.version + 1, {"commitInfo": info})
    assert find_table(place).open(Policy()).dropped_columns() == {
        ("b",): f"version {table.version}",
        ("x.y",): "version 1",
        ("s", "c"): "version 1",
    }
    assert find_table(str(tmp_path / "new")).open(Policy()).dropped_columns() == {}


def test_the_schemas_of_an_iceberg_table_tell_it(tmp_path: Path) -> None:
    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "w").as_uri())
    catalog.create_namespace("shop")
    inner = StructType(NestedField(5, "c", LongType()), NestedField(6, "d", LongType()))
    fields = [NestedField(number, name, LongType()) for number, name in enumerate("abc", 1)]
    table = catalog.create_table("shop.t", Schema(*fields, NestedField(4, "s", inner)))
    for drop in ("b", "s.c"):
        with table.update_schema() as update:
            update.delete_column(drop)
    with table.update_schema() as update:
        update.rename_column("a", "z")
    target = find_table("shop.t", to="iceberg", catalog=tmp_path / "catalog.db").open(Policy())
    assert target.dropped_columns() == {("b",): "schema 1", ("s", "c"): "schema 2"}
