"""Calls of the system that fail in the middle of a command: no row is lost or doubled, and every message is true.

``make faults`` tries 1,000 faults; needs Linux and a C compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import system_faults
from support.fault import FULL

pytestmark = pytest.mark.sweep

COUNT = 1_000 if FULL in os.environ else system_faults.LEAST
COMPILER = shutil.which("cc")


@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler")
def test_calls_that_fail_lose_and_double_nothing(tmp_path: Path) -> None:
    library = tmp_path / "faults.so"
    source = Path(system_faults.__file__).with_suffix(".c")
    subprocess.run([str(COMPILER), "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    command = [sys.executable, "-m", system_faults.__name__, str(library), str(tmp_path), "1", str(COUNT)]
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *wrong, last = map(json.loads, done.stdout.splitlines())
    assert wrong == []
    assert last["done"] == COUNT
