"""A Spark session with Delta Lake itself: the reference that our tables are read and written by."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than jobs this small
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
