"""A Hive metastore that Delta Lake filled, in a session without Delta Lake: names still lead to the tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop.conftest import ROOT, SETTINGS, delta_jars

SESSION = """
import json, sys
from pyspark.sql import SparkSession
settings, statements = json.loads(sys.argv[1]), json.loads(sys.argv[2])
builder = SparkSession.builder.master("local[1]").enableHiveSupport()
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
"""
FILL = """
for statement in statements:
    spark.sql(statement)
"""
ASK = """
import widen
told = []
for statement in statements:
    try:
        done = widen.sql(statement)
        told.append(done.version if isinstance(done, widen.Table) else done.collect()[0][0])
    except widen.WidenError as error:
        told.append(error.code)
print("TOLD", json.dumps(told))
"""


def session(folder: Path, script: str, statements: list[str], settings: dict[str, str]) -> str:
    place = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    common = {"spark.sql.warehouse.dir": str(folder), "spark.hadoop.javax.jdo.option.ConnectionURL": place}
    words = [sys.executable, "-c", SESSION + script, json.dumps({**common, **settings}), json.dumps(statements)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hive")
    filled = [
        "CREATE TABLE managed (id int) USING delta COMMENT 'x\nLocation: file:/elsewhere'",
        f"CREATE TABLE external (id int) USING delta LOCATION '{folder}/a b%20c'",
        "CREATE TABLE plain (id int) USING parquet",
        "CREATE VIEW seen AS SELECT 1 AS id",
    ]
    session(folder, FILL, filled, {**SETTINGS, "spark.jars": ",".join(map(str, delta_jars()))})
    return folder


def test_names_lead_to_tables_that_the_session_cannot_open(folder: Path) -> None:
    asked = [
        ("ALTER TABLE managed ALTER COLUMN id COMMENT 'by name'", 1),
        ("ALTER TABLE default.EXTERNAL ALTER COLUMN id COMMENT 'by name'", 1),
        ("DESCRIBE spark_catalog.default.external", "id"),
        ("DESCRIBE nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DESCRIBE plain", "TABLE_OR_VIEW_NOT_FOUND"),
        ("DESCRIBE seen", "TABLE_OR_VIEW_NOT_FOUND"),
        (f"CREATE TABLE new (id int) USING delta LOCATION '{folder}/new'", "TABLE_OR_VIEW_NOT_FOUND"),
    ]
    told = session(folder, ASK, [statement for statement, _ in asked], {"spark.ui.enabled": "false"})
    line = next(line for line in told.splitlines() if line.startswith("TOLD "))
    assert json.loads(line.removeprefix("TOLD ")) == [expected for _, expected in asked]
    assert not (folder / "new").exists()
