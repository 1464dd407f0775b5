"""The report of an Iceberg table: the numbers are those of its snapshots and manifests."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from support.command_line import run, run_json
from support.iceberg_files import embedded_catalog
from widen.report.iceberg_report import build_iceberg_report
from widen.report.table_report import ReportColumn

SCHEMA = Schema(
    NestedField(1, "n", IntegerType()),
    NestedField(2, "a", StringType()),
    NestedField(3, "l", ListType(4, LongType(), element_required=False)),
    NestedField(5, "s", StructType(NestedField(6, "f", FloatType()))),
    NestedField(7, "d", DateType()),
    NestedField(8, "t", TimestamptzType()),
    NestedField(9, "g", FloatType()),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = embedded_catalog(tmp_path).create_table("ns.orders", SCHEMA)
    first = {"n": 1, "a": "x", "l": [1, None, 2], "s": {"f": 0.5}, "d": date(2024, 2, 29), "g": -0.25}
    made.append(pa.Table.from_pylist([first, {"n": 5}], schema=made.schema().as_arrow()))
    with made.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column(("s", "f"), DoubleType())
        update.update_column("g", DoubleType())
        update.add_column("b", DecimalType(9, 2))
        update.rename_column("a", "name")
    made.append(pa.Table.from_pylist([{"n": 2**40, "b": Decimal("1.50")}], schema=made.schema().as_arrow()))
    return made


def columns(table: Table) -> dict[str, ReportColumn]:
    return {".".join(column.path): column for column in build_iceberg_report(table, "ns.orders").columns}


def test_every_column_has_its_counts_and_bounds(table: Table) -> None:
    found = columns(table)
    facts = {name: (each.written, each.nulls, each.values, each.low, each.high) for name, each in found.items()}
    assert facts == {
        "n": (3, 0, 3, 1, 2**40),
        "name": (1, 2, 1, "x", "x"),
        "l.element": (None, None, 2, None, None),
        "s.f": (1, 2, 1, None, None),  # PyIceberg writes no bounds of fields in structs
        "g": (1, 2, 1, -0.25, -0.25),
        "d": (1, 2, 1, date(2024, 2, 29), date(2024, 2, 29)),
        "t": (0, 3, 0, None, None),
        "b": (1, 2, 1, Decimal("1.50"), Decimal("1.50")),
    }
    assert {name: each.types_before for name, each in found.items() if each.types_before} == {
        "n": ("int",),
        "s.f": ("float",),
        "g": ("float",),
    }


def test_first_and_last_are_the_snapshots_of_the_values(table: Table) -> None:
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    spans = {
        name: (each.first and each.first.version, each.last and each.last.version)
        for name, each in columns(table).items()
    }
    assert (spans["n"], spans["name"], spans["b"], spans["t"]) == (
        (ids[0], ids[1]),
        (ids[0], ids[0]),
        (ids[1], ids[1]),
        (None, None),
    )
    table.maintenance.expire_snapshots().by_id(ids[0]).commit()
    spans = {name: each.first and each.first.version for name, each in columns(table.refresh()).items()}
    assert (spans["n"], spans["b"]) == (None, ids[1])


def test_intervals_have_the_changes_of_the_columns(table: Table) -> None:
    report = build_iceberg_report(table, "ns.orders")
    assert [(each.records, each.files, each.is_first) for each in report.intervals] == [(2, 1, True), (1, 1, False)]
    changes = [(change.what, ".".join(change.column)) for change in report.intervals[1].changes]
    assert sorted(changes) == [
        ("added", "b"),
        ("renamed", "name"),
        ("widened", "g"),
        ("widened", "n"),
        ("widened", "s.f"),
    ]
    assert (report.rows, report.files, report.is_whole) == (3, 2, True)
    assert report.size_bytes == sum(task.file.file_size_in_bytes for task in table.scan().plan_files())


def test_the_command_shows_it_in_every_form(table: Table, tmp_path: Path) -> None:
    catalog = ("--catalog", str(tmp_path / "catalog.db"))
    text = " ".join(run("report", "ns.orders", *catalog).stdout.split())  # the path decides where lines wrap
    assert "3 rows · 2 files" in text
    assert text.startswith("ns.orders version ")  # its name stands there once
    assert "The numbers are from the metadata of the table; min and max truncate long strings." in text
    assert run_json("report", "ns.orders", *catalog)["columns"][0]["max"] == "9999999999999"  # masked
    page = tmp_path / "page.html"
    assert run("report", "ns.orders", *catalog, "--html", str(page)).exit_code == 0
    assert "ns.orders" in page.read_text()
    refused = run("report", "ns.orders", *catalog, "--footers")
    assert "--footers does not apply to Iceberg tables" in " ".join(refused.stderr.split())


def test_a_table_without_a_snapshot(tmp_path: Path) -> None:
    report = build_iceberg_report(embedded_catalog(tmp_path).create_table("ns.empty", SCHEMA), "ns.empty")
    assert (report.rows, report.files, report.intervals) == (0, 0, ())
    assert {column.written for column in report.columns if column.path != ("l", "element")} == {0}
