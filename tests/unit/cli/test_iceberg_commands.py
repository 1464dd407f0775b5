"""Commands for Iceberg tables: with a catalog the same words mean an Iceberg table, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from support.command_line import run, run_json
from support.iceberg_files import embedded_catalog
from widen.table import IcebergTable

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False, doc="The number."),
    NestedField(2, "name", StringType(), required=False),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = embedded_catalog(tmp_path).create_table("ns.orders", SCHEMA, properties={"owner": "shop"})
    made.append(pa.Table.from_pylist([{"id": 1, "name": "a"}, {"id": 2, "name": None}], schema=SCHEMA.as_arrow()))
    return made


@pytest.fixture
def catalog(table: Table, tmp_path: Path) -> str:
    return str(tmp_path / "catalog.db")


def test_show(table: Table, catalog: str) -> None:
    text = run("show", "ns.orders", "--catalog", catalog).stdout
    assert "ns.orders" in text
    assert f"snapshot {table.metadata.current_snapshot_id} · 1 file" in text
    assert "The number." in text
    shown = json.loads(run("show", "ns.orders", "--catalog", catalog, "--json").stdout)
    assert shown["columns"] == [
        {"name": "id", "type": "int", "nullable": True, "comment": "The number."},
        {"name": "name", "type": "string", "nullable": True},
    ]
    assert (shown["files"], shown["rows"], shown["properties"]["owner"]) == (1, 2, "shop")


def test_a_table_without_a_snapshot(tmp_path: Path) -> None:
    embedded_catalog(tmp_path).create_table("ns.empty", SCHEMA)
    shown = run("show", "ns.empty", "--catalog", str(tmp_path / "catalog.db")).stdout
    assert "no snapshot · 0 files" in shown


def test_errors_have_codes_of_iceberg(table: Table, catalog: str) -> None:
    for words, code in (
        (("diff", "ns.orders", "--from", "1"), "ICEBERG_VERSION_NOT_FOUND"),
        (("alter", "ns.orders", "nowhere", "--type", "int"), "ICEBERG_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("alter", "ns.orders", "id", "--rename", "name"), "FIELD_ALREADY_EXISTS"),
    ):
        refused = run(*words, "--catalog", catalog)
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[-1] == code, refused.stderr


def test_history(table: Table, catalog: str) -> None:
    assert "added-records 2" in run("history", "ns.orders", "--catalog", catalog).stdout
    (entry,) = json.loads(run("history", "ns.orders", "--catalog", catalog, "--json").stdout)
    assert (entry["version"], entry["operation"]) == (table.metadata.current_snapshot_id, "append")
    assert entry["metrics"]["total-records"] == "2"
    assert [(each["change"], each["column"], each["to"]) for each in entry["changes"]] == [
        ("added", "id", "int"),
        ("added", "name", "string"),
    ]


def test_alter(table: Table, catalog: str) -> None:
    dry = run("alter", "ns.orders", "id", "--type", "bigint", "--dry-run", "--catalog", catalog)
    assert dry.stdout == "would widen id from int to bigint\n"
    assert str(table.refresh().schema().find_type("id")) == "int"
    assert run("alter", "ns.orders", "id", "--type", "bigint", "--catalog", catalog).stdout == (
        "widen id from int to bigint\n"
    )
    assert str(table.refresh().schema().find_type("id")) == "long"
    assert run("alter", "ns.orders", "name", "--rename", "label", "--catalog", catalog).exit_code == 0
    assert run("alter", "ns.orders", "note", "--add", "--type", "string", "--catalog", catalog).exit_code == 0
    assert table.refresh().schema().column_names == ["id", "label", "note"]
    refused = run("alter", "ns.orders", "id", "--type", "decimal(30,0)", "--dry-run", "--catalog", catalog)
    assert refused.exit_code == 1
    assert "Iceberg does not allow this change in format version 2" in refused.stderr


def test_view(table: Table, catalog: str) -> None:
    text = run("view", "ns.orders", "--catalog", catalog, "--temporary").stdout
    assert text.startswith("CREATE OR REPLACE TEMPORARY VIEW `orders` AS")
    assert "FROM ns.orders" in text


def test_contract(table: Table, catalog: str) -> None:
    first = str(table.metadata.current_snapshot_id)
    with table.update_schema() as update:
        update.add_column("price", DoubleType())
    contract = json.loads(run("contract", "ns.orders", "--catalog", catalog).stdout)
    assert (contract["title"], [*contract["properties"]]) == ("ns.orders", ["id", "name", "price"])
    assert contract["properties"]["id"] == {"type": ["integer", "null"]}
    before = json.loads(run("contract", "ns.orders", "--catalog", catalog, "--version", first).stdout)
    assert [*before["properties"]] == ["id", "name"]
    assert before == IcebergTable("ns.orders", catalog).contract(int(first))


def test_diff(table: Table, catalog: str) -> None:
    first = table.metadata.current_snapshot_id
    assert first is not None
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("name", "label")
    words = ("diff", "ns.orders", "--catalog", catalog, "--from", str(first))
    assert [(each["change"], each["column"]) for each in run_json(*words)["changes"]] == [
        ("widened", "id"),
        ("renamed", "label"),
    ]
    assert "int → bigint" in run(*words).stdout
    assert f"The schema of snapshot {first} is that of snapshot {first}." in run(*words, "--to", str(first)).stderr
    back = IcebergTable("ns.orders", catalog).diff(first, first)
    assert (back.old, back.new, back.changes) == (first, first, ())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "ns.orders", "--storage-option", "a=b"), "--storage-option does not apply to Iceberg tables"),
        (("diff", "ns.orders", "--from", "1"), "does not have the snapshot 1"),
        (("contract", "ns.orders", "--version", "1"), "does not have the snapshot 1"),
        (("show", "ns.missing"), "There is no Iceberg table ns.missing"),
        (("show", "orders"), "Must be a namespace and a name, e.g. shop.orders"),
        (
            ("alter", "ns.orders", "id", "--default", "1"),
            "Column id cannot have a default: the table has format version",
        ),
    ],
)
def test_what_does_not_work_is_told(catalog: str, words: tuple[str, ...], message: str) -> None:
    done = run(*words, "--catalog", catalog)
    assert done.exit_code == 1
    assert message in " ".join(done.stderr.split())


def test_defaults_are_added_changed_and_dropped(catalog: str) -> None:
    words = ("alter", "ns.orders", "many", "--catalog", catalog)
    assert run("properties", "ns.orders", "--set", "format-version=3", "--catalog", catalog).exit_code == 0
    new = ("--add", "--type", "int", "--default", "7")
    assert "would add many int with the default 7" in run(*words, *new, "--dry-run").stdout
    assert run(*words, *new).exit_code == 0
    rows = [json.loads(line) for line in run("read", "ns.orders", "--catalog", catalog, "--json").stdout.splitlines()]
    assert rows
    assert {row["many"] for row in rows} == {7}
    assert "set the default of many to 8" in run(*words, "--default", "8").stdout
    assert "drop the default of many" in run(*words, "--drop-default").stdout
    assert "Give only one of them" in " ".join(run(*words, "--default", "1", "--drop-default").stderr.split())


def test_what_only_iceberg_tables_have_needs_a_catalog(tmp_path: Path) -> None:
    done = run("read", str(tmp_path), "--tag", "day-1")
    assert (done.exit_code, "--tag is for Iceberg tables; name their --catalog." in done.stderr) == (1, True)


def test_a_catalog_that_is_not_configured_is_named(table: Table) -> None:
    done = run("show", "ns.orders", "--catalog", "nowhere")
    assert "The catalog nowhere cannot be opened" in " ".join(done.stderr.split())
