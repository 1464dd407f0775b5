"""Spark with its connector for Kafka, and a broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.kafka import kafka_broker

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".work" / "jars-kafka"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores with the connector."""
    jars = sorted(map(str, JARS.glob("*.jar")))
    assert jars, f"{JARS} is empty: run make kafka"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    builder = SparkSession.builder.master("local[2]").appName("widen-kafka").config("spark.jars", ",".join(jars))
    for key, value in {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    with kafka_broker(JARS / "broker", tmp_path_factory.mktemp("kafka")) as address:
        yield address
