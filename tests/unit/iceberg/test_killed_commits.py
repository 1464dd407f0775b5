"""A process that is killed while it commits intervals of a stream loses none and repeats none."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from widen.iceberg.catalog import to_table_name
from widen.iceberg.properties import INTERVAL, last_interval

WORKER = """
import sys
from widen.iceberg.catalog import to_table_name
from widen.iceberg.table_commit import NewTable, open_transaction
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.properties import APP_ID, INTERVAL, last_interval, stream_mark
from widen.log.commit_outcome import StagedFiles
from widen.model.types import LONG, Field, StructType

name = to_table_name("shop.orders", sys.argv[1])
while True:
    table = name.find()
    number = 1 + (last_interval(table.properties, "s") or 0 if table else 0)
    transaction = open_transaction(name, table, (), NewTable(StructType((Field("id", LONG),))))
    transaction.set_properties(stream_mark("s", number))
    file = IcebergFile(f"job/part-{number}.parquet", 9, '{"rows":1,"offsets":[4],"columns":{}}')
    transaction.add_snapshot([file], {APP_ID: "s", INTERVAL: str(number)})
    transaction.commit(StagedFiles())
    print(number, flush=True)
"""

KILLS = 3


def test_every_interval_is_there_once(tmp_path: Path) -> None:
    catalog, rng, reported = tmp_path / "c.db", random.Random(7), 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", WORKER, str(catalog)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            reported = int(worker.stdout.readline())
            time.sleep(rng.uniform(0, 0.3))
            worker.send_signal(signal.SIGKILL)
            rest = worker.stdout.read().split()
            reported = int(rest[-1]) if rest and rest[-1].isdigit() else reported
    table = to_table_name("shop.orders", catalog).load()
    numbers = [int(s.summary[INTERVAL]) for s in table.snapshots() if s.summary and s.summary[INTERVAL]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert last_interval(table.properties, "s") == len(numbers)
    assert len(numbers) in (reported, reported + 1)
    files = sorted(task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files())
    assert files == sorted(f"part-{number}.parquet" for number in numbers)
