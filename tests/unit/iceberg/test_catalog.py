"""Opening Iceberg catalogs: embedded, configured, and those that the caller opened."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg import types as ice
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, NotInstalledError, ServerError
from pyiceberg.schema import Schema

from widen.errors import (
    CatalogError,
    CatalogNotFound,
    CatalogRefused,
    IcebergTableNotFound,
    IcebergUnavailable,
    InvalidOption,
)
from widen.iceberg import catalog as catalog_module
from widen.iceberg.catalog import open_store, to_catalog, to_table_name, translate_catalog_errors

SCHEMA = Schema(ice.NestedField(1, "id", ice.LongType()))


def test_an_embedded_catalog_is_a_file_with_a_warehouse_beside_it(tmp_path: Path) -> None:
    name = to_table_name("shop.eu.orders", tmp_path / "new" / "catalog.db")
    assert name.find() is None
    name.create_namespace()
    name.create_namespace()
    table = name.catalog.open().create_table(name.identifier, SCHEMA)
    assert table.location().startswith(f"file://{tmp_path}/new/catalog_warehouse")
    assert (tmp_path / "new" / "catalog.db").exists()
    assert pickle.loads(pickle.dumps(name)).load().schema() == table.schema()


@pytest.mark.parametrize("folder", ["a b%20c", "a#b", "a?b", "ü+&"])
def test_a_folder_may_have_any_name(tmp_path: Path, folder: str) -> None:
    """Iceberg's clients take locations as they are."""
    name = to_table_name("shop.orders", tmp_path / folder / "catalog.db")
    name.create_namespace()
    table = name.catalog.open().create_table(name.identifier, SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == [folder]
    assert sorted(path.name for path in (tmp_path / folder).iterdir()) == ["catalog.db", "catalog_warehouse"]
    store = open_store(table.location(), table.io.properties)
    assert store.location == f"{tmp_path}/{folder}/catalog_warehouse/shop/orders"
    with store.create("x") as file:
        file.write(b"1")
    with table.io.new_input(f"{table.location()}/x").open() as file:
        assert file.read() == b"1"


def test_an_embedded_catalog_of_another_name_is_found(tmp_path: Path) -> None:
    theirs = SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    theirs.create_namespace("shop")
    theirs.create_table("shop.orders", SCHEMA)
    assert to_table_name("shop.orders", f"{tmp_path}/c.db").load().schema().find_field("id")


def test_a_file_with_several_catalogs_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        SqlCatalog(name, uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri()).create_namespace("shop")
    with pytest.raises(CatalogNotFound, match="more than one catalog: one, two"):
        to_catalog(f"{tmp_path}/c.db").open()


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_text("no database " * 200)
    with pytest.raises(CatalogNotFound, match="not a SQLite database"):
        to_catalog(tmp_path / "c.db").open()


def test_an_open_catalog_is_used_as_it_is_and_survives_pickling(tmp_path: Path) -> None:
    theirs = SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    reference = to_catalog(theirs)
    assert reference.open().engine is theirs.engine  # type: ignore[attr-defined]
    assert type(theirs) is SqlCatalog
    assert str(reference) == "prod"
    theirs.create_namespace("shop")
    assert pickle.loads(pickle.dumps(reference)).open().list_namespaces() == [("shop",)]


def test_a_catalog_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog import _ENV_CONFIG

    config = {"catalog": {"prod": {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path)}}}
    monkeypatch.setattr(_ENV_CONFIG, "config", config)
    assert to_catalog("prod").open().name == "prod"
    with pytest.raises(CatalogNotFound, match="The catalog staging cannot be opened"):
        to_catalog("staging").open()


def test_what_is_not_a_catalog_is_refused() -> None:
    with pytest.raises(InvalidOption, match="catalog cannot be 5"):
        to_catalog(5)


@pytest.mark.parametrize("name", ["orders", "shop.", ".orders", "shop..orders", "", "a\0.b", "a.b\n", "a.\ud800"])
def test_a_table_needs_a_namespace(name: str) -> None:
    with pytest.raises(InvalidOption, match="the table cannot be"):
        to_table_name(name, "prod")


def test_a_namespace_that_is_a_table_is_refused(tmp_path: Path) -> None:
    orders = to_table_name("shop.orders", tmp_path / "c.db")
    orders.create_namespace()
    orders.catalog.open().create_table(orders.identifier, SCHEMA)
    below = to_table_name("shop.orders.lines", orders.catalog)
    with pytest.raises(InvalidOption, match=r"shop\.orders\.lines") as error:
        below.create_namespace()
    assert "shop.orders is a table" in error.value.advice


def test_a_catalog_is_not_created_to_look_for_a_table(tmp_path: Path) -> None:
    name = to_table_name("shop.orders", tmp_path / "typo" / "catalog.db")
    with pytest.raises(IcebergTableNotFound, match=r"the catalog .*/typo/catalog\.db does not exist"):
        name.load()
    assert name.find() is None
    assert not [*tmp_path.iterdir()]


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(IcebergTableNotFound, match=r"There is no Iceberg table shop\.orders"):
        to_table_name("shop.orders", tmp_path / "c.db").load()


def test_without_pyiceberg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "find_spec", lambda _: None)
    with pytest.raises(IcebergUnavailable) as error:
        to_catalog("prod").open()
    assert "pip install 'widen[iceberg]'" in error.value.advice


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (ForbiddenError("no"), CatalogRefused),
        (PermissionError(13, "no"), CatalogRefused),
        (ServerError("down"), CatalogError),
        (ConnectionError("refused"), CatalogError),
        (requests.ConnectionError("refused"), CatalogError),
        (requests.HTTPError("no", response=requests.Response()), CatalogError),
        (NotInstalledError("boto3 is missing"), IcebergUnavailable),
        (ModuleNotFoundError("No module named 'boto3'"), IcebergUnavailable),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_errors_are_translated(theirs: Exception, ours: type[Exception]) -> None:
    with pytest.raises(ours) as error, translate_catalog_errors("shop.orders"):
        raise theirs
    assert error.value.__cause__ is theirs


def test_namespaces_of_several_levels(tmp_path: Path) -> None:
    from widen.iceberg.catalog import to_table_name
    from widen.iceberg.table_commit import NewTable, create_iceberg_table
    from widen.model.types import LONG, Field, StructType

    name = to_table_name("shop.eu.west.orders", tmp_path / "lake.db")
    made = create_iceberg_table(name, NewTable(StructType((Field("id", LONG),))))
    assert made.schema().column_names == ["id"]
    assert str(name.load().location()).endswith("shop.eu.west/orders")
    assert name.catalog.open().list_tables(("shop", "eu", "west")) == [("shop", "eu", "west", "orders")]


def test_a_catalog_with_namespaces_of_one_level_says_so() -> None:
    from widen.errors import InvalidOption
    from widen.iceberg.catalog import translate_catalog_errors

    with pytest.raises(InvalidOption, match="have one level"), translate_catalog_errors("a.b.c"):
        raise ValueError("Invalid path, hierarchical namespaces are not supported: ('a', 'b', 'c')")


@pytest.mark.parametrize(
    ("place", "column"),
    [(("fields", 1, "type"), "v"), (("fields", 0, "type", "fields", 0, "type"), "s.x")],
)
def test_a_type_that_pyiceberg_lacks_is_named_with_its_column(
    tmp_path: Path, place: tuple[str | int, ...], column: str
) -> None:
    from widen.errors import DroppedColumnType, UnsupportedColumnType
    from widen.iceberg.catalog import to_table_name
    from widen.iceberg.table_commit import NewTable, create_iceberg_table
    from widen.model.types import LONG, Field, StructType

    columns = StructType((Field("s", StructType((Field("x", LONG),))), Field("v", LONG)))
    name = to_table_name("shop.orders", tmp_path / "lake.db")
    path = Path(create_iceberg_table(name, NewTable(columns)).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    value = metadata["schemas"][0]
    for step in place[:-1]:
        value = value[step]
    value[place[-1]] = "variant"
    path.write_text(json.dumps(metadata))
    with pytest.raises(UnsupportedColumnType) as raised:
        name.load()
    assert (
        f"The column {column} cannot have the type variant: PyIceberg, which reads the metadata of shop.orders,"
        in str(raised.value)
    )
    current = {
        **metadata["schemas"][0],
        "schema-id": 1,
        "fields": [{**metadata["schemas"][0]["fields"][1], "type": "int"}],
    }
    path.write_text(json.dumps({**metadata, "schemas": [*metadata["schemas"], current], "current-schema-id": 1}))
    with pytest.raises(
        DroppedColumnType, match=rf"shop\.orders has dropped its column {column}, .* type variant"
    ) as raised:
        name.load()
    assert "expire_snapshots(table => 'shop.orders', clean_expired_metadata => true)" in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("timestamp_ns", "1969-12-31T23:59:59.999999999"),
        ("timestamptz_ns", "2024-01-01T23:59:59.999999999+00:00"),
        ({"type": "struct", "fields": [{"id": 9, "name": "y", "type": "int", "required": False}]}, {}),
    ],
)
def test_a_default_that_pyiceberg_cannot_read_is_named_with_its_column(tmp_path: Path, kind: Any, default: Any) -> None:
    from widen.errors import UnsupportedColumnType
    from widen.iceberg.catalog import to_table_name
    from widen.iceberg.table_commit import NewTable, create_iceberg_table
    from widen.model.types import LONG, Field, StructType

    name = to_table_name("shop.orders", tmp_path / "lake.db")
    made = create_iceberg_table(name, NewTable(StructType((Field("s", StructType((Field("x", LONG),))),))))
    path = Path(made.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    field = metadata["schemas"][0]["fields"][0]["type"]["fields"][0]
    field |= {"type": kind, "initial-default": default, "write-default": default}
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    shown = kind if isinstance(kind, str) else "struct<9: y: optional int>"
    with pytest.raises(UnsupportedColumnType, match=rf"s\.x cannot have the type {shown}: .* shop\.orders, .* default"):
        name.load()


@pytest.mark.parametrize("kind", ["geometry(srid:3857)", "geography(OGC:CRS84, spherical)", "variant"])
@pytest.mark.parametrize("place", ["field", "element", "dropped"])
def test_a_type_that_pyiceberg_cannot_parse_is_no_damage(tmp_path: Path, kind: str, place: str) -> None:
    from widen.errors import DroppedColumnType, UnsupportedColumnType
    from widen.iceberg.catalog import to_table_name
    from widen.iceberg.table_commit import NewTable, create_iceberg_table
    from widen.model.types import LONG, Field, StructType

    name = to_table_name("shop.orders", tmp_path / "lake.db")
    made = create_iceberg_table(name, NewTable(StructType((Field("a", LONG), Field("b", LONG)))))
    path = Path(made.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    old = json.loads(json.dumps(metadata["schemas"][0]))
    field = (old if place == "dropped" else metadata["schemas"][0])["fields"][1]
    array = {"type": "list", "element-id": 9, "element": kind, "element-required": False}
    field["type"] = array if place == "element" else kind
    if place == "dropped":
        metadata["schemas"].append({**old, "schema-id": 7})
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(DroppedColumnType if place == "dropped" else UnsupportedColumnType) as refused:
        name.load()
    assert "column b" in refused.value.message
    assert kind in refused.value.message


def test_a_transform_of_several_columns_is_no_damage(tmp_path: Path) -> None:
    from widen.errors import UnsupportedFeatureForRead
    from widen.iceberg.catalog import to_table_name
    from widen.iceberg.table_commit import NewTable, create_iceberg_table
    from widen.model.types import LONG, Field, StructType

    name = to_table_name("shop.orders", tmp_path / "lake.db")
    made = create_iceberg_table(name, NewTable(StructType((Field("a", LONG), Field("b", LONG)))))
    path = Path(made.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["partition-specs"][0]["fields"] = [
        {"source-ids": [1, 2], "field-id": 1000, "transform": "bucketV2[4]", "name": "p"}
    ]
    path.write_text(json.dumps(metadata))
    with pytest.raises(UnsupportedFeatureForRead, match=r"shop\.orders: .* a transform of several columns"):
        name.load()


def test_remote_signing_is_named() -> None:
    from widen.errors import CatalogRefused
    from widen.iceberg.catalog import open_store

    signed = {"s3.remote-signing-enabled": "true", "s3.endpoint": "http://localhost"}
    with pytest.raises(CatalogRefused, match="remote signing"):
        open_store("s3://bucket/table", signed)
    open_store("s3://bucket/table", {**signed, "s3.access-key-id": "a", "s3.secret-access-key": "b"})
