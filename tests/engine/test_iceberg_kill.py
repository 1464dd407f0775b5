"""A process that is killed at any moment of an ingestion into Iceberg: each interval is in the table exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT
from support.fault import FULL
from widen.iceberg.catalog import to_table_name
from widen.iceberg.properties import INTERVAL, last_interval

WORKER = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from widen.ingestion import ingest

folder, number = Path(sys.argv[1]), int(sys.argv[2])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
while True:
    value = number if number % 3 else str(number)
    records = [{"n": number, f"field_{number}": value}, {"n": number, "drift": value, "k": None if number % 2 else "k"}]
    source = folder / f"{number}.jsonl"
    source.write_text("".join(json.dumps(record) + chr(10) for record in records))
    ingest(str(source), "shop.orders", catalog=folder / "c.db", txn=("loader", number), spark=spark)
    print(number, flush=True)
    number += 1
"""

KILLS = 30 if FULL in os.environ else 1


def test_every_interval_is_in_the_table_once(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    rng, reported, visible = random.Random(12), 0, 0
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    for _ in range(KILLS):
        command = [sys.executable, "-c", WORKER, str(tmp_path), str(reported + 1)]
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as worker:
            assert worker.stdout is not None
            begin = time.monotonic()
            reported = int(worker.stdout.readline())
            # The second interval takes less time than Spark and the first one did.
            time.sleep(rng.uniform(0, 0.3) * (time.monotonic() - begin))
            os.killpg(worker.pid, signal.SIGKILL)
            reported = max([reported, *map(int, worker.stdout.read().split())])
        table = to_table_name("shop.orders", tmp_path / "c.db").load()
        last = last_interval(table.properties, "loader")
        assert last in (reported, reported + 1)
        visible += last == reported + 1
    rows = table.scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == sorted([*range(1, last + 1)] * 2)
    for row in rows:
        values = {value for key, value in row.items() if key.startswith(("field_", "drift")) and value is not None}
        assert values in ({row["n"]}, {str(row["n"])}, {row["n"], str(row["n"])})
    numbers = [int(each.summary[INTERVAL]) for each in table.snapshots() if each.summary and each.summary[INTERVAL]]
    assert numbers == list(range(1, last + 1))
    record_testsuite_property("ingestions into Iceberg killed", f"{KILLS}, of which {visible} had committed")
