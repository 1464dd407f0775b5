"""Writers that are killed or interrupted at any moment lose no version that they have acknowledged.

``make faults`` ends 200 of them with each signal. Whole commands are ended in `tests/engine/test_kill.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import killed_writers
from support.fault import FULL

pytestmark = pytest.mark.sweep

COUNT = 200 if FULL in os.environ else 10


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_writers_that_end_at_any_moment_lose_nothing(tmp_path: Path, number: signal.Signals) -> None:
    # Another process, since one with threads, such as those of Spark, must not be forked.
    command = [sys.executable, "-m", killed_writers.__name__, str(tmp_path), number.name, "0", str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    *wrong, last = map(json.loads, found.stdout.splitlines())
    assert wrong == []
    assert last["done"] == COUNT
    assert last["acknowledged"] >= COUNT
