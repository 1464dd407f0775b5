"""Commands that are killed or interrupted at a random moment lose nothing that was committed.

Many more writers are ended in `tests/property/test_log_kills.py`, which starts none anew.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import ENGINE, ROOT
from support.fault import FULL, read_log, table_complaints
from widen.table import create_table

SIGNALS = (signal.SIGKILL, signal.SIGINT)
ON_SPARK = ENGINE == "spark" or FULL in os.environ
"""Whether an ingestion starts Spark, which takes most of its time; its commit is the same without."""

KILLS = {"properties": (2, 20), "ingest": (2, 20)}
"""How many processes of a command are killed with one signal, in a usual run and in one of all faults."""

ENDS = {signal.SIGKILL: {-signal.SIGKILL, 0}, signal.SIGINT: {130, 0, 1, -signal.SIGINT}}
"""Exit codes; 0 where the process was quicker, 1 and -2 where Python itself was interrupted as it started or ended."""


def words_of(command: str, place: Path) -> list[str]:
    if command == "properties":
        return ["properties", str(place / "t"), "--set", "k=v"]
    return ["ingest", str(place / "s.jsonl"), "--into", str(place / "t")]


def started(command: str, place: Path) -> subprocess.Popen[str]:
    places = {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    places |= {"MASTER": "local[1]"} if ON_SPARK else {}
    return subprocess.Popen(
        [sys.executable, "-c", "from widen.cli.app import main; main()", *words_of(command, place)],
        env={**os.environ, **places},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_java(process: subprocess.Popen[str]) -> None:
    """End what the process has left: a Java that was starting when Python was interrupted waits forever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A table that gets a checkpoint with every version, and something to ingest."""
    place = tmp_path / "template"
    place.mkdir()
    table = create_table(str(place / "t"), "n int", properties={"delta.checkpointInterval": "1"})
    for number in range(3):
        table.set_properties({"number": str(number)})
    (place / "s.jsonl").write_text('{"n": 1}\n')
    return place


@pytest.mark.parametrize("command", KILLS)
def test_a_process_that_ends_at_any_moment_loses_nothing(
    tmp_path: Path, template: Path, command: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    rng, work = random.Random(command), tmp_path / "work"
    shutil.copytree(template, work)
    begin = time.monotonic()
    with started(command, work) as whole:
        _, said = whole.communicate()
    assert whole.returncode == 0, said
    seconds = time.monotonic() - begin
    visible = 0
    times = KILLS[command][FULL in os.environ]
    for number in SIGNALS * times:
        shutil.rmtree(work)
        shutil.copytree(template, work)
        before = read_log(work / "t")
        with started(command, work) as process:
            time.sleep(rng.uniform(0.3, 1.0) * seconds)
            process.send_signal(number)
            _, said = process.communicate()
        end_java(process)
        visible += len(read_log(work / "t")) > len(before)
        assert process.returncode in ENDS[number], said
        assert table_complaints(work / "t", before) == []
    record_testsuite_property(f"{command} ended by each signal", f"{times}, of which {visible} were visible in all")
