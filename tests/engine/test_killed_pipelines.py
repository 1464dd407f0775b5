"""``spark-pipelines run`` of the project in examples/pipelines, killed at random moments: each record is there once.

``WIDEN_TEST_FAULTS=1`` runs it: each run starts a Spark of its own. `tests/property/test_sink_kills.py` kills the sink
at each of its steps, and `test_killed_streams.py` a stream of one process.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer

import pytest

from support.fault import FULL
from support.pipelines_project import HAS_PIPELINES, IS_RUNNING, copy_example, start_pipelines
from support.sink_batches import rows_of, staged_files
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore

pytestmark = [
    pytest.mark.skipif(not HAS_PIPELINES, reason="Spark Declarative Pipelines came with Spark 4.1"),
    pytest.mark.skipif(FULL not in os.environ, reason=f"each run starts Spark; {FULL}=1 asks for it"),
]

KILLS = int(os.environ.get("WIDEN_PIPELINE_KILLS", 60))
LIMIT_SECONDS = 900
VALUES = (1, 5_000_000_000, 2.5, "x", [1])
"""What the field `v` has in one file after the other, so that many batches change columns."""
KEYS = (0, 1, 2)


class Landing:
    """The files that the pipeline reads; each has a new record of every key."""

    def __init__(self, place: Path) -> None:
        self.place, self.files = place, 0

    def add(self) -> None:
        number = self.files
        records = [{"id": key, "at": number, "v": VALUES[number % len(VALUES)]} for key in KEYS]
        hidden = self.place / "landing" / f".{number}"
        hidden.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        hidden.rename(self.place / "landing" / f"{number:04}.json")
        self.files += 1

    def faults(self, *, is_done: bool) -> list[str]:
        """Return which records are twice in a table, or are missing there."""
        written, wrong = {(key, number) for number in range(self.files) for key in KEYS}, []
        for name in ("bronze", "silver"):
            rows = table_rows(self.place / name)
            found = Counter((row["id"], row["at"]) for row in rows)
            wrong += [f"{name}: {record} is there {times} times" for record, times in found.items() if times > 1]
            wrong += [f"{name}: {record} is missing" for record in sorted(written - {*found}) if is_done]
            wrong += [f"{name}: {record} was never written" for record in sorted({*found} - written)]
        return wrong + [
            f"silver: key {key} has {found}" for key, found in self.histories().items() if not is_history(found)
        ]

    def histories(self) -> dict[int, list[tuple[int, int, int | None, bool]]]:
        """Return the versions of each key in silver: their order, from when to when they are valid, and whether now."""
        found: dict[int, list[tuple[int, int, int | None, bool]]] = {}
        for row in table_rows(self.place / "silver"):
            version = (row["at"], row["_valid_from"], row["_valid_to"], row["_is_current"])
            found.setdefault(row["id"], []).append(version)
        return {key: sorted(versions) for key, versions in found.items()}


def is_history(versions: list[tuple[int, int, int | None, bool]]) -> bool:
    """Return whether each version is valid from its own order to that of the next one, and the last one is current."""
    orders = [version[0] for version in versions]
    ends = [*orders[1:], None]
    return versions == [(at, at, end, end is None) for at, end in zip(orders, ends, strict=True)]


def table_rows(table: Path) -> list[dict[str, object]]:
    return rows_of(table) if newest(table) >= 0 else []


def newest(table: Path) -> int:
    return list_log(LogStore(str(table))).newest if (table / "_delta_log").exists() else -1


def run(project: Path, seconds: float | None) -> tuple[int, float, str]:
    """Run the pipeline, or kill its processes so long after its first flow runs.

    Returns:
        The exit code, how long it went on after the first flow ran, and what it printed.
    """
    with start_pipelines(project, "run") as running:
        assert running.stdout is not None
        limit = Timer(LIMIT_SECONDS, kill, [running])
        limit.start()
        lines: list[str] = []
        begin = None
        for line in running.stdout:
            lines.append(line)
            if begin is None and line.endswith(IS_RUNNING):
                begin = time.monotonic()
                if seconds is not None:
                    time.sleep(seconds)
                    kill(running)
        limit.cancel()
        running.wait()
        kill(running)  # what has outlived it
    return running.returncode, time.monotonic() - (begin or 0), "".join(lines)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the group of a process. Spark's Python daemon has one of its own, and ends when its Java is gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def moment(place: Path, before: dict[str, int]) -> str:
    """Return what a kill has left: which tables have the batch, and whether rows are staged."""
    done = [name for name, version in before.items() if newest(place / name) > version]
    return f"{' and '.join(done) or 'nothing'} committed{', rows staged' if staged_files(place) else ''}"


def test_each_record_is_there_once_after_kills_at_random_moments(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    project, landing, rng = copy_example(tmp_path), Landing(tmp_path), random.Random(44)
    code, seconds = 1, 0.0
    for _ in range(2):  # the second one does not create the tables, as those that are killed
        landing.add()
        code, seconds, printed = run(project, None)
        assert code == 0, printed[-5_000:]
    moments: Counter[str] = Counter()
    for _ in range(KILLS):
        landing.add()
        before = {name: newest(tmp_path / name) for name in ("bronze", "silver")}
        code, _, printed = run(project, rng.uniform(0, 1) * seconds)
        assert code in (0, -signal.SIGKILL), printed[-5_000:]
        moments["not killed" if code == 0 else moment(tmp_path, before)] += 1
        assert landing.faults(is_done=False) == [], moments
    landing.add()  # so that the last run commits, and deletes what earlier ones have staged
    code, _, printed = run(project, None)
    assert code == 0, printed[-5_000:]
    assert landing.faults(is_done=True) == []
    assert staged_files(tmp_path) == []
    print(dict(moments))
    for name, count in moments.items():
        record_testsuite_property(f"killed pipelines: {name}", count)
