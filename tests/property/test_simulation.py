"""Three writers on the real log code, over a store that delays, refuses, loses answers and crashes them.

``make simulate`` runs many more of them than every change does.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.simulation.bugs import BUGS, seeded
from support.simulation.run import Run, simulate

pytestmark = pytest.mark.sweep

RUNS = int(os.environ.get("WIDEN_SIMULATIONS", "80"))
FIRST = int(os.environ.get("WIDEN_SIMULATION_SEED", "0"))
MANY = 1_000
SEEDS_FOR_A_BUG = 400
SEEDS_TO_REPEAT = (7, 14, 25, 33)


def test_every_run_ends_as_if_its_commits_came_one_after_another() -> None:
    runs = list(simulated(range(FIRST, FIRST + RUNS)))
    assert [run.seed for run in runs] == list(range(FIRST, FIRST + RUNS))
    assert [(run.seed, run.violations) for run in runs if run.violations] == []
    assert sum(run.versions for run in runs) > 5 * RUNS
    assert sum(run.faults for run in runs) > 2 * RUNS


def simulated(seeds: range) -> Iterator[Run]:
    """Simulate these seeds; many of them on all cores."""
    if len(seeds) < MANY:
        yield from map(simulate, seeds)
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(simulate, seeds, chunksize=50)


def test_a_seed_decides_everything() -> None:
    runs = [simulate(seed) for seed in SEEDS_TO_REPEAT]
    assert [simulate(seed) for seed in SEEDS_TO_REPEAT] == runs
    assert runs[0].calls > 50
    assert len({run.trace for run in runs}) == len(runs)
    assert traces_with_another_hash_seed() == [run.trace for run in runs]


def traces_with_another_hash_seed() -> list[str]:
    """Simulate the seeds in a process whose sets have another order."""
    program = f"from {simulate.__module__} import simulate; [print(simulate(s).trace) for s in {SEEDS_TO_REPEAT}]"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_seen(bug: str) -> None:
    with seeded(bug):
        assert any(simulate(seed).violations for seed in range(SEEDS_FOR_A_BUG))
