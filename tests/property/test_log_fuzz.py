"""Damaged and hostile logs: whatever a log holds, an error of ours says so, soon and without much memory.

``make fuzz`` reads 10,000 mutants, on all cores; WIDEN_FUZZ_FIRST and WIDEN_FUZZ_COUNT choose others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from support import log_mutants

pytestmark = pytest.mark.sweep

FIRST, COUNT = int(os.environ.get("WIDEN_FUZZ_FIRST", "0")), int(os.environ.get("WIDEN_FUZZ_COUNT", "150"))
MANY = 1_000


def test_no_mutant_of_a_log_does_more_than_raise_an_error_of_ours(tmp_path: Path) -> None:
    parts = os.cpu_count() or 1 if COUNT >= MANY else 1
    firsts = [FIRST + COUNT * part // parts for part in range(parts + 1)]
    counts = [end - first for first, end in pairwise(firsts)]
    processes = [started(tmp_path, first, count) for first, count in zip(firsts, counts, strict=False)]
    ends = [process.wait() for process in processes]
    for first, end in zip(firsts, ends, strict=False):
        assert end == 0, (tmp_path / f"{first}.log").read_text()[-2000:]  # the last line is the mutant that ended it
    results = [(tmp_path / f"{first}.jsonl").read_text().splitlines() for first in firsts[:-1]]
    assert [json.loads(line) for lines in results for line in lines] == [{"done": count} for count in counts]


def started(folder: Path, first: int, count: int) -> subprocess.Popen[bytes]:
    """Start a process that reads these mutants and writes what went wrong into a file: a pipe would fill up."""
    # As a module: run as a file, its folder would come first on the path, and support/calendar.py would hide calendar.
    command = [sys.executable, "-m", log_mutants.__name__, str(folder), str(first), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with (folder / f"{first}.jsonl").open("w") as output, (folder / f"{first}.log").open("w") as errors:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
