"""Several measured cases in turn, in one session; prints one JSON line for each turn of each case.

    python bench/warm_case.py FIRST LATER SEEN TARGET TURNS

In the first turn Spark compiles and starts its workers, so that only the turns after it are warm.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import psutil
from case import CASES, session

ORDER = ["known", "quiet", "verified", "infer", "first"]


def main(first: str, later: str, seen: str, target: str, turns: str) -> None:
    """Run every case in every turn and print what each took."""
    spark = session()
    for turn in range(int(turns)):
        for case in ORDER:
            shutil.rmtree(target, ignore_errors=True)
            if case in ("quiet", "verified"):
                shutil.copytree(seen, target)
            with processor_time() as used:
                started = time.perf_counter()
                CASES[case](spark, first if case in ("infer", "first") else later, target)
                seconds = time.perf_counter() - started
            print(json.dumps({"case": case, "turn": turn, "seconds": seconds, "cpu_seconds": sum(used.values())}))
    spark.stop()


@contextmanager
def processor_time() -> Iterator[dict[tuple[int, float], float]]:
    """Yield the seconds that this process and all below it use, by process, complete when the context ends.

    Workers that Spark stops take their times with them, so all are asked twenty times a second.
    """
    before, used = _own_times(), {}
    end = Event()

    def sample() -> None:
        for key, seconds in _own_times().items():
            used[key] = seconds - before.get(key, 0.0)

    def repeat() -> None:
        while not end.wait(0.05):
            sample()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield used
    finally:
        end.set()
        thread.join()
        sample()


def _own_times() -> dict[tuple[int, float], float]:
    me = psutil.Process(os.getpid())
    times = {}
    for process in (me, *me.children(recursive=True)):
        try:
            used = process.cpu_times()
            times[process.pid, process.create_time()] = used.user + used.system
        except psutil.Error:  # it has ended
            continue
    return times


if __name__ == "__main__":
    main(*sys.argv[1:])
