"""How far the running jobs of a session are, from what Spark offers in public: a status tracker, or progress events.

A classic session has the status tracker of its context, which knows tasks. A session of Spark Connect reports tasks
and bytes to registered handlers. If neither works, nothing is reported and the work goes on.

Source: Spark's status tracker, and the progress handlers of Spark Connect
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession

from widen.spark.spark_errors import SPARK_ERRORS, ignore_failed_cleanup

POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The tasks of the running jobs: how many are done, and how many there are."""

    done_tasks: int
    tasks: int


@contextmanager
def watch_jobs(spark: SparkSession, report: Callable[[JobProgress], object]) -> Iterator[None]:
    """Report the progress of the jobs that run while this is open.

    Args:
        report: Called from another thread.
    """
    tracker = _status_tracker(spark)
    if tracker is None:
        with _handle_progress(spark, report):
            yield
        return
    stop = Event()
    thread = Thread(target=_poll, args=(tracker, report, stop), name="widen-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _status_tracker(spark: SparkSession) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except _UNAVAILABLE:
        return None


_UNAVAILABLE: tuple[type[Exception], ...] = (*SPARK_ERRORS, AttributeError, OSError)
"""What a session raises that lacks a function, or has ended."""


def _poll(tracker: Any, report: Callable[[JobProgress], object], stop: Event) -> None:
    while not stop.wait(POLL_SECONDS):
        try:
            counts = list(_task_counts(tracker))
        except _UNAVAILABLE:  # only the display ends
            return
        _report_sum(counts, report)


def _task_counts(tracker: Any) -> Iterator[tuple[int, int]]:
    """Yield the done tasks and all tasks of each stage of the running jobs that has started."""
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        for stage in (tracker.getStageInfo(number) for number in (info.stageIds if info else ())):
            if stage is not None:
                yield stage.numCompletedTasks, stage.numTasks


def _report_sum(counts: Iterable[tuple[int, int]], report: Callable[[JobProgress], object]) -> None:
    sums = [sum(numbers) for numbers in zip(*counts, strict=True)]
    if sums and sums[1]:
        report(JobProgress(sums[0], sums[1]))


@contextmanager
def _handle_progress(spark: Any, report: Callable[[JobProgress], object]) -> Iterator[None]:
    def handle(stages: Any, **_: Any) -> None:
        if stages:
            _report_sum([(stage.num_completed_tasks, stage.num_tasks) for stage in stages], report)

    try:
        spark.registerProgressHandler(handle)
    except _UNAVAILABLE:
        yield
        return
    try:
        yield
    finally:
        with ignore_failed_cleanup():
            spark.removeProgressHandler(handle)
