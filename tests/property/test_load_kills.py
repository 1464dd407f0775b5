"""Loads of new files that are killed at any moment, and two at a time, load each file once.

``make faults`` loads 120 times into tables of each format. `tests/unit/ingestion/test_restored_loads.py` restores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import killed_loads
from support.fault import FULL

pytestmark = pytest.mark.sweep

COUNT = 120 if FULL in os.environ else 6


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_killed_loads_load_each_file_once(tmp_path: Path, format: str) -> None:
    # Another process, since one with threads, such as those of Spark, must not be forked.
    command = [sys.executable, "-m", killed_loads.__name__, str(tmp_path), format, "0", str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert list(map(json.loads, found.stdout.splitlines())) == [{"done": COUNT}]
