"""A process that is killed at any moment of an ingestion into Iceberg, or of another operation that commits.

Each interval is in the table exactly once, no row is lost or doubled, and PyIceberg reads every branch and tag.
"""

from __future__ import annotations

import os
import random
import re
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
from widen import ingest

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


CHANGES = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import widen

folder, number, high = Path(sys.argv[1]), int(sys.argv[2]), 10_000
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
catalog = folder / "c.db"
place = {"catalog": catalog, "spark": spark}

def ingest(text, **words):
    source = folder / f"{number}-{len(text)}.jsonl"
    source.write_text(text)
    widen.ingest(str(source), "shop.orders", **place, **words)

while True:
    ingest(f'{{"n": {number}}}', txn=("loader", number))
    table = widen.IcebergTable("shop.orders", catalog)
    names = {each.name for each in table.references}
    rows = lambda *values: spark.createDataFrame([(value,) for value in values], "n int")
    merge = table.merge(rows(high + number), "t.n = s.n").when_not_matched_insert({"n": "s.n"})
    if "audit" in names:
        table.drop_branch("audit")
    works = {
        "merge": merge.execute,
        "update": lambda: table.update({"n": f"n + {high}"}, f"n BETWEEN {high} AND {2 * high}", spark=spark),
        "overwrite": lambda: table.overwrite(rows(high), where=f"n >= {high}"),
        "delete": lambda: table.delete(f"n >= {high}", spark=spark),
        "tag": lambda: f"t{number}" in names or table.create_tag(f"t{number}"),
        "branch": lambda: table.create_branch("audit"),
        "load a branch": lambda: ingest(f'{{"n": {high + number}}}', branch="audit"),
        "publish": lambda: table.fast_forward("main", "audit"),
        "restore": lambda: table.restore(next(each.version for each in table.references if each.name == f"t{number}")),
        "sort order": lambda: table.set_sort_order("n" if number % 2 else "n DESC"),
        "partition fields": lambda: f"bucket({number + 1}, n)" in table.partition_by
        or table.change_partitioning(add=[f"bucket({number + 1}, n)"], drop=table.partition_by),
        "rewrite": lambda: table.rewrite(spark=spark),
        "optimize": lambda: table.optimize(spark=spark),
        "vacuum": lambda: table.vacuum(0, keep_last=1, force=True),
        "drop a branch": lambda: table.drop_branch("audit"),
    }
    for name in sys.argv[3:] or works:
        print(name, flush=True)
        works[name]()
        table.refresh()
    print(number, flush=True)
    number += 1
"""

OPERATIONS = tuple(re.findall(r'^        "([a-z ]+)": ', CHANGES, re.MULTILINE))
KILLED = OPERATIONS if FULL in os.environ else ("delete",)
MADE = () if FULL in os.environ else ("merge", "update", "overwrite", "delete")
"""The operations of a round, up to the one in which a process is killed; nothing for all of them."""

HIGH = 10_000


def test_an_operation_that_is_killed_loses_and_doubles_no_row(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    rng, done = random.Random(30), 0
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    for operation in KILLED:
        command = [sys.executable, "-c", CHANGES, str(tmp_path), str(done + 1), *MADE]
        with (
            (tmp_path / "error").open("w") as errors,
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as worker,
        ):
            assert worker.stdout is not None
            seconds = 0.0
            while True:  # first a whole round, which tells how long the operation takes
                line = worker.stdout.readline().strip()
                assert line, (tmp_path / "error").read_text()[-3000:]
                if line == operation and seconds:
                    break
                if line == operation:
                    begin = time.monotonic()
                    line = worker.stdout.readline().strip()
                    seconds = time.monotonic() - begin
                done = int(line) if line.isdecimal() else done
            time.sleep(rng.random() * seconds)
            os.killpg(worker.pid, signal.SIGKILL)
            done = max([done, *(int(line) for line in worker.stdout.read().split() if line.isdecimal())])
        table = to_table_name("shop.orders", tmp_path / "c.db").load()
        for name in table.refs():
            numbers = sorted(table.scan().use_ref(name).to_arrow()["n"].to_pylist())
            low, high = [each for each in numbers if each < HIGH], [each for each in numbers if each >= HIGH]
            last = int(name[1:]) if name.startswith("t") else max(low)
            assert low == [*range(1, last + 1)], (operation, name)
            assert last in (done, done + 1) or name.startswith("t"), (operation, name)
            assert len(high) <= 1, (operation, name, high)
    record_testsuite_property("operations on Iceberg tables killed", len(KILLED))
