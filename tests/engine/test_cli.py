"""The orders of the demo through the command line: three days, each command, exact numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from support.command_line import run, run_json
from widen.table import Table

ORDERS = Path(__file__).resolve().parents[2] / "examples" / "orders"

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def table(spark: object, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Monday and Tuesday ingested, a column widened by hand, then Wednesday."""
    place = str(tmp_path_factory.mktemp("shop") / "orders")
    monday = run_json("ingest", str(ORDERS / "day1"), "--into", place, "--verify")
    assert (monday["version"], monday["records"], monday["corrupt"]) == (0, 16, 0)
    assert monday["verification"]["exact"] == monday["verification"]["leaves"] == 221
    assert run("plan", str(ORDERS / "day2"), "--into", place).exit_code == 2
    assert run("plan", str(ORDERS / "day1"), "--into", place).exit_code == 0
    assert run("ingest", str(ORDERS / "day2"), "--into", place, "--evolve", "fail").exit_code == 1
    tuesday = run("ingest", str(ORDERS / "day2"), "--into", place, "--verify")
    assert "verified: 328 of 328 leaves exact" in tuesday.stdout, tuesday.stderr
    assert run_json("alter", place, "customer.id", "--type", "bigint")["changes"][0]["to"] == "bigint"
    wednesday = run_json("ingest", str(ORDERS / "day3"), "--into", place, "--verify")
    assert (wednesday["version"], wednesday["records"], wednesday["corrupt"]) == (3, 23, 1)
    return place


def test_show(table: str) -> None:
    types = {line["column"]: line["type"] for line in run_json("show", table)["columns"]}
    assert (types["order_id"], types["total"], types["customer.id"]) == ("bigint", "double", "bigint")
    assert types["tags_array_string"] == "array<string>"


def test_history(table: str) -> None:
    entries = run_json("history", table)
    assert [entry["operation"] for entry in entries] == ["WRITE", "CHANGE COLUMN", "WRITE", "WRITE"]
    changed = {change["column"]: change for change in entries[2]["changes"]}
    assert changed["total"]["reasons"][0]["kinds"] == ["double"]
    assert changed["items_array_record"]["grade"] == "structural"


def test_report(table: str, tmp_path: Path) -> None:
    masked = {column["column"]: column for column in run_json("report", table)["columns"]}
    assert (masked["order_id"]["max"], masked["total"]["min"]) == ("9" * 16, "9.9")
    report = run_json("report", table, "--samples", "raw", "--html", str(tmp_path / "report.html"))
    columns = {column["column"]: column for column in report["columns"]}
    assert report["rows"] == 60
    assert (columns["order_id"]["written"], columns["order_id"]["max"]) == (59, 9007199254741123)
    assert columns["total_string"]["evolvedFrom"] == "total"
    assert columns["_corrupt_record"]["written"] == 1
    assert columns["tags"]["last"]["version"] == 1
    assert [interval["corrupt"] for interval in report["intervals"]] == [0, 0, 0, 1]


def test_read_across_the_changes(table: str) -> None:
    done = run("read", table, "--json", "--where", "order_id > 9007199254740992")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(row["order_id"] for row in rows) == [
        9007199254740993,
        9007199254741009,
        9007199254741010,
        9007199254741123,
    ]
    assert {row["tags"] for row in rows} == {None}
    assert len(run("read", table, "--json").stdout.splitlines()) == 60
    assert len(run("read", table, "--json", "--version", "0").stdout.splitlines()) == 16


def test_read_shows_twenty_rows_and_says_that_there_are_more(table: str) -> None:
    done = run("read", table, "--select", "order_id")
    assert len(done.stdout.splitlines()) == 22
    assert "there are more" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--where", "no such thing"), "WIDEN_CONDITION_UNUSABLE"),
        (("--select", "nothing"), "WIDEN_INVALID_OPTION"),
        (("--select", "total", "--select", "order_id as total"), "WIDEN_INVALID_OPTION"),
        (("--timestamp", "never"), "WIDEN_INVALID_OPTION"),
    ],
)
def test_read_refuses_what_spark_does_not_understand(table: str, words: tuple[str, ...], code: str) -> None:
    done = run("read", table, *words)
    assert done.exit_code == 1
    assert code in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_that_is_none(table: str, tmp_path: Path) -> None:
    done = run("ingest", str(tmp_path / "nothing"), "--into", table)
    assert done.exit_code == 1
    assert "WIDEN_SOURCE_UNUSABLE" in done.stderr


def test_report_of_every_row_shows_what_is_asked_for(table: str) -> None:
    columns = {
        column["column"]: column for column in run_json("report", table, "--scan", "--samples", "raw")["columns"]
    }
    assert columns["order_id"]["distinct"] in range(56, 63)
    assert columns["tags_array_string.element"]["written"] > 0
    masked = {column["column"]: column for column in run_json("report", table, "--scan")["columns"]}
    assert {*"".join(masked["customer.name"]["samples"])} <= {*"Xx ."}
    assert "samples" in masked["customer.name"]


def test_one_column_for_each_source_field(table: str) -> None:
    done = run("read", table, "--unified", "--json", "--where", "total_string is not null and total is null")
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["total"].endswith(" EUR")
    assert "total_string" not in row
    view = run("view", table, "--name", "v", "--from", "somewhere").stdout
    assert view.startswith("CREATE OR REPLACE VIEW v AS\nSELECT\n")
    assert "coalesce(total_string, CAST(total AS string)) AS total" in view
    assert view.endswith("FROM somewhere\n")
    assert "VIEW `orders` AS" in run("view", table).stdout


def test_the_sql_of_a_view_is_resolved_by_a_spark_without_delta_lake(table: str, spark: SparkSession) -> None:
    widen.register(spark)
    for statement in run("view", table, "--name", "by_field", "--data-source").stdout.split(";\n"):
        spark.sql(statement)
    totals = spark.sql("SELECT total FROM by_field WHERE total LIKE '% EUR'")
    assert totals.count() == Table(table).read("total_string LIKE '% EUR'", spark=spark).count() > 0


def test_fold_tells_what_would_be_lost(table: str) -> None:
    found = run_json("fold", table, "total_string", "--dry-run")
    assert (found["into"], found["lost"], found["held"] + found["lost"]) == ("total", 1, found["values"])
    assert all(set(sample) <= set("9. X") for sample in found["samples"])
    done = run("fold", table, "total_string")
    assert done.exit_code == 1
    assert "would be lost" in done.stdout
    assert "WIDEN_FOLD_LOSES" in done.stderr


def test_replay_of_no_quarantine(table: str) -> None:
    done = run("replay", table, "--into", table)
    assert done.exit_code == 1
    assert "Must not be the target table." in done.stderr


def test_a_sample_is_verified(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    proof = run_json("ingest", str(ORDERS / "day1"), "--into", place, "--verify-share", "0.5")["verification"]
    assert (proof["share"], proof["exact"]) == (0.5, proof["leaves"])
    assert 0 < proof["leaves"] < 221
