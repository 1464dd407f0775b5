"""Processes that change an Iceberg table on a Spark Connect server and are killed at each step; the server goes on.

Run as a program with SPARK_REMOTE set: ``killed_shop.py FOLDER OPERATION KILLS`` prints as JSON what is wrong. A step
is a call to the store or the catalog: a process is killed before it, after it, or when half of the files are deleted.
The program imports once and forks each process, which first repeats what the last one did not finish.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.iceberg_shop import KEEPING, NAME, OPERATIONS, PREPARED, IcebergInjector, Shop
from support.killed_flows import fork_and_listen
from widen.iceberg.catalog import to_table_name

BEFORE, AFTER, HALF = "before", "after", "half of"
WRITES = ("iceberg.create", "iceberg.commit_table", "put", "put_if_absent", "create")
"""The calls after which something is there that was not before."""


@dataclass
class Killer(IcebergInjector):
    """Kills its own process at a call."""

    moment: str = BEFORE

    def around(self, name: str, call: Callable[[], Any], half: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if len(self.calls) - 1 != self.number:
            return call()
        if self.moment == HALF and name != "delete":
            self.number += 1  # threads make calls in another order than before: the next deletion is the one
            return call()
        if self.moment == AFTER:
            call()
        elif self.moment == HALF:
            half()
        return os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class KilledShop:
    """A table, and what is known about the operation that may not be finished.

    Args:
        begun: What the table had before the operation; nothing if none has begun.
    """

    place: Path
    operation: str
    number: int = 0
    begun: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def fork(self, kill: tuple[int, str] | None) -> tuple[int, list[str]]:
        """Finish the operation in a new process and do it once more, until a call at which the process is killed.

        Returns:
            How the process ended, and the calls that it made if it was not killed.
        """
        end, told = fork_and_listen(self.place, partial(self._run, kill))
        calls: list[str] = []
        self.number += 1
        for facts in told:
            self.wrong += facts.get("wrong", [])
            self.begun, calls = facts.get("begun", self.begun), facts.get("calls", calls)
        return end, calls

    def _run(self, kill: tuple[int, str] | None, tell: Callable[[Mapping[str, Any]], None]) -> None:
        shop = Shop(SparkSession.builder.getOrCreate(), self.place)
        run, before = partial(OPERATIONS[self.operation], shop), self.begun
        if not self.number:
            shop.ingest_txn(0)
        if before:
            shop.number, shop.good, shop.seen = self.number, before["good"], {*shop.numbers()}
            run(self.number)
            tell({"wrong": [f"after the repeat: {each}" for each in self.faults(shop, is_finished=True)]})
        shop.number = number = self.number + 1
        if self.operation in PREPARED:
            PREPARED[self.operation](shop, number)
        kept = shop.kept() if self.operation in KEEPING else {}
        shop.seen = {*shop.numbers()}
        tell({"begun": {"good": shop.good, "kept": kept, "numbers": shop.numbers()}})
        killer = Killer(*(kill[:1] if kill else ()), moment=kill[1] if kill else BEFORE)
        with killer.active():
            run(number)
        tell({"calls": killer.calls})

    def faults(self, shop: Shop, *, is_finished: bool) -> list[str]:
        """Return what is wrong with the table, as PyIceberg reads it."""
        found, numbers = [], shop.numbers()
        allowed = [[*range(self.number + 1)], *([] if is_finished else [self.begun["numbers"]])]
        if numbers not in allowed:
            found.append(f"the table has {numbers[-5:]} of {len(numbers)} in number {self.number}")
        found += [f"{name} has lost rows" for name, rows in self.begun["kept"].items() if shop.numbers(name) != rows]
        if is_finished and self.operation == "vacuum" and [*self.place.rglob("orphan.parquet")]:
            found.append("the file of no snapshot is still there")
        return found + missing_files(self.place / "c.db")

    def kill(self, most: int) -> dict[str, Any]:
        """Kill a process at each step, or at some of them."""
        kills, end, calls = list[str](), *self.fork(None)
        if end:
            self.wrong.append((self.place / "error").read_text()[-2000:])
        for number, moment in chosen(calls, most):
            if self.wrong:
                break
            end, _ = self.fork((number, moment))
            if end == -signal.SIGKILL:
                kills.append(f"{moment} {calls[number]}")
                found = self.faults(Shop(None, self.place), is_finished=False)  # type: ignore[arg-type]
                self.wrong += [f"killed {kills[-1]} {number}: {each}" for each in found]
            elif end:
                self.wrong.append(f"a process ended with {end}: {(self.place / 'error').read_text()[-2000:]}")
        if not self.wrong and self.fork(None)[0]:
            self.wrong.append(f"the last process failed: {(self.place / 'error').read_text()[-2000:]}")
        return {"steps": len(calls), "kills": kills, "wrong": self.wrong}


def chosen(calls: list[str], most: int) -> list[tuple[int, str]]:
    """Return at which calls processes are killed, those around the commit first, in a random order."""
    spots = [(number, BEFORE) for number in range(len(calls))]
    spots += [(number, AFTER) for number, call in enumerate(calls) if call in WRITES or number + 1 == len(calls)]
    spots += [(number, HALF) for number, call in enumerate(calls) if call == "delete"]
    random.Random(7).shuffle(spots)
    commit = calls.index("iceberg.commit_table" if "iceberg.commit_table" in calls else "put_if_absent")
    spots.sort(key=lambda spot: (spot[0] != commit, spot[1] != HALF))
    return spots[:most]


def missing_files(catalog: Path) -> list[str]:
    """Return the files that a snapshot of the table names and that are not there."""
    table = to_table_name(NAME, catalog).load()
    named = set[str]()
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        if _is_there(snapshot.manifest_list):
            manifests = snapshot.manifests(table.io)
            named |= {manifest.manifest_path for manifest in manifests}
            entries = (m.fetch_manifest_entry(table.io) for m in manifests if _is_there(m.manifest_path))
            named |= {entry.data_file.file_path for each in entries for entry in each}
    return [f"{path} is gone" for path in sorted(named) if not _is_there(path)]


def _is_there(path: str) -> bool:
    return Path(path.removeprefix("file://")).exists()


if __name__ == "__main__":
    folder, operation, kills = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    print(json.dumps(KilledShop(Path(folder), operation).kill(int(kills))))
