"""Spark Declarative Pipelines with sinks of Widen: the project in examples/pipelines, as its page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from widen import Table

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
HAS_PIPELINES = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
LIMIT_SECONDS = 600

pytestmark = pytest.mark.skipif(not HAS_PIPELINES, reason="Spark Declarative Pipelines came with Spark 4.1")


def pipelines(project: Path, *arguments: str) -> str:
    """Run ``spark-pipelines``, which must succeed, and return what it prints."""
    program = Path(sys.executable).with_name("spark-pipelines")
    # Else its server takes a port that another one may have.
    settings = {"SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [program, *arguments],
        cwd=project,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return done.stdout + done.stderr


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


def test_the_example_runs_with_drift_between_its_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    for spec in project.glob("*.yml"):
        spec.write_text(spec.read_text().replace("/tmp/widen-pipelines", str(tmp_path)))
    (tmp_path / "landing").mkdir()

    shutil.copy(project / "landing" / "monday" / "orders.json", tmp_path / "landing" / "monday.json")
    assert "COMPLETED" in pipelines(project, "dry-run") + pipelines(project, "run")
    assert rows(tmp_path / "bronze", "id", "status", "total") == [(1, "placed", 12), (2, "placed", 30)]

    shutil.copy(project / "landing" / "tuesday" / "orders.json", tmp_path / "landing" / "tuesday.json")
    pipelines(project, "run")
    assert rows(tmp_path / "bronze", "id", "status", "total", "total_string", "gift") == [
        (1, "placed", 12.0, None, None),
        (1, "shipped", 12.5, "12.5", None),
        (2, "placed", 30.0, None, None),
        (3, "placed", None, "7.25 EUR", True),
    ]
    silver = rows(tmp_path / "silver", "id", "status", "total", "_is_current")
    assert silver == [
        (1, "placed", 12.0, False),
        (1, "shipped", 12.5, True),
        (2, "placed", 30.0, True),
        (3, "placed", None, True),
    ]
    assert Table(tmp_path / "bronze").version == 1  # nothing was loaded twice

    # A catalog that outlives the run: without one, Spark makes the view anew, and finds the files of the last run.
    conf = ["--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse"]
    pipelines(project, *conf, "run", "--spec", "gold.yml")
    gold = pq.read_table(tmp_path / "warehouse" / "totals").to_pylist()
    assert sorted((row["status"], row["orders"], row["total"]) for row in gold) == [
        ("placed", 2, 30.0),
        ("shipped", 1, 12.5),
    ]
