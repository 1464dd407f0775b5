"""Each mutant of the code that decides about the rows of keys: the proof notices every one that changes a table.

With ``WIDEN_TEST_FAULTS=1`` hundreds of them are tried, without it a few. `unnoticed_mutants.txt` lists by reason the
ones that the proof need not notice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from support.fault import FULL

SUPPORT = Path(__file__).resolve().parents[1] / "support"
MODULES = ("changes.", "evolution.key_rules")
TABLES = ("keys", "keys history", "keys texts")
LISTED = {
    line
    for line in (SUPPORT / "unnoticed_mutants.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
}


def run_mutants(step: int, table: str) -> list[tuple[str, str, str, str]]:
    """Return for each mutant the load, its name, the verdict, and the difference."""
    paths = [str(SUPPORT.parent), os.environ.get("PYTHONPATH", "")]
    words = [sys.executable, "-m", "support.mutant_sweep", table, str(step), *MODULES]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    assert not done.returncode, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def unnoticed(found: Sequence[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    return [each for each in found if each[2] == "UNNOTICED" and each[1] not in LISTED]


def test_the_proof_notices_some_mutants() -> None:
    found = run_mutants(SAMPLE, "keys")
    assert not unnoticed(found)
    assert sum(verdict == "noticed" for _, _, verdict, _ in found) >= LEAST


SAMPLE, LEAST = 300, 2


@pytest.mark.sweep
@pytest.mark.skipif(FULL not in os.environ, reason=f"runs hundreds of loads with {FULL}=1")
def test_the_proof_notices_every_mutant_that_changes_a_table() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [each for some in pool.map(partial(run_mutants, 24), TABLES) for each in some]
    assert not unnoticed(found)
    assert sum(verdict == "noticed" for _, _, verdict, _ in found) >= 20
