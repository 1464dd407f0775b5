"""Landing zones: what a load of new files costs beside Spark's file stream, a scan of the folder, and an older build.

    python bench/landing.py [--only small,million,first] [--before SRC] [--scale 1.0] [--no-spark]

Cases, each in processes of its own, in processor seconds with those of all children, and peak memory:

| case | what is loaded | beside |
|---|---|---|
| ``small`` | 10 new files of 20,000 in one folder | Spark's file stream, after its start |
| ``million`` | 1,000 new files of 1,000,000 in 1,000 folders | the same, and ``os.scandir`` over the folder |
| ``first`` | 100,000 files of 1 kB in 100 folders, a new table | ``read.json`` and a write, after its start |

Buckets and queues are in ``landing_store.py``.
Both sides have loaded the other files before: ours in the record of loads, Spark's in a checkpoint that is written as
Spark writes it. ``--before`` is the folder ``src`` of another checkout, which is measured as well.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve()
RECORD = '{"id": %d, "customer": {"id": %d, "name": "customer"}, "total": %d.25, "day": "2026-11-28"}\n'
SCHEMA = "id bigint, customer struct<id: bigint, name: string>, total double, day string"
KILOBYTE = 11
"""The number of records in a file of 1 kB."""


@dataclass(frozen=True)
class Case:
    """A landing zone.

    Args:
        folders: The number of its folders.
        files: The number of files in each.
        new: The number of files that are not loaded; 0 for a first load of all.
        records: The number of records in a file.
        goals: What the ratios to a peer may be at most, by its name.
    """

    folders: int
    files: int
    new: int
    records: int
    goals: dict[str, float]


CASES = {
    "small": Case(1, 20_000, 10, 1, {"spark": 0.1}),
    "million": Case(1_000, 1_000, 1_000, 1, {"spark": 0.15, "scandir": 6}),
    "first": Case(100, 1_000, 0, KILOBYTE, {"spark": 0.2}),
}


def write_files(case: Case, place: Path) -> None:
    """Write the files of a landing zone."""
    number = 0
    for folder in range(case.folders):
        inner = place / f"batch-{folder:04}"
        inner.mkdir(parents=True)
        for file in range(case.files):
            lines = []
            for _ in range(case.records):
                lines.append(RECORD % (number, number % 977, number % 50))
                number += 1
            (inner / f"part-{file:06}.jsonl").write_bytes("".join(lines).encode())


def loaded_before(case: Case, landing: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files that were loaded before: all but every so-many-th."""
    every = case.folders * case.files // case.new
    at = 0
    for folder in sorted(landing.iterdir()):
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                at += 1
                if at % every:
                    yield entry


def seed_table(case: Case, landing: Path, table: Path) -> None:
    """Create a table that has loaded the other files."""
    files = ((entry.path, entry.stat()) for entry in loaded_before(case, landing))
    record_files(table, ((f"file:{path}", at.st_size, at.st_mtime_ns // 1_000_000) for path, at in files))


def record_files(table: Path, files: Iterator[tuple[str, int, int]]) -> None:
    """Create a table that has loaded files, by the record of loads, in loads of 10,000.

    Args:
        files: The path or URL, the size in bytes and the time in ms of each.
    """
    from importlib import import_module
    from itertools import islice

    from widen import create_table
    from widen.log.commit import commit
    from widen.log.commit_outcome import StagedFiles
    from widen.log.log_store import LogStore
    from widen.log.snapshot import open_snapshot

    record = import_module("widen.log.loads")  # also of older builds, which mypy does not see
    create_table(str(table), SCHEMA)
    store = LogStore(str(table))
    while some := list(islice(files, 10_000)):
        loaded = [record.LoadedFile(*each) for each in some]
        load = record.Load(version=-1, loaded_ms=0, files=tuple(loaded))
        with StagedFiles() as staged:

            def attempt(base, txn, staged=staged):
                return commit(store, base, [txn], "WRITE", {}, staged=staged, max_attempts=1)

            base = open_snapshot(store)
            record.commit_with_loads(store, base, load, attempt, staged=staged, is_exclusive=False).or_raise()


def seed_checkpoint(case: Case, landing: Path, checkpoint: Path) -> None:
    """Write a checkpoint of a stream of Spark that has read the other files in its first batch."""
    lines = ["v1"]
    for entry in loaded_before(case, landing):
        time_ms = entry.stat().st_mtime_ns // 1_000_000
        lines.append(json.dumps({"path": f"file://{entry.path}", "timestamp": time_ms, "batchId": 0}))
    conf = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
    for name, text in {
        "metadata": json.dumps({"id": "11111111-1111-1111-1111-111111111111"}),
        "sources/0/0": "\n".join(lines),
        "offsets/0": "\n".join(["v1", json.dumps(conf), '{"logOffset":0}']),
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ---- what is measured, each in a process of its own ----------------------------------------------


def run_scandir(landing: str, _: str) -> None:
    """Look at each name below a folder."""
    pending = [landing]
    while pending:
        with os.scandir(pending.pop()) as entries:
            pending += [entry.path for entry in entries if entry.is_dir()]


def run_widen(landing: str, table: str) -> None:
    """Load the new files."""
    import widen

    done = widen.ingest(landing, table, new=True, engine="local")
    print(done.records, file=sys.stderr)


def run_stream(landing: str, place: str) -> None:
    """Let Spark's file stream read the new files, and print its processor seconds after its start."""
    from case import session
    from processor_time import processor_time

    spark = session()
    spark.range(10).write.mode("overwrite").parquet(f"{place}/warm")
    with processor_time() as used:
        rows = spark.readStream.schema(SCHEMA).option("maxFileAge", "36500d").json(f"{landing}/*")
        writer = rows.writeStream.format("parquet").option("path", f"{place}/out")
        writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    print(_count_rows(f"{place}/out"), file=sys.stderr)
    print(sum(used.values()))


def run_first(landing: str, place: str) -> None:
    """Let Spark read all files and write them, and print its processor seconds after its start."""
    from case import session
    from processor_time import processor_time

    spark = session()
    spark.range(10).write.mode("overwrite").parquet(f"{place}/warm")
    with processor_time() as used:
        spark.read.json(f"{landing}/*").write.parquet(f"{place}/out")
    print(_count_rows(f"{place}/out"), file=sys.stderr)
    print(sum(used.values()))


def _count_rows(place: str) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(file).num_rows for file in Path(place).glob("*.parquet"))


WORKS = {"scandir": run_scandir, "widen": run_widen, "stream": run_stream, "first": run_first}


def measure(work: str, landing: Path, place: Path, source: str | None = None) -> tuple[float, int, str]:
    """Return processor seconds, peak memory in MB and what the work says, of a process of its own."""
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = source
    command = [sys.executable, str(HERE), "--work", work, str(landing), str(place)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(err)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = err.strip().splitlines()
    peak = next((int(line.split()[1]) for line in said if line.startswith("peak ")), 0)
    printed = out.strip().splitlines()
    return float(printed[-1]) if printed else seconds, peak, next((line for line in said if line.isdigit()), "")


def measure_case(name: str, case: Case, options: argparse.Namespace, place: Path) -> bool:
    """Measure one case, print it, and tell whether a goal is missed."""
    landing = place / name
    write_files(case, landing)
    found: dict[str, tuple[float, int, str]] = {"scandir": measure("scandir", landing, place)}
    for build, source in {"before": options.before, "widen": None}.items():
        if build == "before" and source is None:
            continue
        table = place / f"{name}-{build}"
        if case.new:
            subprocess.run(
                [sys.executable, str(HERE), "--seed", name, str(options.scale), str(landing), str(table)],
                check=True,
                env={**os.environ, **({"PYTHONPATH": source} if source else {})},
            )
        found[build] = measure("widen", landing, table, source)
    if not options.no_spark:
        peer = place / f"{name}-spark"
        peer.mkdir()
        if case.new:
            seed_checkpoint(case, landing, peer / "checkpoint")
        found["spark"] = measure("stream" if case.new else "first", landing, peer)
    print(f"{name}: {case.folders * case.files:,} files, {case.new or case.folders * case.files:,} new")
    ours, missed = found["widen"][0], False
    for peer_name, (seconds, peak, records) in found.items():
        goal = case.goals.get(peer_name)
        ratio = "" if peer_name == "widen" else f"ours is {ours / seconds:6.2f} of it"
        missed |= goal is not None and ours / seconds > goal
        aim = "" if goal is None else f" (goal {goal:g})"
        size = f"{peak:,} MB" if peak else ""
        print(f"  {peer_name:<10}{seconds:9.2f} s {size:>9}  {records:>9}  {ratio}{aim}")
    shutil.rmtree(landing)
    return missed


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    if arguments[:1] == ["--work"]:
        WORKS[arguments[1]](*arguments[2:])
        print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}", file=sys.stderr)
        return 0
    if arguments[:1] == ["--seed"]:
        name, scale, landing, table = arguments[1:]
        seed_table(_scaled(CASES[name], float(scale)), Path(landing), Path(table))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--before", metavar="SRC")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--no-spark", action="store_true")
    options = parser.parse_args(arguments)
    missed = False
    with tempfile.TemporaryDirectory(prefix="widen-landing-") as folder:
        for name in options.only.split(","):
            missed |= measure_case(name, _scaled(CASES[name], options.scale), options, Path(folder))
    return int(missed)


def _scaled(case: Case, scale: float) -> Case:
    files = max(1, round(case.files * scale))
    return Case(case.folders, files, round(case.new * scale), case.records, case.goals)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
