"""A file of 10 GB through a Spark that has 4 GB of heap.

    python bench/large.py [--gigabytes 10] [--heap 4g]

Prints seconds, throughput and the peak memory of every side; fails if the ingestion does, or if a record is missing.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import time
from pathlib import Path

import dataset
from case import peak_mb, session, worker_memory
from ingest import DATA

import widen


def main(gigabytes: float, heap: str) -> int:
    """Write the file, ingest it, and print what that took."""
    file, records = write_file(gigabytes)
    target = DATA / "large-target"
    shutil.rmtree(target, ignore_errors=True)
    spark = session(heap)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    started = time.perf_counter()
    with worker_memory(jvm) as workers_mb:
        done = widen.ingest(str(file), into=str(target), spark=spark)
    seconds, size_mb = time.perf_counter() - started, file.stat().st_size / 1e6
    python_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{size_mb:,.0f} MB of JSON in one file, {records:,} records, {heap} of heap, local[2]")
    print(f"  {seconds:.0f} s, {size_mb / seconds:.0f} MB a second, {records / seconds:,.0f} records a second")
    print(f"  peak: JVM {peak_mb(jvm):.0f} MB, driver's Python {python_mb:.0f} MB, workers {max(workers_mb):.0f} MB")
    spark.stop()
    shutil.rmtree(target)
    return int(done.records != records)


def write_file(gigabytes: float) -> tuple[Path, int]:
    """Write a file of JSON lines unless it is there; return it, and how many records it has."""
    parts = sorted(dataset.write(DATA / f"first-{dataset.RECORDS}", seed=1).glob("*.json"))
    times = round(gigabytes * 1e9 / sum(part.stat().st_size for part in parts))
    place = DATA / f"large-{times}.json"
    if not place.exists():
        with place.with_suffix(".part").open("wb") as out:
            for part in parts * times:
                with part.open("rb") as text:
                    shutil.copyfileobj(text, out)
        place.with_suffix(".part").rename(place)
    return place, dataset.RECORDS * times


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--heap", default="4g")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.gigabytes, options.heap))
