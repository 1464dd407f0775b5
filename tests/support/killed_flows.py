"""Processes that run a flow on a Spark Connect server, and are killed at random moments; the server goes on.

Run as a program with SPARK_REMOTE set: ``killed_flows.py FOLDER TARGET KEY SEED KILLS`` prints as JSON what is wrong
at the end. A target with a dot in its name is an Iceberg table. The program imports once and forks each process, so
that a kill does not cost a start of Spark.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

import widen
from support.foreign_file import add_file
from widen.iceberg.catalog import to_table_name
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


Tell: TypeAlias = Callable[[Mapping[str, Any]], None]
"""What a process calls to tell its parent facts, which JSON can hold."""


@dataclass(frozen=True)
class Flow:
    """A flow from the Delta table ``bronze`` in a folder into another table, without keys or with one."""

    place: Path
    target: str
    key: str

    @property
    def catalog(self) -> Path | None:
        return self.place / "c.db" if "." in self.target else None

    def run(self) -> None:
        """Run it until its target has everything; each version of the source is a batch."""
        words = {"checkpoint": str(self.place / "cp"), "max_bytes": 1, "once": True, "catalog": self.catalog}
        target = self.target if self.catalog else str(self.place / self.target)
        session, keys = SparkSession.builder.getOrCreate(), [self.key] if self.key else None
        widen.flow(str(self.place / "bronze"), target, keys=keys, spark=session, **words)  # type: ignore[arg-type]

    def commits(self) -> int:
        """Return how many commits the target has."""
        if self.catalog:
            table = to_table_name(self.target, self.catalog).find()
            return 0 if table is None else len(table.snapshots())
        silver = self.place / self.target
        return Table(str(silver)).version + 1 if (silver / "_delta_log").exists() else 0

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the target as a client without Spark reads them."""
        if self.catalog:
            return to_table_name(self.target, self.catalog).load().scan().to_arrow().to_pylist()  # type: ignore[no-any-return]
        return Table(str(self.place / self.target)).to_arrow().to_pylist()


def fork(flow: Flow) -> int:
    """Run a flow in a new process, and return its id."""
    if child := os.fork():
        return child
    try:
        flow.run()
    except BaseException:  # a process that must not return to what its parent does
        (flow.place / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_and_listen(place: Path, work: Callable[[Tell], None]) -> tuple[int, list[dict[str, Any]]]:
    """Do work in a new process, and return how the process ended and what it has told.

    Args:
        place: The folder that gets an error as a file.
    """
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            with os.fdopen(writing, "w", buffering=1) as pipe:
                work(lambda facts: print(json.dumps(facts), file=pipe))
        except BaseException:  # a process that must not return to what its parent does
            (place / "error").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        told = [*map(json.loads, pipe)]
    return end_of(child), told


def kill_flows(flow: Flow, rng: random.Random, kills: int) -> dict[str, object]:
    """Kill that many processes, let a last one finish, and return what is wrong and how far each one came."""
    place = flow.place
    bronze = create_table(str(place / "bronze"), "id int, k int")
    add_versions(bronze, 1)
    begin = time.monotonic()
    wrong = [] if end_of(fork(flow)) == 0 else ["the first flow failed"]
    seconds, commits = time.monotonic() - begin, []
    while len(commits) < kills and not wrong:
        add_versions(bronze, BATCHES)
        before = flow.commits()
        child = fork(flow)
        time.sleep(seconds * rng.uniform(0.2, 1.2))
        os.kill(child, signal.SIGKILL)
        if (end := end_of(child)) == -signal.SIGKILL:
            commits.append(flow.commits() - before)
        elif end:
            wrong.append(f"a flow ended with {end}")
        else:  # it was quicker than the kill
            seconds *= 0.7
    if not wrong and end_of(fork(flow)):
        wrong.append("the last flow failed")
    error = place / "error"
    wrong += [error.read_text()[-2000:]] if error.exists() else []
    sides = (Table(str(place / "bronze")).to_arrow().to_pylist(), flow.rows())
    lost, found = (Counter(str(sorted(row.items())) for row in rows) for rows in sides)
    wrong += [f"{row} is there {found[row]} times" for row in lost | found if found[row] != 1]
    return {"kills": len(commits), "rows": lost.total(), "commits": commits, "wrong": wrong}


if __name__ == "__main__":
    folder, target, key, seed, kills = sys.argv[1:]
    print(json.dumps(kill_flows(Flow(Path(folder), target, key), random.Random(int(seed)), int(kills))))
