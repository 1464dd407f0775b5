"""Processes that change rows by key on a Spark Connect server, and are killed at random moments; the server goes on.

Run as a program with SPARK_REMOTE set: ``killed_keys.py FOLDER TARGET SEED KILLS`` prints as JSON what is wrong. A
target with a dot in its name is an Iceberg table. The program imports once and forks each process. A process loads one
batch after another; the next one repeats the batch in which the last one was killed, and it is looked at in between.
What needs no Spark is done without it, so that most of the time is that of the commits.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

import widen
from support.killed_flows import end_of
from widen.iceberg.catalog import to_table_name
from widen.spark.engine import Engine, LocalSession
from widen.table import Table

KEYS = 40
"""How many different keys the records have."""

RECORDS = 20
"""How many records a batch has."""

AHEAD = 4
"""How many batches there are for a process."""

MOST_LOADS = 1.5
"""How long a process is left alone at most, in the time that the first batch of a process takes."""


@dataclass
class Loads:
    """The batches for a table by key, and what the table must hold after each."""

    place: Path
    target: str
    rng: random.Random
    words: Mapping[str, Any] = field(default_factory=dict)
    events: dict[int, dict[int, tuple[int, str]]] = field(default_factory=dict)
    batches: int = 0

    @property
    def catalog(self) -> Path | None:
        return self.place / "c.db" if "." in self.target else None

    @property
    def location(self) -> str:
        return self.target if self.catalog else str(self.place / self.target)

    def write_batch(self) -> None:
        """Write the next batch: new, changed, deleted and late records."""
        lines = []
        for number in range(RECORDS):
            n = self.batches * RECORDS + number
            key, at = self.rng.randrange(KEYS), self.rng.randrange(10_000) * 100_000 + n
            op = "d" if self.rng.random() < 0.2 else "u"
            self.events.setdefault(key, {})[at] = (n, op)
            lines.append(json.dumps({"id": key, "at": at, "n": n, "op": op}))
        (self.place / f"{self.batches}.json").write_text("\n".join(lines) + "\n")
        self.batches += 1

    def open_session(self) -> SparkSession:
        """Return the session for the batches, which starts Spark at once if they need it."""
        session = LocalSession(Engine.AUTO, lambda _: SparkSession.builder.getOrCreate())
        if self.catalog or "history" in self.words:
            session.require("rows change by key")
        return cast(SparkSession, session)

    def load(self, session: SparkSession, number: int) -> None:
        """Load a batch."""
        words = {"catalog": self.catalog, "key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'", **self.words}
        widen.ingest(str(self.place / f"{number}.json"), self.location, spark=session, **words)

    def model(self, batches: int) -> list[int]:
        """Return the numbers of the rows after some batches."""
        found = []
        for events in self.events.values():
            loaded = {at: event for at, event in events.items() if event[0] < batches * RECORDS}
            kept = loaded if "history" in self.words else {at: loaded[at] for at in [max(loaded)]} if loaded else {}
            found += [n for n, op in kept.values() if op == "u"]
        return sorted(found)

    def numbers(self) -> list[int]:
        """Return the numbers of the rows as a client without Spark reads them."""
        if self.catalog:
            table = to_table_name(self.target, self.catalog).find()
            return [] if table is None else sorted(table.scan().to_arrow()["n"].to_pylist())
        if not (self.place / self.target / "_delta_log").exists():
            return []
        return sorted(Table(self.location).to_arrow()["n"].to_pylist())


def fork(loads: Loads, first: int) -> tuple[int, int]:
    """Load batches in a new process from one on.

    Returns:
        Its id, and where a line is read when it begins, and after each batch one with the seconds since then.
    """
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        return child, reading
    try:
        session = loads.open_session()
        os.write(writing, b"begin\n")
        begun = time.monotonic()
        for number in range(first, loads.batches):
            loads.load(session, number)
            os.write(writing, f"{time.monotonic() - begun}\n".encode())
    except BaseException:  # a process that must not return to what its parent does
        (loads.place / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def kill_loads(loads: Loads, kills: int) -> dict[str, Any]:
    """Kill that many processes.

    Returns:
        What is wrong, in how many the batch of the kill was visible, and the seconds of the first one of a process.
    """
    done, killed, visible, wrong = 0, 0, 0, list[str]()
    seconds = None  # the time of the first batch of a process: not known in the first one, which is not killed
    while killed < kills and not wrong:
        while loads.batches < done + AHEAD:
            loads.write_batch()
        child, reading = fork(loads, done)
        with open(reading) as pipe:
            if pipe.readline() and seconds is not None:
                time.sleep(loads.rng.random() * seconds * MOST_LOADS)
                os.kill(child, signal.SIGKILL)
            loaded = [float(line) for line in pipe]
        end = end_of(child)
        done, seconds = done + len(loaded), loaded[0] if loaded else seconds
        if end == -signal.SIGKILL:
            killed += 1
        elif end:
            wrong.append(f"a process ended with {end}: {(loads.place / 'error').read_text()[-2000:]}")
        found = loads.numbers()
        if found != loads.model(done):
            visible += 1
            if found != loads.model(done + 1):
                wrong.append(f"after batch {done}: {set(found) ^ set(loads.model(done))}, {len(found)} rows")
    rows = len(loads.numbers())
    return {"kills": killed, "visible": visible, "batches": done, "rows": rows, "seconds": seconds, "wrong": wrong}


if __name__ == "__main__":
    folder, target, seed, kills = sys.argv[1:]
    place = Path(folder)
    place.mkdir(exist_ok=True)
    words: dict[str, dict[str, Any]] = {"history": {"history": True}, "partial": {"missing": "keep"}}
    loads = Loads(place, target, random.Random(int(seed)), words.get(target, {}))
    print(json.dumps(kill_loads(loads, int(kills))))
