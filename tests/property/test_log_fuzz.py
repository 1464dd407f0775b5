"""Damaged and hostile logs: whatever a log holds, an error of ours says so, soon and without much memory.

``make fuzz`` reads 10,000 mutants; WIDEN_FUZZ_FIRST and WIDEN_FUZZ_COUNT choose others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import log_mutants

pytestmark = pytest.mark.sweep

FIRST, COUNT = int(os.environ.get("WIDEN_FUZZ_FIRST", "0")), int(os.environ.get("WIDEN_FUZZ_COUNT", "300"))


def test_no_mutant_of_a_log_does_more_than_raise_an_error_of_ours(tmp_path: Path) -> None:
    # As a module: run as a file, its folder would come first on the path, and support/calendar.py would hide calendar.
    command = [sys.executable, "-m", log_mutants.__name__, str(tmp_path), str(FIRST), str(COUNT)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.returncode == 0, found.stderr[-2000:]  # the last line is the mutant that ended the process
    assert lines == [{"done": COUNT}]
