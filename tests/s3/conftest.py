"""Spark with Hadoop's client of S3, and a server of S3 on loopback. The session has no credentials."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from pyspark.sql import SparkSession

from support.log_server import BUCKET, s3_server

ROOT = Path(__file__).resolve().parents[2]
JARS = Path(os.environ.get("WIDEN_S3_JARS", ROOT / ".work" / "jars-s3"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores with the jars of `make s3`."""
    jars = sorted(map(str, JARS.glob("*.jar")))
    assert jars, f"{JARS} is empty: run make s3"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    builder = SparkSession.builder.master("local[2]").appName("widen-s3").config("spark.jars", ",".join(jars))
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def options() -> Iterator[dict[str, str]]:
    """The storage options of a running server."""
    with s3_server() as storage_options:
        yield storage_options


@pytest.fixture(scope="session")
def store(options: dict[str, str]) -> obstore.store.S3Store:
    """The bucket of the server."""
    return obstore.store.S3Store(BUCKET, config=options, client_options={"allow_http": True})
