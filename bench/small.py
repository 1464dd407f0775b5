"""Small intervals: one record into a table of 200 columns and 5,000 files, in one warm session.

    python bench/small.py [--columns 200] [--files 5000] [--runs 40]

Prints what the first and a later call cost, and an interval of a stream of files, and what an interval needs: Spark
jobs, listings and reads of the log. Compared are processor seconds of all processes; seconds on the wall stand beside.
The stream runs twice, the second time warm, with the settings of a session that Widen starts itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from case import session
from pyspark.sql import SparkSession
from turns import Cost, Row, measure, middle, print_rows

import widen
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add
from widen.spark.session import stream_settings

INTERVAL, FIRST, FOLLOWED, GROWTH = 0.25, 3.0, 0.25, 1.2
"""The most seconds of an interval, by which the first call may be longer, and of an interval of a stream; and how much
longer an interval may take that is `FAR` commits away from the last checkpoint."""

FAR = 90


def main(columns: int, files: int, runs: int) -> int:
    """Measure and print; 1 if a goal is missed."""
    spark = session()
    for name, value in stream_settings(spark.version).items():
        spark.conf.set(name, value)
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        place = Path(folder)
        table, source = str(place / "table"), place / "source"
        source.mkdir()
        first = measure(lambda: ingest_record(spark, source, table, 0, columns))
        add_files(table, files)
        calls, jobs = Counter[str](), len(job_ids(spark))
        with counted(calls):
            costs = [measure(partial(ingest_record, spark, source, table, n, columns)) for n in range(1, runs + 1)]
        print(f"  for each interval: {(len(job_ids(spark)) - jobs) / runs:.1f} Spark jobs,", end="")
        print(f" {', '.join(_rates(calls, runs))}")
        far = distances(spark, source, table, columns, runs)
        cold, stream = (follow(spark, source, table, place / f"progress-{turn}") for turn in range(2))
    spark.stop()
    later = middle(costs)
    print(f"  on the wall: first call {first.wall:.2f} s, later {later.wall:.2f} s, of a stream {stream.wall:.2f} s")
    print(f"  while Java compiles: of a stream {cold.cpu:.3f} s of processor time, {cold.wall:.2f} s on the wall")
    rows = [
        Row("an interval", later.cpu, INTERVAL),
        Row("by how much the first call is longer", first.cpu - later.cpu, FIRST),
        Row("an interval of a stream", stream.cpu, FOLLOWED),
        Row(f"{FAR} commits after a checkpoint / the next commits", far.cpu, GROWTH, later.cpu),
    ]
    return print_rows(f"{columns} columns, {files:,} files", rows)


def distances(spark: SparkSession, source: Path, table: str, columns: int, runs: int) -> Cost:
    """Return what an interval costs that is `FAR` commits away from the last checkpoint."""
    widen.Table(table).set_properties({"delta.checkpointInterval": "1000000"})
    store = LogStore(table)
    for _ in range(FAR):
        commit(store, open_snapshot(store), [], "WRITE", {}).or_raise()
    numbers = range(10_000, 10_000 + runs)
    return middle(measure(partial(ingest_record, spark, source, table, number, columns)) for number in numbers)


def _rates(calls: Counter[str], runs: int) -> list[str]:
    return [f"{name} {count / runs:.1f}" for name, count in sorted(calls.items())]


def ingest_record(spark: SparkSession, source: Path, table: str, number: int, columns: int) -> None:
    """Ingest a file of one record."""
    file = source / f"{number}.json"
    kinds = [number, f"text {number}", number / 4, number % 2 == 0]
    file.write_text(json.dumps({f"c{column}": kinds[column % 4] for column in range(columns)}) + "\n")
    widen.ingest(str(file), table, spark=spark)


def add_files(table: str, files: int) -> None:
    """Add files to the log of a table: an ingestion never opens them."""
    store = LogStore(table)
    snapshot = open_snapshot(store)
    stats = snapshot.files()["stats"][0].as_py()
    adds = [
        Add(path=f"f/{number}", partition_values={}, size=1, modification_time=1, data_change=True, stats=stats)
        for number in range(files)
    ]
    write_checkpoint(commit(store, snapshot, adds, "WRITE", {}).or_raise().snapshot)


def follow(spark: SparkSession, source: Path, table: str, progress: Path) -> Cost:
    """Return what an interval of a stream costs that takes one file at a time, without the start of the stream."""
    ends: list[float] = []

    def run() -> None:
        widen.ingest_stream(
            str(source),
            table,
            checkpoint=str(progress),
            max_files=1,
            once=True,
            spark=spark,
            on_interval=lambda _: ends.append(time.perf_counter()),
        ).wait()

    cost = measure(run)
    walls = [after - before for before, after in pairwise(ends)]
    return Cost(median(walls), cost.cpu / len(ends))


def job_ids(spark: SparkSession) -> list[int]:
    """Return the jobs that Spark has run for this thread."""
    return list(spark.sparkContext.statusTracker().getJobIdsForGroup())


@contextmanager
def counted(calls: Counter[str]) -> Iterator[None]:
    """Count the listings, reads and writes of tables."""
    names = ("list_from", "list", "read", "open", "find", "put", "put_if_absent")
    real = {name: getattr(LogStore, name) for name in names}

    def counting(name: str) -> Any:
        def call(store: LogStore, *arguments: Any) -> Any:
            calls[name] += 1
            return real[name](store, *arguments)

        return call

    for name in names:
        setattr(LogStore, name, counting(name))
    try:
        yield
    finally:
        for name in names:
            setattr(LogStore, name, real[name])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.columns, options.files, options.runs))
