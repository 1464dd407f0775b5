"""Delta Lake and Iceberg for Spark: the references that our tables are read and written by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from conftest import QUICK
from support.iceberg_files import embedded_catalog
from support.java_names import remember_java_names

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    **QUICK,
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM would start 10,000 tasks to list files
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all; without the jars every test fails, for a test that did not run has not passed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, delta_jars())))
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    remember_java_names()
    yield session
    session.stop()


def delta_jars() -> list[Path]:
    """Where Delta Lake for Spark lies."""
    pins = json.loads((ROOT / "tools" / "jars.json").read_text())["jars"]
    jars = [
        ROOT / ".work" / "jars" / "{1}-{2}.jar".format(*pin.split(":")) for pin in pins if pin.startswith("io.delta:")
    ]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        pytest.fail(f"Delta Lake for Spark is not here ({', '.join(missing)}): run `make interop`.")
    return jars


# Iceberg for Spark, in a process and an environment of its own.


PYTHON = ROOT / ".work" / "venv-4.1" / "bin" / "python"
JARS = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.54.1.0")


class IcebergSpark:
    """The process of `iceberg_spark.py`."""

    def __init__(self, catalog: SqlCatalog, folder: Path) -> None:
        jars = [ROOT / ".work" / "jars" / "{1}-{2}.jar".format(*each.split(":")) for each in JARS]
        missing = [str(each) for each in (*jars, PYTHON) if not each.exists()]
        if missing:
            pytest.fail(f"Iceberg for Spark is not here ({', '.join(missing)}): run `make interop`.")
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYSPARK_", "PYTHONPATH", "SPARK_HOME"))
        }
        environment |= {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
        script = str(Path(__file__).with_name("iceberg_spark.py"))
        command = [
            str(PYTHON),
            script,
            ",".join(map(str, jars)),
            f"{folder}/catalog.db",
            f"file://{folder}/catalog_warehouse",
        ]
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **request: Any) -> list[list[Any]]:
        """Run one request and return its rows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, f"{answer['error']} ({request})"
        rows: list[list[Any]] = answer["rows"]
        return rows

    def sql(self, *statements: str) -> list[list[Any]]:
        """Run statements and return the rows of the last one."""
        return [self.ask(sql=statement) for statement in statements][-1]

    def json(self, query: str) -> list[str]:
        """The rows of a query as sorted JSON texts."""
        return sorted(
            row[0] for row in self.sql(f"SELECT to_json(struct(*), map('ignoreNullFields', 'false')) FROM ({query})")
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def catalog(folder: Path) -> SqlCatalog:
    return embedded_catalog(folder)


@pytest.fixture(scope="module")
def iceberg(catalog: SqlCatalog, folder: Path) -> Iterator[IcebergSpark]:
    judge = IcebergSpark(catalog, folder)
    with judge.process:  # closes the pipes, which ends the process, and waits for it
        yield judge
