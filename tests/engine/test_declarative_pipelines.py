"""Spark Declarative Pipelines with sinks of Widen: the project in examples/pipelines, as its page says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pyarrow.parquet as pq
import pyspark
import pytest

import widen
from support.pipelines_project import EXAMPLE, HAS_PIPELINES, IS_RUNNING, copy_example, start_pipelines
from widen import Table

LIMIT_SECONDS = 600

pytestmark = pytest.mark.skipif(not HAS_PIPELINES, reason="Spark Declarative Pipelines came with Spark 4.1")


def pipelines(project: Path, *arguments: str, meanwhile: Callable[[], None] | None = None) -> str:
    """Run ``spark-pipelines``, which must succeed, and return what it prints.

    Args:
        meanwhile: Is called when the first flow runs.
    """
    with start_pipelines(project, *arguments) as running:
        assert running.stdout is not None
        limit = Timer(LIMIT_SECONDS, running.kill)
        limit.start()
        lines = []
        for line in running.stdout:
            lines.append(line)
            if meanwhile is not None and line.endswith(IS_RUNNING):
                meanwhile()
                meanwhile = None
        limit.cancel()
    text = "".join(lines)
    assert (running.returncode, meanwhile) == (0, None), text[-5_000:]
    return text


def rows(place: Path, *columns: str) -> list[tuple[object, ...]]:
    """Return the rows of a table in their order."""
    found = Table(place).to_arrow().select(columns).to_pylist()
    return sorted((tuple(row[name] for name in columns) for row in found), key=str)


def test_the_page_shows_the_project() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "guide" / "spark-pipelines.md").read_text()
    shown = re.findall(r'```\w+ title="([\w/.-]+)"\n(.*?)```', page, re.DOTALL)
    assert {name for name, _ in shown} == {
        "spark-pipeline.yml",
        "load/orders.py",
        "landing/monday.json",
        "landing/tuesday.json",
        "gold/totals.py",
    }
    for name, text in shown:
        file = EXAMPLE / re.sub(r"(landing/\w+).json", r"\1/orders.json", name)
        assert file.read_text().endswith(text), name


COPIES = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
lake = spark.conf.get("lake")

dp.create_sink("copy", "widen", {"path": f"{lake}/copy", "ingest": "rows"})


@dp.append_flow(target="copy")
def load_copy() -> DataFrame:
    return spark.readStream.format("widen").load(f"{lake}/orders")


@dp.table
def customers() -> DataFrame:
    return spark.readStream.format("widen").load(f"{lake}/customers")
"""


def test_the_example_and_copies_of_tables_run_with_drift(tmp_path: Path) -> None:
    """Three runs, each with a Spark of its own; the columns of two sources change while the first one works."""
    project = copy_example(tmp_path)
    (project / "load" / "copies.py").write_text(COPIES)

    def land(day: str) -> None:
        shutil.copy(project / "landing" / day / "orders.json", tmp_path / "landing" / f"{day}.json")

    def load(table: str, *records: str) -> None:
        (tmp_path / "records.json").write_text("\n".join(records))
        widen.ingest(tmp_path / "records.json", tmp_path / table)

    def change_columns() -> None:
        load("orders", '{"id": 3, "total": 5000000000, "gift": true}')
        load("customers", '{"id": 3, "note": "new"}')

    load("orders", '{"id": 1, "total": 1}', '{"id": 2, "total": 2}')
    load("customers", '{"id": 1}', '{"id": 2}')
    land("monday")
    # A catalog that outlives the run: without one, Spark makes the view anew, and finds the files of the last run.
    conf = ["--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse"]
    # One flow at a time: when the second one starts, the columns are not those that Spark has planned it with.
    one = ["--conf", "spark.sql.pipelines.execution.maxConcurrentFlows=1"]
    said = "Start the stream again with the same checkpoint. It continues at version 1, in the new columns"
    first = pipelines(project, *conf, *one, "run", meanwhile=change_columns)
    # Spark 4.1 plans a flow when it starts, and 4.2 all of them before the first.
    if not pyspark.__version__.startswith("4.1."):
        assert "DELTA_SCHEMA_CHANGED_WITH_VERSION" in first
        assert said in first
    assert rows(tmp_path / "bronze", "id", "status", "total") == [(1, "placed", 12), (2, "placed", 30)]

    land("tuesday")
    assert said not in pipelines(project, *conf, *one, "run")
    ensure_example_loaded(tmp_path)
    orders = [(1, 1, None), (2, 2, None), (3, 5_000_000_000, True)]
    assert rows(tmp_path / "copy", "id", "total", "gift") == orders
    # Each file alone: a folder is read with the columns of whichever file comes first.
    files = (tmp_path / "warehouse" / "customers").glob("*.parquet")
    customers = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert sorted((row["id"], row.get("note")) for row in customers) == [(1, None), (2, None), (3, "new")]

    pipelines(project, *conf, "run", "--spec", "gold.yml")
    gold = pq.read_table(tmp_path / "warehouse" / "totals").to_pylist()
    assert sorted((row["status"], row["orders"], row["total"]) for row in gold) == [
        ("placed", 2, 30.0),
        ("shipped", 1, 12.5),
    ]


def ensure_example_loaded(place: Path) -> None:
    """Check the tables of the example after both of its days."""
    assert rows(place / "bronze", "id", "status", "total", "total_string", "gift") == [
        (1, "placed", 12.0, None, None),
        (1, "shipped", 12.5, "12.5", None),
        (2, "placed", 30.0, None, None),
        (3, "placed", None, "7.25 EUR", True),
    ]
    assert rows(place / "silver", "id", "status", "total", "_is_current") == [
        (1, "placed", 12.0, False),
        (1, "shipped", 12.5, True),
        (2, "placed", 30.0, True),
        (3, "placed", None, True),
    ]
    assert Table(place / "bronze").version == 1  # nothing was loaded twice
