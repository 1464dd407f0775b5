"""Properties of Iceberg tables that users set: reserved names and values that no writer can use are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from support.command_line import run
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import InvalidOption, TableNotFound

NAME = "shop.orders"


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = embedded_catalog(tmp_path)
    path = tmp_path / "1.jsonl"
    path.write_text(json.dumps({"id": 1}) + "\n")
    ingest(str(path), NAME, catalog=tmp_path / "catalog.db", engine="local")
    return catalog


def by_method(place: Path, key: str, value: str) -> None:
    widen.IcebergTable(NAME, place / "catalog.db").set_properties({key: value})


def by_statement(place: Path, key: str, value: str) -> None:
    widen.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('{key}' = '{value}')", catalog=place / "catalog.db")


def by_new_table(place: Path, key: str, value: str) -> None:
    text = f"CREATE TABLE shop.new (id INT) USING iceberg TBLPROPERTIES ('{key}' = '{value}')"
    widen.sql(text, catalog=place / "catalog.db")


REFUSED = {
    "format-version": ("4", "0", "two", "", "-1"),
    "current-snapshot-id": ("17",),
    "cherry-pick-snapshot-id": ("17",),
    "uuid": ("x",),
    "location": ("/tmp/x",),
    "default-sort-order": ("id",),
    "write.format.default": ("avro", "orc"),
    "write.target-file-size-bytes": ("large",),
    "commit.manifest.min-count-to-merge": ("some",),
    "gc.enabled": ("maybe",),
    "widen.sources": ("{}",),
    "widen.stream.loader": ("3",),
}


@pytest.mark.parametrize("set_property", [by_method, by_statement, by_new_table])
@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in REFUSED.items() for value in values])
def test_a_property_that_cannot_be_set_is_refused_by_name(
    tmp_path: Path, catalog: SqlCatalog, set_property: Callable[[Path, str, str], None], key: str, value: str
) -> None:
    before = catalog.load_table(NAME).metadata_location
    with pytest.raises(InvalidOption) as refused:
        set_property(tmp_path, key, value)
    assert key in refused.value.message
    assert catalog.load_table(NAME).metadata_location == before
    with pytest.raises(TableNotFound):
        _ = widen.IcebergTable("shop.new", tmp_path / "catalog.db").version


@pytest.mark.parametrize("key", ["format-version", "current-snapshot-id"])
def test_the_command_refuses_it_too(tmp_path: Path, catalog: SqlCatalog, key: str) -> None:
    words = ("properties", NAME, "--catalog", str(tmp_path / "catalog.db"), "--set", f"{key}=4")
    done = run(*words)
    assert (done.exit_code, key in done.output) == (1, True)


@pytest.mark.parametrize("set_property", [by_method, by_statement])
def test_the_format_version_is_raised_and_not_lowered(
    tmp_path: Path, catalog: SqlCatalog, set_property: Callable[[Path, str, str], None]
) -> None:
    path = tmp_path / "2.jsonl"
    path.write_text(json.dumps({"id": 2}) + "\n")
    text = "CREATE TABLE shop.old (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '1', 'a' = 'b')"
    widen.sql(text, catalog=tmp_path / "catalog.db")
    old = catalog.load_table("shop.old")
    assert (old.format_version, old.properties["a"]) == (1, "b")
    ingest(str(path), "shop.old", catalog=tmp_path / "catalog.db", engine="local")
    catalog.drop_table(NAME)
    catalog.rename_table("shop.old", NAME)
    set_property(tmp_path, "format-version", "2")
    ingest(str(path), NAME, catalog=tmp_path / "catalog.db", engine="local")
    table = catalog.load_table(NAME)
    assert (table.format_version, table.scan().to_arrow()["id"].to_pylist()) == (2, [2, 2])
    set_property(tmp_path, "format-version", "2")
    assert catalog.load_table(NAME).metadata_location == table.metadata_location
    with pytest.raises(InvalidOption, match="has format version 2, which cannot be lowered"):
        set_property(tmp_path, "format-version", "1")


def test_other_properties_are_set_together_with_it(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = widen.IcebergTable(NAME, tmp_path / "catalog.db")
    table.set_properties({"format-version": "2", "owner": "shop", "write.format.default": "PARQUET"})
    assert table.properties.items() >= {"owner": "shop", "write.format.default": "PARQUET"}.items()
    assert "format-version" not in table.properties
