"""Streams into the sink that ingests, whose processes are killed at random moments: each record is there once.

``WIDEN_TEST_FAULTS=1`` runs it. `tests/property/test_sink_kills.py` kills the sink at each of its steps; here Spark and
its checkpoint are killed, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from conftest import ROOT
from support import landing_stream
from support.fault import FULL
from support.sink_batches import rows_of, staged_files

pytestmark = [
    pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark 4.0 does not pass the rows of streams in Arrow"),
    pytest.mark.skipif(FULL not in os.environ, reason=f"each run starts Spark; {FULL}=1 asks for it"),
]

SINKS: dict[str, dict[str, str]] = {
    "append": {"ingest": "json", "verify": "true"},
    "history": {"ingest": "json", "key": "id", "sequenceBy": "at", "history": "true"},
}
VALUES = (1, 5_000_000_000, 2.5, "x", [1])
"""What the field `v` has in one file after the other, so that many batches change columns."""
FILES_EACH, LIMIT_SECONDS = 3, 300
"""How many files come between two kills, and how long a run may take at most."""


class Landing:
    """The files of a folder that a stream reads; each has a new record of two keys."""

    def __init__(self, place: Path) -> None:
        self.place, self.files = place / "landing", 0
        self.place.mkdir()

    def add(self, count: int) -> None:
        for number in range(self.files, self.files + count):
            records = [{"id": key, "at": number, "v": VALUES[number % len(VALUES)]} for key in (0, 1)]
            hidden = self.place / f".{number}"
            hidden.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            hidden.rename(self.place / f"{number:04}.json")
        self.files += count

    def faults(self, table: Path, *, is_done: bool) -> list[str]:
        """Return which records are there twice, or are missing."""
        found = (
            Counter((row["id"], row["at"]) for row in rows_of(table)) if (table / "_delta_log").exists() else Counter()
        )
        twice = [f"{record} is there {times} times" for record, times in found.items() if times > 1]
        written = {(key, number) for number in range(self.files) for key in (0, 1)}
        return twice + [f"{record} is missing" for record in sorted(written - {*found}) if is_done]


def run(place: Path, options: dict[str, str], seconds: float | None) -> tuple[int, float]:
    """Run the stream, or kill its processes so long after its start, and return the exit code and how long it ran."""
    command = [sys.executable, "-m", landing_stream.__name__, str(place), json.dumps(options)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    with (place / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        begin = time.monotonic()
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT_SECONDS if seconds is None else seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, time.monotonic() - begin


@pytest.mark.parametrize("sink", SINKS)
def test_each_record_is_there_once_after_kills_at_random_moments(
    tmp_path: Path, sink: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    landing, table, rng = Landing(tmp_path), tmp_path / "t", random.Random(sink)
    landing.add(FILES_EACH)
    code, seconds = run(tmp_path, SINKS[sink], None)
    assert code == 0, (tmp_path / "errors").read_text()[-5_000:]
    times = int(os.environ.get("WIDEN_STREAM_KILLS", 30))
    killed = 0
    for _ in range(times):
        landing.add(FILES_EACH)
        code, _ = run(tmp_path, SINKS[sink], rng.uniform(0, 1) * seconds)
        assert code in (0, -signal.SIGKILL), (tmp_path / "errors").read_text()[-5_000:]
        killed += code != 0
        assert landing.faults(table, is_done=False) == []
    landing.add(1)  # so that the last run commits, and deletes what earlier ones have staged
    code, _ = run(tmp_path, SINKS[sink], None)
    assert code == 0, (tmp_path / "errors").read_text()[-5_000:]
    assert landing.faults(table, is_done=True) == []
    assert staged_files(tmp_path) == []
    record_testsuite_property(f"streams with {sink}", f"{killed} of {times} runs killed while they worked")
