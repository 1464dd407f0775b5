"""Processes that run a flow on a Spark Connect server, and are killed at random moments; the server goes on.

Run as a program with SPARK_REMOTE set: ``killed_flows.py FOLDER KEY SEED KILLS`` prints as JSON what is wrong at the
end. It imports once and forks each process, so that a kill does not cost a start of Spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import widen
from support.foreign_file import add_file
from widen.table import Table, create_table

KEYS = 5
"""How many different keys the rows have."""

BATCHES = 4
"""How many versions of the source are new when a process begins."""


def add_versions(bronze: Table, count: int) -> None:
    """Add versions with two rows each."""
    for version in range(bronze.version, bronze.version + count):
        ids = pa.array([2 * version, 2 * version + 1], pa.int32())
        keys = pa.array([id % KEYS for id in ids.to_pylist()], pa.int32())
        add_file(bronze, f"{version}.parquet", pa.table({"id": ids, "k": keys}), {})


def run_flow(place: Path, key: str) -> None:
    """Run the flow until its target has everything; each version of the source is a batch."""
    session = SparkSession.builder.getOrCreate()
    words = {"checkpoint": str(place / "cp"), "max_bytes": 1, "once": True, "spark": session}
    widen.flow(str(place / "bronze"), str(place / "silver"), keys=[key] if key else None, **words)  # type: ignore[arg-type]


def fork_flow(place: Path, key: str) -> int:
    """Run the flow in a new process, and return its id."""
    if child := os.fork():
        return child
    try:
        run_flow(place, key)
    except BaseException:  # a process that must not return to what its parent does
        (place / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def version_of(silver: Path) -> int:
    return Table(str(silver)).version if (silver / "_delta_log").exists() else -1


def kill_flows(place: Path, key: str, rng: random.Random, kills: int) -> dict[str, object]:
    """Kill that many processes, let a last one finish, and return what is wrong and how far each one came."""
    bronze = create_table(str(place / "bronze"), "id int, k int")
    add_versions(bronze, 1)
    begin = time.monotonic()
    wrong = [] if end_of(fork_flow(place, key)) == 0 else ["the first flow failed"]
    seconds, commits = time.monotonic() - begin, []
    while len(commits) < kills and not wrong:
        add_versions(bronze, BATCHES)
        before = version_of(place / "silver")
        child = fork_flow(place, key)
        time.sleep(seconds * rng.uniform(0.2, 1.2))
        os.kill(child, signal.SIGKILL)
        if (end := end_of(child)) == -signal.SIGKILL:
            commits.append(version_of(place / "silver") - before)
        elif end:
            wrong.append(f"a flow ended with {end}")
        else:  # it was quicker than the kill
            seconds *= 0.7
    if not wrong and end_of(fork_flow(place, key)):
        wrong.append("the last flow failed")
    error = place / "error"
    wrong += [error.read_text()[-2000:]] if error.exists() else []
    lost, found = (Counter(map(str, Table(str(place / name)).to_arrow().to_pylist())) for name in ("bronze", "silver"))
    wrong += [f"{row} is there {found[row]} times" for row in lost | found if found[row] != 1]
    return {"kills": len(commits), "rows": lost.total(), "commits": commits, "wrong": wrong}


if __name__ == "__main__":
    folder, key, seed, kills = sys.argv[1:]
    print(json.dumps(kill_flows(Path(folder), key, random.Random(int(seed)), int(kills))))
