"""A table that widened is handed over: the client reads every row, and appends once the history has expired."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from support.command_line import run, run_json
from widen.table import create_table

RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"


def rows(path: str) -> list[dict[str, object]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: int(str(row["id"])))


def test_deltalake_reads_and_then_appends(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    properties = {"delta.enableTypeWidening": "true", RETENTION: "interval 0 hours"}
    table = create_table(path, "id int, note string", properties=properties)
    table.append(spark.createDataFrame([(1, "a")], "id int, note string"))
    table.alter_column("id", type="bigint")
    table.append(spark.createDataFrame([(2**40, "b")], "id bigint, note string"))
    with pytest.raises(DeltaError):
        rows(path)

    preview = run_json("handover", path, "--to", "deltalake", "--dry-run")
    assert (preview["drops"], preview["unwritable"]) == (["typeWidening"], ["checkpointProtection"])
    assert preview["version"] == table.version
    done = run("handover", path, "--to", "deltalake")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "dropped typeWidening" in done.stdout
    assert "2 rows" in done.stdout
    assert rows(path) == [{"id": 1, "note": "a"}, {"id": 2**40, "note": "b"}]

    new = pa.table({"id": pa.array([3], pa.int64()), "note": ["c"]})
    with pytest.raises(DeltaError, match="Unsupported table features"):
        write_deltalake(path, new, mode="append")
    for file in (tmp_path / "t" / "_delta_log").iterdir():
        os.utime(file, (time.time() - 120,) * 2)
    final = run_json("handover", path, "--to", "deltalake", "--append")
    assert (final["drops"], final["pending"], final["rows"]) == (["checkpointProtection"], None, 2)
    write_deltalake(path, new, mode="append")
    assert [row["id"] for row in rows(path)] == [1, 3, 2**40]
