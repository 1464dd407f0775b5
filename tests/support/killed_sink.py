"""Processes that stage and commit batches of a sink and are killed at each step; Spark then runs the batch again.

Run as a program: ``killed_sink.py FOLDER TARGET KILLS`` prints as JSON what is wrong. A step is a call to the store or
the catalog: a process is killed before it, after it, or when half of the files are deleted. The program imports once
and forks each process, which first repeats the batch that the last one did not finish, as Spark does.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.killed_flows import fork_and_listen
from support.killed_shop import BEFORE, Killer, chosen
from support.sink_batches import iceberg_rows, rows_of, run_batch, staged_files, texts
from widen.table import create_table

NAME = "shop.orders"
VALUES = ("1", "5000000000", "2.5", '"x"', "[1]")
"""What the field `v` has in one batch after the other, so that many batches change columns."""

TARGETS: Mapping[str, Mapping[str, Any]] = {
    "delta": {},
    "keyed": {"key": "id", "sequenceBy": "at"},
    "iceberg": {"catalog": "c.db", "partitionBy": "bucket(2, id)"},
    "keyed iceberg": {"catalog": "c.db", "key": "id", "sequenceBy": "at"},
    "rows": {"ingest": "rows"},
}


@dataclass
class KilledSink:
    """A table that a sink writes, and what it must have.

    Args:
        done: How many batches are finished.
    """

    place: Path
    target: str
    done: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def is_keyed(self) -> bool:
        return "keyed" in self.target

    def options(self) -> dict[str, Any]:
        options = dict(TARGETS[self.target])
        if "catalog" in options:
            return {**options, "path": NAME, "catalog": self.place / options["catalog"]}
        return {**options, "path": self.place / "t"}

    def run(self, number: int) -> None:
        """Run a batch: one new record in each of two tasks, and one that does not fit."""
        value = VALUES[number % len(VALUES)]
        records = [f'{{"id": {key}, "at": {number}, "v": {value}}}' for key in (2 * number, 2 * number + 1)]
        if self.target == "rows":
            schema = "struct<id: bigint, v: string>" if number % 2 else "struct<id: bigint, v: int>"
            column = ["x"] if number % 2 else pa.array([number], pa.int32())
            parts = [pa.RecordBatch.from_pydict({"id": [2 * number + at], "v": column}) for at in (0, 1)]
            return run_batch(self.options(), parts, number, schema=schema)
        return run_batch(
            self.options(), [texts(records[0]), texts(records[1], f'{{"v": "no id in {number}"}}')], number
        )

    def faults(self, *, is_finished: bool) -> list[str]:
        """Return what is wrong with the table."""
        is_there = (self.place / "t" / "_delta_log").exists() or (self.place / "c.db").exists()
        rows = (self.read() if is_there else []) or []
        ids = sorted(row["id"] for row in rows if row.get("id") is not None)
        allowed = [[*range(2 * self.done)]]
        if not is_finished:
            allowed.append([*range(2 * self.done + 2)])
        found = [] if ids in allowed else [f"the table has {ids} after {self.done} batches"]
        if is_finished and staged_files(self.place):
            found.append(f"there are still {staged_files(self.place)}")
        if is_finished and self.target == "delta":
            kept = Counter(row["text"] for row in rows_of(self.place / "t_quarantine"))
            if [*kept.values()] != [1] * self.done:
                found.append(f"the quarantine has {kept} after {self.done} batches")
        return found

    def read(self) -> list[dict[str, Any]]:
        return iceberg_rows(NAME, self.place / "c.db") if "iceberg" in self.target else rows_of(self.place / "t")

    def fork(self, kill: tuple[int, str] | None, *, repeats: bool) -> tuple[int, list[str]]:
        """Run batches in a new process, the last of them until a call at which the process is killed."""
        end, told = fork_and_listen(self.place, partial(self._work, kill, repeats=repeats))
        calls: list[str] = []
        for facts in told:
            self.wrong += facts.get("wrong", [])
            self.done, calls = facts.get("done", self.done), facts.get("calls", calls)
        return end, calls

    def _work(self, kill: tuple[int, str] | None, tell: Callable[[Mapping[str, Any]], None], *, repeats: bool) -> None:
        if repeats:
            self.run(self.done)
            self.done += 1
            tell({"done": self.done, "wrong": [f"after the repeat: {each}" for each in self.faults(is_finished=True)]})
        killer = Killer(*(kill[:1] if kill else ()), moment=kill[1] if kill else BEFORE)
        with killer.active():
            self.run(self.done)
        tell({"done": self.done + 1, "calls": killer.calls})

    def kill(self, most: int) -> dict[str, Any]:
        """Kill a process at each step, or at some of them."""
        if self.target in ("delta", "keyed"):
            create_table(str(self.place / "t"), "id bigint not null" if self.target == "delta" else "id bigint")
        kills, (end, calls), repeats = list[str](), self.fork(None, repeats=False), False
        if end:
            self.wrong.append((self.place / "error").read_text()[-2000:])
        for number, moment in chosen(calls, most) if not self.wrong else ():
            if self.wrong:
                break
            end, _ = self.fork((number, moment), repeats=repeats)
            repeats = end == -signal.SIGKILL
            if repeats:
                kills.append(f"{moment} {calls[number]}")
                self.wrong += [f"killed {kills[-1]} {number}: {each}" for each in self.faults(is_finished=False)]
            elif end:
                self.wrong.append(f"a process ended with {end}: {(self.place / 'error').read_text()[-2000:]}")
        if not self.wrong and self.fork(None, repeats=repeats)[0]:
            self.wrong.append(f"the last process failed: {(self.place / 'error').read_text()[-2000:]}")
        self.wrong += self.faults(is_finished=True) if not self.wrong else []
        return {"steps": len(calls), "kills": kills, "wrong": self.wrong}


if __name__ == "__main__":
    sink = KilledSink(Path(sys.argv[1]), sys.argv[2])
    print(json.dumps(sink.kill(int(sys.argv[3]))))
