"""Every command and every public method of `Table` takes an Iceberg table, or says in one line why not."""

from __future__ import annotations

import inspect
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType

from support.command_line import run, run_json
from support.iceberg_files import embedded_catalog
from widen.cli import app
from widen.errors import NotForIceberg
from widen.table import IcebergTable, Table
from widen.table.iceberg_maintenance import NOT_FOR_ICEBERG

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False), NestedField(2, "name", StringType(), required=False)
)
NO_TABLE = {"explain", "flow", "init", "run"}
"""``explain`` explains a rule; ``flow`` and the steps of ``run`` have a catalog for each of their tables."""


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    made = embedded_catalog(tmp_path).create_table("ns.orders", SCHEMA)
    for at in range(2):
        made.append(pa.Table.from_pylist([{"id": at, "name": "a"}], schema=SCHEMA.as_arrow()))
    return str(tmp_path / "catalog.db")


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(public(Table)))
def test_methods(catalog: str, name: str) -> None:
    table = IcebergTable("ns.orders", catalog)
    if name in public(IcebergTable):
        assert name not in NOT_FOR_ICEBERG
        return
    with pytest.raises(NotForIceberg, match=name) as raised:
        getattr(table, name)
    reason = NOT_FOR_ICEBERG[name]
    assert reason in str(raised.value)
    assert len(reason) > 15
    assert "\n" not in reason
    assert not hasattr(table, name)


def test_reasons_are_for_methods_of_tables() -> None:
    assert set(NOT_FOR_ICEBERG) <= public(Table)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = IcebergTable.__new__(IcebergTable).nothing


@pytest.mark.parametrize("name", sorted(app._COMMANDS))
def test_commands(catalog: str, name: str) -> None:
    if name in NO_TABLE:
        return
    assert "--catalog" in run(name, "--help").stdout, name
    own = "catalog" in inspect.signature(app._COMMANDS[name]).parameters
    if name not in app._NOT_FOR_ICEBERG:
        assert own or name in app._FOR_ICEBERG
        return
    more = {"drop-feature": ("typeWidening",), "handover": ("--to", "deltalake"), "mirror": ("--identifier", "ns.m")}
    done = run(name, "ns.orders", *more[name], "--catalog", catalog)
    assert done.exit_code == 1
    assert f"widen {name} does not apply to Iceberg tables" in done.stderr
    assert app._NOT_FOR_ICEBERG[name] in done.stderr


def test_vacuum(catalog: str) -> None:
    words = ("vacuum", "ns.orders", "--catalog", catalog, "--retention-hours", "0")
    refused = run(*words)
    assert refused.exit_code == 1
    assert "must keep files for 120 hours" in refused.stderr
    assert "would expire 1 snapshot, would delete 1 file" in run(*words, "--force", "--dry-run").stdout
    table = IcebergTable("ns.orders", catalog)
    then = time.time() - 10
    for path in Path(table.location.removeprefix("file://")).rglob("*"):
        os.utime(path, (then, then))
    assert len(run_json(*words, "--force", "--keep-last", "2")["expired"]) == 0
    done = run_json(*words, "--force")
    assert len(done["expired"]) == 1
    assert all(path.startswith("metadata/") for path in done["paths"])
    assert table.refresh().table.scan().to_arrow().num_rows == 2


def test_branch(catalog: str) -> None:
    words = ("branch", "ns.orders", "--catalog", catalog)
    first = IcebergTable("ns.orders", catalog).history()[-1].version
    assert "audit" in run(*words, "--create", "audit").stdout
    made = run_json(*words, "--tag", "v1", "--version", str(first))
    assert [(each["name"], each["kind"]) for each in made] == [
        ("main", "branch"),
        ("audit", "branch"),
        ("v1", "tag"),
    ]
    assert made[2]["version"] == first
    assert run(*words, "--drop", "v1").exit_code == 0
    assert [each["name"] for each in run_json(*words, "--fast-forward", "audit", "--to", "main")] == ["main", "audit"]
    for wrong, message in (
        (("--create", "a", "--drop", "b"), "Run one command for each"),
        (("--fast-forward", "main"), "--fast-forward needs --to"),
        (("--version", "1"), "for --create and --tag"),
        (("--drop", "nothing"), "only audit, main"),
        (("--create", "audit"), "has a branch of that name"),
    ):
        done = run(*words, *wrong)
        assert done.exit_code == 1
        assert message in " ".join(done.stderr.split())


def test_layout(catalog: str) -> None:
    words = ("layout", "ns.orders", "--catalog", catalog)
    assert "nothing" in run(*words).stdout
    run_json(*words, "--add", "bucket(4, id)", "--add", "name")
    assert run_json(*words, "--drop", "name")["partitionBy"] == ["bucket(4, id)"]
    assert run_json(*words, "--sort-by", "id desc")["sortOrder"] == ["id DESC NULLS LAST"]
    assert run_json(*words, "--unsorted")["sortOrder"] == []
    assert run(*words, "--unsorted", "--add", "id").exit_code == 1


def test_optimize_counts_without_spark(catalog: str) -> None:
    words = ("optimize", "ns.orders", "--catalog", catalog, "--dry-run")
    assert "would rewrite 2 files, " in run(*words).stdout
    done = json.loads(run(*words, "--json").stdout)
    assert (done["files"], done["changed"]) == (2, False)
