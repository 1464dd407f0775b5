"""Widen on a cluster whose workers do not have it: refused clearly, then shipped, and a worker is killed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from cluster.conftest import Cluster
from widen.errors import InvalidOption
from widen.sources import file_ranges
from widen.spark.ship import ensure_executors
from widen.table import Table, create_table

RECORDS = 120_000


def write_days(folder: Path, days: int) -> Path:
    """Write JSON lines whose types drift from day to day."""
    folder.mkdir()
    for day in range(days):
        first = day * RECORDS // days
        with (folder / f"{day}.json").open("w") as file:
            for number in range(first, first + RECORDS // days):
                value = (number, number + 3_000_000_000, number / 8, f"v{number}")[day % 4]
                file.write(json.dumps({"id": number, "value": value, "text": "x" * 20}) + "\n")
    return folder


def test_widen_on_a_cluster(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ranges, "DRIVER_TASK_BYTES", 0)  # the driver takes small batches itself
    properties = {"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true"}
    table = create_table(tmp_path / "t", "id int, v string", properties=properties)
    with pytest.raises(InvalidOption, match="cannot import widen"):
        ensure_executors(spark, ["widen"])
    landing = write_days(tmp_path / "landing", 8)
    # What runs Python in tasks sends Widen first, once for each session.
    typed = spark.sql("SELECT id, CAST(id AS string) AS text FROM range(100)")
    assert widen.ingest(typed, tmp_path / "typed", verify=True).verification.is_clean
    ensure_executors(spark, ["widen"])
    (tmp_path / "few.json").write_text('{"id": 1, "v": "a"}\n')
    keyed = widen.ingest(tmp_path / "few.json", tmp_path / "k", key=["id"], verify=True, engine="spark", spark=spark)
    assert keyed.verification.is_clean
    with pytest.raises(InvalidOption, match="cannot import surely_missing"):
        ensure_executors(spark, ["surely_missing"])
    table.append(spark.sql("SELECT CAST(id AS int) AS id, 'a' AS v FROM range(1000)"))
    table.delete("id % 10 = 3", spark=spark)
    table.alter_column("id", type="bigint")
    source = spark.sql("SELECT id + 990 AS id, 'b' AS v FROM range(20)")
    table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    table.rewrite(spark=spark)
    # 900 rows are left after the delete; of 990 to 1009, 993 was deleted and comes back, and 1000 to 1009 are new.
    assert table.read(spark=spark).count() == 900 + 1 + 10
    assert table.read("v = 'b'", spark=spark).count() == 20

    # Registered, its tasks run in the Python of the workers. Where Spark finds it, they run in that of the driver.
    widen.register(spark)
    assert spark.read.format("widen").load(table.location).count() == 911

    killer = threading.Thread(target=lambda: (time.sleep(4), cluster.kill(0)))
    killer.start()
    result = widen.ingest(landing, tmp_path / "events", engine="spark", verify=True, spark=spark)
    killer.join()
    assert result.verification is not None
    assert result.verification.is_clean
    assert (result.verification.records, cluster.workers[0].wait(60)) == (RECORDS, -9)
    events = Table(tmp_path / "events")
    assert events.read(spark=spark).count() == RECORDS
    assert events.read(spark=spark).select("id").distinct().count() == RECORDS
