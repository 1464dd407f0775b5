"""The Spark session to work in: the caller's, the active one, or a new local one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

from widen.errors import SparkUnavailable, UnsupportedSpark
from widen.errors.foreign import first_line
from widen.log.store.local_files import absolute_path
from widen.spark.spark_errors import SPARK_ERRORS
from widen.spark.start_output import without_usual_lines

_SETTINGS = {
    "spark.app.name": "widen",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
}
"""The settings of a session that Widen starts itself."""


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


# Older versions give wrong results instead of errors, so check before any job runs.
ensure_supported(pyspark.__version__)


def find_session(given: SparkSession | None = None) -> SparkSession:
    """Return the given session, else the active one, else a new local one.

    The environment variables ``SPARK_REMOTE`` and ``MASTER`` override where a new session runs. Its executors use the
    Python interpreter of this process, so that they find the same packages.

    Raises:
        SparkUnavailable: Spark or Java does not start.
        UnsupportedSpark: the Spark server of the session is too old.
        StorageError: the current directory, in which Java would start, has been deleted.
    """
    existing = given or SparkSession.getActiveSession()
    try:
        session = existing or _start_session()
        version = session.version
    except SPARK_ERRORS as error:
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
    """Tell whether this process is the driver of Spark and sees the files that Spark lists, unlike a Connect client."""
    return getattr(spark, "sparkContext", None) is not None


def will_run_here(given: SparkSession | None = None) -> bool:
    """Tell whether the session that `find_session` returns sees the files of this process; nothing is started."""
    existing = given or SparkSession.getActiveSession()
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
    absolute_path(os.curdir)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:
        return builder.getOrCreate()
    _ensure_java_home()
    master = os.environ.get("MASTER", "local[*]")
    builder = builder.master(master)
    on_local_disk = stream_settings(pyspark.__version__) if master.startswith("local") else {}
    for key, value in {**_SETTINGS, **on_local_disk}.items():
        builder = builder.config(key, value)
    with without_usual_lines():
        return builder.getOrCreate()
