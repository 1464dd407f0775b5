"""The Spark session to work in: the caller's, the active one, or a new local one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from widen.errors import SparkUnavailable, UnsupportedSpark
from widen.errors.tables import first_line
from widen.log.local_files import absolute_path
from widen.spark.errors import ignore_failed_cleanup
from widen.spark.spark_types import SparkSession, spark_errors

_SETTINGS = {
    "spark.app.name": "widen",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
}
"""The settings of a session that Widen starts itself, unless the user's ``spark-defaults.conf`` has them."""


MINIMUM_VERSION = (4, 0)
"""The oldest version of Spark that Widen works with."""


def ensure_supported(version: str) -> None:
    """Check the version of Spark.

    Args:
        version: As Spark writes it, e.g. ``4.0.1`` or ``4.2.0-SNAPSHOT``.

    Raises:
        UnsupportedSpark: the version is too old.
    """
    if _major_minor(version) < MINIMUM_VERSION:
        raise UnsupportedSpark(needed=".".join(map(str, MINIMUM_VERSION)), found=version)


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def find_session(given: SparkSession | None = None) -> SparkSession:
    """Return the given session, else the active one, else a new local one.

    The environment variables ``SPARK_REMOTE`` and ``MASTER`` override where a new session runs. Its executors use the
    Python interpreter of this process, so that they find the same packages.

    Raises:
        SparkUnavailable: Spark or Java does not start.
        UnsupportedSpark: the Spark server of the session is too old.
        StorageError: the current directory, in which Java would start, has been deleted.
    """
    import pyspark

    # Older versions give wrong results instead of errors, so check before any job runs.
    ensure_supported(pyspark.__version__)
    existing = given or find_active()
    try:
        session = existing or _start_session()
        version = session.version
    except spark_errors() as error:
        raise SparkUnavailable(reason=first_line(error), fix=_FIX) from error
    ensure_supported(version)
    return session


_MANAGERS: Mapping[tuple[int, ...], str] = {
    (4, 0): "streaming",
    (4, 1): "streaming.checkpointing",
    (4, 2): "streaming.checkpointing",
    (4, 3): "streaming.checkpointing",
}
"""The package of Spark's classes that keep checkpoints, in the versions where we have seen it."""


def stream_settings(version: str) -> Mapping[str, str]:
    """Return the settings with which a stream keeps its progress on a local disk in half of the time.

    Spark's default starts 30 processes in each interval, to read links and to change permissions, where Hadoop has no
    native library. This manager starts six, and renames files in the same way.

    Args:
        version: The version of Spark. One that we do not know keeps its default, since the class may have moved.

    Source: Spark's configuration, spark.sql.streaming.checkpointFileManagerClass
    """
    package = _MANAGERS.get(_major_minor(version))
    if package is None:
        return {}
    manager = f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": manager}


def is_driver(spark: SparkSession) -> bool:
    """Return whether this process is the driver, which sees the files that Spark lists; a Connect client does not."""
    return getattr(spark, "is_driver", False) or getattr(spark, "sparkContext", None) is not None


def find_active() -> SparkSession | None:
    """Return the active session of this thread, if any; where Spark is not loaded, there is none."""
    if sys.modules.get("pyspark.sql") is None:
        return None
    return SparkSession.getActiveSession()


def will_run_here(given: SparkSession | None = None) -> bool:
    """Return whether the session that `find_session` returns sees the files of this process; nothing is started."""
    existing = given or find_active()
    return "SPARK_REMOTE" not in os.environ if existing is None else is_driver(existing)


_FIX = "Install Java 17 or later and set JAVA_HOME to it. Set WIDEN_DEBUG=1 to see the whole output of Java."


def activate_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread: without one, tables do not get the defaults of the session."""
    spark.createDataFrame([], "nothing int")


def _ensure_java_home() -> None:
    """Check the variable by which Spark finds Java; Spark itself only says that a port number is missing.

    Raises:
        SparkUnavailable: it names no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not any(os.path.isfile(os.path.join(home, "bin", name)) for name in ("java", "java.exe")):
        fix = (
            "Set JAVA_HOME to the folder of Java 17 or later, the one above bin/java, or unset it to use java of PATH."
        )
        raise SparkUnavailable(reason=f"JAVA_HOME is {home}, where there is no bin/java", fix=fix)


def _start_session() -> SparkSession:
    import pyspark

    absolute_path(os.curdir)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:
        return builder.getOrCreate()
    _ensure_java_home()
    master = os.environ.get("MASTER", "local[*]")
    builder = builder.master(master)
    on_local_disk = stream_settings(pyspark.__version__) if master.startswith("local") else {}
    chosen = _names_in_defaults_file()
    for key, value in {**_SETTINGS, **on_local_disk}.items():
        if key not in chosen:
            builder = builder.config(key, value)
    with without_usual_lines():
        return builder.getOrCreate()


def _names_in_defaults_file() -> set[str]:
    """Return the settings in the user's ``spark-defaults.conf``. Spark would prefer those of the builder to them."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as file:
            return {match[1] for line in file if (match := _SETTING.match(line))}
    except OSError:
        return set()


_SETTING = re.compile(r"\s*(spark\.[^\s=:]+)")
"""A line of a file of Java properties; comments begin with # or !."""


# What Java writes to stderr while Widen starts Spark: without the lines that every start has.
#
# The lines come before Spark reads any setting, so that none turns them off. Everything else goes on to stderr,
# during the start and afterwards, as long as Java runs.


_STDERR = 2

_USUAL = re.compile(
    rb"WARNING: Using incubator modules: .*"
    rb"|Using Spark's default log4j profile: .*"
    rb'|Setting (?:default|Spark) log level to "\w+"\.'
    rb"|To adjust logging level use .*"
    rb"|[\d/]+ [\d:]+ WARN NativeCodeLoader: .*"
)
"""The lines of every start of a Spark that has no logging configuration of its own."""

_END_SECONDS = 2.0
"""How long to wait for the last lines of a Java that did not start."""


@contextmanager
def without_usual_lines() -> Iterator[None]:
    """Leave out the usual lines of the Java process that the block starts.

    Java keeps the stderr that it gets here; this process has its own again after the block.
    """
    try:
        shown = os.dup(_STDERR)
    except OSError:  # a process without stderr
        yield
        return
    read_end, write_end = os.pipe()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    reader = Thread(target=_forward, args=(read_end, shown), name="widen-java-stderr", daemon=True)
    reader.start()
    has_started = False
    try:
        yield
        has_started = True
    finally:
        os.dup2(shown, _STDERR)
        if not has_started:
            reader.join(_END_SECONDS)


def _forward(read_end: int, shown: int) -> None:
    with open(read_end, "rb") as lines, open(shown, "wb", buffering=0) as stderr:
        for line in lines:
            if not _USUAL.fullmatch(line.rstrip(b"\r\n")):
                stderr.write(line)


# How far the running jobs of a session are, from what Spark offers in public: a status tracker, or progress events.
#
# A classic session has the status tracker of its context, which knows tasks. A session of Spark Connect reports
# tasks and bytes to registered handlers. If neither works, nothing is reported and the work goes on.
#
# Source: Spark's status tracker, and the progress handlers of Spark Connect


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
    except _unavailable():
        return None


def _unavailable() -> tuple[type[Exception], ...]:
    """Return what a session raises that lacks a function, or has ended."""
    return *spark_errors(), AttributeError, OSError


def _poll(tracker: Any, report: Callable[[JobProgress], object], stop: Event) -> None:
    while not stop.wait(POLL_SECONDS):
        try:
            counts = list(_task_counts(tracker))
        except _unavailable():  # only the display ends
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
    except _unavailable():
        yield
        return
    try:
        yield
    finally:
        with ignore_failed_cleanup():
            spark.removeProgressHandler(handle)
