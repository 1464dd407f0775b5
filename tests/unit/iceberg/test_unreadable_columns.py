"""Iceberg tables with columns that Spark has no type for: the other columns are read, shown and loaded.

Source: Iceberg's table specification, "Primitive Types"
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
)

import widen
from support.command_line import run
from support.iceberg_files import embedded_catalog
from widen.errors import UnsupportedColumnType, WidenError
from widen.iceberg.schema_conversion import find_unreadable, to_readable
from widen.ingestion import ingest

NAME = "shop.times"
TIME = TimeType()


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = embedded_catalog(tmp_path)
    catalog.create_namespace("shop")
    return catalog


def create(catalog: SqlCatalog, **options: Any) -> widen.IcebergTable:
    inner = StructType(NestedField(5, "x", LongType()), NestedField(6, "h", TIME))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "at", TIME),
        NestedField(3, "name", StringType()),
        NestedField(4, "s", inner),
    )
    table = catalog.create_table(NAME, schema, **options)
    row = {"id": 1, "at": time(1, 2, 3, 4), "name": "a", "s": {"x": 7, "h": time(5)}}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    return widen.IcebergTable(NAME, Path(table.location().removeprefix("file://")).parents[2] / "catalog.db")


def load(folder: Path, *records: dict[str, Any], **words: Any) -> widen.IngestResult:
    path = folder / "new.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return ingest(str(path), NAME, catalog=folder / "catalog.db", engine="local", **words)


def stored(catalog: SqlCatalog) -> list[dict[str, Any]]:
    return sorted(catalog.load_table(NAME).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_what_is_left_out_is_named_by_its_path_and_the_rest_stays() -> None:
    def struct(first: int, *kinds: Any) -> StructType:
        return StructType(*(NestedField(first + at, f"f{at}", kind) for at, kind in enumerate(kinds)))

    schema = Schema(
        NestedField(1, "a", ListType(2, struct(3, TIME, LongType()))),
        NestedField(10, "b", MapType(11, struct(12, TIME, LongType()), 14, LongType())),
        NestedField(20, "c", MapType(21, StringType(), 22, ListType(23, TIME))),
        NestedField(30, "d", struct(31, TIME), required=True),
        NestedField(40, "e", LongType()),
    )
    left_out = find_unreadable(schema)
    assert str(left_out) == "a.element.f0 (time), b.key.f0 (time), c.value.element (time), d.f0 (time)"
    assert left_out.required == [("d",)]
    kept = {column.name: column.type.sql for column in to_readable(schema)}
    assert kept == {"a": "array<struct<f1: bigint>>", "e": "bigint"}


READS = (["read"], ["read", "--json"], ["show"], ["report"], ["history"])


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_the_other_columns_are_shown_without_spark(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    create(catalog)
    result = run(*words[:1], NAME, *words[1:], "--catalog", tmp_path / "catalog.db")
    assert result.exit_code == 0, result.output
    if words != ["history"]:
        assert "without at (time), s.h (time): Spark has no type for the values" in result.stderr
    if words == ["read", "--json"]:
        assert json.loads(result.stdout) == {"id": 1, "name": "a", "s": {"x": 7}}


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_columns_of_nanoseconds_are_left_out(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = catalog.create_table(NAME, schema)
    table.append(pa.table({"id": [1], "at": [datetime(2024, 1, 1)]}, schema=table.schema().as_arrow()))
    path = Path(table.metadata_location.removeprefix("file://"))
    # PyIceberg does not write version 3, and reads no other type than that of the schema.
    metadata = json.loads(path.read_text().replace('"timestamp"', f'"{kind}"'))
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 1}))
    result = run("read", NAME, "--json", "--catalog", tmp_path / "catalog.db")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"id": 1}), result.output
    assert f"without at ({kind})" in result.stderr


def test_a_load_without_the_column_writes_null_there(tmp_path: Path, catalog: SqlCatalog) -> None:
    create(catalog)
    result = load(tmp_path, {"id": 2, "name": "b", "s": {"x": 8}, "new": 1}, verify=True)
    assert result.verification is not None
    assert result.verification.is_clean
    before = {"id": 1, "at": time(1, 2, 3, 4), "name": "a", "s": {"x": 7, "h": time(5)}, "new": None}
    assert stored(catalog) == [before, {"id": 2, "at": None, "name": "b", "s": {"x": 8, "h": None}, "new": 1}]


@pytest.mark.parametrize(
    ("record", "column"),
    [({"at": "01:02"}, "at"), ({"AT": 1}, "at"), ({"s": {"h": "05:00"}}, r"s\.h"), ({"s": {"H": 5}}, r"s\.h")],
    ids=str,
)
def test_a_load_that_has_values_for_the_column_is_refused(
    tmp_path: Path, catalog: SqlCatalog, record: dict[str, Any], column: str
) -> None:
    create(catalog)
    before = stored(catalog)
    with pytest.raises(UnsupportedColumnType, match=rf"column {column} cannot have the type time: .*cannot write"):
        load(tmp_path, {"id": 2, **record})
    assert stored(catalog) == before
    if "at" in record:
        load(tmp_path, {"id": 2, **record}, exclude=["at"])
        assert [row["id"] for row in stored(catalog)] == [1, 2]


def required(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_schema(allow_incompatible_changes=True) as update:
        update.update_column("at", required=True)


def partitioned(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_spec() as update:
        update.add_field("at", IdentityTransform())


def sorted_by(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_sort_order() as update:
        update.asc("at", IdentityTransform())


@pytest.mark.parametrize("change", [required, partitioned, sorted_by])
def test_a_table_that_needs_values_of_the_column_takes_no_load(
    tmp_path: Path, catalog: SqlCatalog, change: Callable[[SqlCatalog], None]
) -> None:
    create(catalog)
    change(catalog)
    with pytest.raises(UnsupportedColumnType, match="column at cannot have the type time"):
        load(tmp_path, {"id": 2})


WRITERS: dict[str, Callable[[widen.IcebergTable, Path], object]] = {
    "ingest by key": lambda table, place: load(place, {"id": 1, "name": "b"}, key=["id"]),
    "update": lambda table, place: table.update({"name": "'b'"}),
    "delete": lambda table, place: table.delete("id = 1 OR name = 'b'"),
    "optimize": lambda table, place: table.optimize(),
    "rename": lambda table, place: table.rename_column("name", "at"),
    "add": lambda table, place: table.add_columns({"At": "int"}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_writes_rows_again_is_refused_and_loses_nothing(
    tmp_path: Path, catalog: SqlCatalog, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    table = create(catalog)
    load(tmp_path, {"id": 2})
    before = stored(catalog)
    with pytest.raises(WidenError, match=r"column at cannot have the type time"):
        WRITERS[writer](table, tmp_path)
    assert stored(catalog) == before


def test_the_other_columns_can_change(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = create(catalog).rename_column("s", "t").add_columns({"n": "int"}).drop_columns("t")
    assert [column.name for column in table.columns] == ["id", "name", "n"]
    assert [column.name for column in catalog.load_table(NAME).schema().fields] == ["id", "at", "name", "n"]
