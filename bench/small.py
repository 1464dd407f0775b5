"""Small intervals: one record into a table of 200 columns and 5,000 files, in one warm session.

    python bench/small.py [--columns 200] [--files 5000] [--runs 40]

Prints the seconds of the first and of a later call, how many intervals a stream of files takes in a second, and what an
interval needs: processor seconds, Spark jobs, listings and reads of the log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from case import session
from processor_time import processor_time
from pyspark.sql import SparkSession

import widen
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_writer import write_checkpoint
from widen.log.write.commit import commit
from widen.protocol.actions import Add

INTERVAL, FIRST, FOLLOWED, GROWTH = 0.25, 3.0, 0.25, 1.2
"""The most seconds of an interval, by which the first call may be longer, and of an interval of a stream; and how much
longer an interval may take that is further from the last checkpoint."""


def main(columns: int, files: int, runs: int) -> int:
    """Measure and print; 1 if a goal is missed."""
    spark = session()
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        place = Path(folder)
        table, source = str(place / "table"), place / "source"
        source.mkdir()
        first = timed(lambda: ingest_record(spark, source, table, 0, columns))
        add_files(table, files)
        print(f"{columns} columns, {files:,} files, load {os.getloadavg()[0]:.1f}")
        calls, seconds, jobs = Counter[str](), [], len(job_ids(spark))
        with counted(calls), processor_time() as used:
            for number in range(1, runs + 1):
                seconds.append(timed(lambda number=number: ingest_record(spark, source, table, number, columns)))
        print(f"  for each interval: {sum(used.values()) / runs:.3f} s of processor time,", end="")
        print(f" {(len(job_ids(spark)) - jobs) / runs:.1f} Spark jobs,", ", ".join(_rates(calls, runs)))
        intervals = follow(spark, source, table, place / "progress")
    spark.stop()
    later, ends = median(seconds), sorted(range(runs), key=lambda number: (number + 2) % 10)
    early, late = ([seconds[n] for n in part] for part in (ends[runs // 10 : runs // 2], ends[runs // 2 :]))
    ratios = [
        ("seconds of an interval", later, INTERVAL),
        ("seconds by which the first call is longer", first - later, FIRST),
        ("seconds of an interval of a stream", median(intervals[len(intervals) // 2 :]), FOLLOWED),
        ("commits 6-9 / commits 1-5 after a checkpoint", median(late) / median(early), GROWTH),
    ]
    for what, value, most in ratios:
        print(f"  {what:<48}  {value:.3f}  (at most {most}){'  MISSED' if value > most else ''}")
    return int(any(value > most for _, value, most in ratios))


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


def follow(spark: SparkSession, source: Path, table: str, progress: Path) -> list[float]:
    """Return the seconds between the intervals of a stream that takes one file at a time."""
    ends: list[float] = []
    stream = widen.ingest_stream(
        str(source),
        table,
        checkpoint=str(progress),
        max_files=1,
        once=True,
        spark=spark,
        on_interval=lambda _: ends.append(time.perf_counter()),
    )
    stream.wait()
    return [after - before for before, after in pairwise(ends)]


def timed(work: Any) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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
