"""A sink that is killed at any step has each record once when Spark has run the batch again, and nothing staged.

``WIDEN_TEST_FAULTS=1`` kills it at every step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import killed_sink
from support.fault import FULL

pytestmark = pytest.mark.sweep


TARGETS = list(killed_sink.TARGETS) if FULL in os.environ else ["delta", "keyed iceberg"]


@pytest.mark.parametrize("target", TARGETS)
def test_each_record_is_there_once_whatever_step_a_kill_hits(tmp_path: Path, target: str) -> None:
    # Another process, since one with threads, such as those of Spark, must not be forked.
    command = [sys.executable, "-m", killed_sink.__name__, str(tmp_path), target, "1000" if FULL in os.environ else "4"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    report = json.loads(found.stdout.splitlines()[-1])
    print(target, report)
    assert report["wrong"] == []
    assert len(report["kills"]) >= 3
