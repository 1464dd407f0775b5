"""Whole commands without Spark and with it: `widen ingest` of one record and of more, each in a process of its own.

    python bench/instant.py [--megabytes 1 16 128] [--runs 3] [--no-spark]

Beside them dlt and deltalake load the same records, where they are installed: dlt as its documentation reads JSON
lines, deltalake what PyArrow's reader of JSON makes of the file. Compared are processor seconds with those of all
children; seconds on the wall stand beside. The first row is a process that only imports pyarrow and msgspec.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median

WIDEN = (sys.executable, "-m", "widen", "ingest")

DELTALAKE = """
import sys
import pyarrow.json
from deltalake import write_deltalake
write_deltalake(sys.argv[2], pyarrow.json.read_json(sys.argv[1]), mode="append")
"""
DLT = """
import os, sys
from pathlib import Path
os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
import dlt
from dlt.sources.filesystem import readers
source, place = Path(sys.argv[1]), Path(sys.argv[2])
to = dlt.destinations.filesystem(bucket_url=place.absolute().as_uri())
pipeline = dlt.pipeline("bench", destination=to, dataset_name="bench", pipelines_dir=str(place / "work"))
records = readers(bucket_url=source.parent.as_uri(), file_glob=source.name).read_jsonl().with_name("orders")
records.apply_hints(table_format="delta")
pipeline.run(records)
"""


def main(megabytes: Sequence[int], runs: int, *, with_spark: bool) -> None:
    """Measure and print."""
    print(f"{'':28} {'processor s':>12} {'wall s':>8} {'peak MB':>8}")
    show("import pyarrow, msgspec", [measure((sys.executable, "-c", "import pyarrow, msgspec")) for _ in range(runs)])
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        place = Path(folder)
        for size in (0, *megabytes):
            source = place / f"source-{size}.json"
            write_records(source, size * 2**20)
            for name, words in commands(source, place / "table", with_spark=with_spark).items():
                costs = []
                for _ in range(runs):
                    shutil.rmtree(place / "table", ignore_errors=True)
                    costs.append(measure(words))
                show(f"{f'{size} MB' if size else 'one record'}: {name}", costs)


def commands(source: Path, table: Path, *, with_spark: bool) -> dict[str, tuple[str, ...]]:
    """Return the commands to compare, by their names."""
    found: dict[str, tuple[str, ...]] = {
        "widen": (*WIDEN, str(source), "--into", str(table), "--engine", "local"),
    }
    if with_spark:
        found["widen, with Spark"] = (*WIDEN, str(source), "--into", str(table), "--engine", "spark")
    for package, code in (("dlt", DLT), ("deltalake", DELTALAKE)):
        if find_spec(package) is not None:
            found[package] = (sys.executable, "-c", code, str(source), str(table))
    return found


def write_records(source: Path, size_bytes: int) -> None:
    """Write orders up to a size, at least one."""
    with source.open("w", encoding="utf-8") as file:
        number = 0
        while not number or file.tell() < size_bytes:
            lines = (json.dumps(order(at)) for at in range(number, number + (1_000 if size_bytes else 1)))
            file.write("\n".join(lines) + "\n")
            number += 1_000


def order(number: int) -> dict[str, object]:
    """Return a record of about 250 bytes."""
    return {
        "id": number,
        "placed_at": f"2024-05-{number % 28 + 1:02}T07:08:{number % 60:02}Z",
        "customer": {"name": f"customer {number % 5_000}", "tier": number % 5, "active": number % 3 == 0},
        "total": number % 10_000 / 4,
        "items": [{"sku": f"sku-{number % 700 + at}", "count": at + 1} for at in range(number % 4)],
        "note": None if number % 2 else "leave it at the door",
    }


def measure(words: Sequence[str]) -> tuple[float, float, float]:
    """Return the processor seconds, the seconds on the wall and the peak memory of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(done.pid, 0)
    wall = time.perf_counter() - started
    assert done.stderr is not None
    if status:
        sys.exit(done.stderr.read().decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, usage.ru_maxrss / 1024


def show(name: str, costs: Sequence[tuple[float, float, float]]) -> None:
    """Print the medians of some runs."""
    cpu, wall, peak = (median(values) for values in zip(*costs, strict=True))
    print(f"{name:28} {cpu:12.2f} {wall:8.2f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, nargs="*", default=[1, 16, 128])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-spark", action="store_true")
    given = parser.parse_args()
    main(given.megabytes, given.runs, with_spark=not given.no_spark)
