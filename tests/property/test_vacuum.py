"""After a vacuum, every version within the retention has all of its files; of other files, the young ones are left.

The model keeps the files of each version beside the log; it never asks the code under test.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.log_table import PROTOCOL, add, metadata, remove, write_commit
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.log.vacuum import plan_vacuum, run_vacuum

SEEDS = range(int(os.environ.get("WIDEN_VACUUM_SEEDS", "30")))
HOUR_S = 3600
RETENTION_HOURS = 168
MARGIN_HOURS = 0.2
"""More than the five minutes that a vacuum waits for a clock that differs."""


@dataclass
class Model:
    """A table that grows from 400 hours ago until now.

    Args:
        place: The folder of the table.
        rng: The source of every choice.
    """

    place: Path
    rng: random.Random
    hours: float = 400.0
    live: frozenset[str] = frozenset()
    versions: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    changes: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    ages: dict[str, float] = field(default_factory=dict)

    def file(self) -> str:
        folder = self.rng.choice(["", "day=1/", "day=a b/", "day=x%3Ay/", "_day=2/"])
        name = f"{folder}{len(self.ages)}{self.rng.choice(['', ' #', 'é', '%20'])}.parquet"
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        self.ages[name] = self.hours + self.rng.random() * 3
        moment = time.time() - self.ages[name] * HOUR_S
        os.utime(path, (moment, moment))
        return name

    def commit(self, *lines: dict[str, Any], extra: frozenset[str] = frozenset()) -> None:
        path = write_commit(self.place, len(self.versions), {"commitInfo": {}}, *lines)
        moment = time.time() - self.hours * HOUR_S
        os.utime(path, (moment, moment))
        self.versions.append((self.hours, self.live))
        self.changes.append((self.hours, extra))
        self.hours -= self.rng.choice([0.01, 3, 12, 40])

    def spelled(self, name: str) -> str:
        quoted = name.replace("%", "%25").replace(" ", "%20").replace("#", "%23")
        return self.rng.choice([quoted, quoted, f"file://{self.place}/{quoted}".replace(" ", "%20"), f"./{quoted}"])

    def removal(self, name: str) -> dict[str, Any]:
        """A remove whose time is up to four hours before its commit."""
        planned_ms = int((time.time() - (self.hours + self.rng.random() * 4) * HOUR_S) * 1000)
        return remove(self.spelled(name), deletionTimestamp=planned_ms)

    def step(self) -> None:
        gone = [name for name in sorted(self.live) if self.rng.random() < 0.3]
        kind = self.rng.choice(["append", "append", "rewrite", "changes", "orphan", "restore", "checkpoint"])
        if kind == "append":
            self._replace([], [self.file() for _ in range(self.rng.randint(1, 3))])
        elif kind == "rewrite":
            self._replace(gone, [self.file()])
        elif kind == "changes":
            change = self.file()
            cdc = {"path": self.spelled(change), "partitionValues": {}, "size": 1, "dataChange": False}
            self._replace(gone, [], {"cdc": cdc}, extra=frozenset({change}))
        elif kind == "orphan":
            self.file()
        elif kind == "restore" and self.versions:
            then = self.rng.choice(self.versions)[1] & set(self.ages)
            self._replace([name for name in gone if name not in then], sorted(then - self.live))
        elif kind == "checkpoint" and len(self.versions) > 1:
            write_checkpoint(open_snapshot(LogStore(str(self.place))))

    def _replace(
        self, gone: list[str], new: list[str], *lines: dict[str, Any], extra: frozenset[str] = frozenset()
    ) -> None:
        removes, adds = [self.removal(name) for name in gone], [add(self.spelled(name)) for name in new]
        self.live = self.live - set(gone) | set(new)
        self.commit(*removes, *adds, *lines, extra=extra)

    def needed(self, hours: float) -> set[str]:
        """The files of the versions that were current at some time in the last hours, and the changes since then."""
        ends = [began for began, _ in self.versions[1:]] + [0.0]
        rows = (files for (_, files), end in zip(self.versions, ends, strict=True) if end <= hours)
        return set().union(*rows, *(files for began, files in self.changes if began <= hours))


@pytest.mark.parametrize("seed", SEEDS)
def test_versions_within_the_retention_keep_their_files_and_other_old_files_go(seed: int, tmp_path: Path) -> None:
    model = Model(tmp_path / "a table", random.Random(seed))
    model.commit(PROTOCOL, metadata({"delta.checkpointInterval": "1000"}, partitions=("_day",)))
    while model.hours > 1 and len(model.versions) < 60:
        model.step()
    plan = plan_vacuum(LogStore(str(model.place)))
    assert isinstance(run_vacuum(plan), tuple)
    present = {str(path.relative_to(model.place)) for path in model.place.rglob("*.parquet")}
    present = {name for name in present if not name.startswith("_delta_log")}
    assert not model.needed(RETENTION_HOURS) & set(model.ages) - present, "a version within the retention lost a file"
    assert not {name for name, hours in model.ages.items() if hours < RETENTION_HOURS} - present, "a young file is gone"
    kept = model.needed(RETENTION_HOURS + MARGIN_HOURS + 4)  # a remove may be up to four hours older than its commit
    young = {name for name, hours in model.ages.items() if hours < RETENTION_HOURS + MARGIN_HOURS}
    assert not present - kept - young, "an old file that no version needs is left"
