"""The processor time of this process and of all processes below it, also of those that end meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import psutil

SAMPLE_SECONDS = 0.05


@contextmanager
def processor_time() -> Iterator[dict[tuple[int, float], float]]:
    """Yield the seconds that this process and all below it use, by process, complete when the context ends.

    Workers that Spark stops take their times with them, so all are asked twenty times a second. The time of asking does
    not count.
    """
    before, used = _own_times(), {}
    end, asking = Event(), [0.0]

    def sample() -> None:
        for key, seconds in _own_times().items():
            used[key] = seconds - before.get(key, 0.0)

    def repeat() -> None:
        while not end.wait(SAMPLE_SECONDS):
            sample()
        asking[0] = time.thread_time()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield used
    finally:
        end.set()
        thread.join()
        sample()
        for key in used:
            if key[0] == os.getpid():
                used[key] -= asking[0]


def _own_times() -> dict[tuple[int, float], float]:
    me = psutil.Process(os.getpid())
    # The kernel tells the times of other processes in hundredths of a second; a change of a table takes less here.
    times = {(me.pid, me.create_time()): time.process_time()}
    for process in me.children(recursive=True):
        try:
            used = process.cpu_times()
            times[process.pid, process.create_time()] = used.user + used.system
        except psutil.Error:  # it has ended
            continue
    return times
