"""The Spark session to work in: the caller's, or a local one.

Source: house rule: Spark at the edge.
"""

from __future__ import annotations

import os
import re
import sys

import pyspark
from pyspark.sql import SparkSession

from widen.errors import EngineMissing, UnsupportedSpark
from widen.errors.foreign import first_line
from widen.spark.spark_errors import SPARK_ERRORS

_SETTINGS = {
    "spark.app.name": "widen",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
}
"""What a session of our own is set to, unless its environment says otherwise."""


NEEDED = (4, 0)
"""The oldest version of Spark that Widen works with."""


def ensure_supported(version: str) -> None:
    """Check the version of Spark.

    Args:
        version: As Spark writes it, e.g. ``4.0.1`` or ``4.2.0-SNAPSHOT``.

    Raises:
        UnsupportedSpark: It is too old.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < NEEDED:
        raise UnsupportedSpark(needed=".".join(map(str, NEEDED)), found=version)


ensure_supported(pyspark.__version__)  # before a job could run that gives wrong results


def find_session(given: SparkSession | None = None) -> SparkSession:
    """Return the given session, else the active one, else a new one.

    A new session is local, unless ``SPARK_REMOTE`` or ``MASTER`` in the environment say otherwise. Its executors run
    the interpreter that runs this process, so that they find the same packages.

    Args:
        given: The session of the caller, if there is one.

    Raises:
        EngineMissing: Spark or Java does not start.
        UnsupportedSpark: The server that the session is connected to is too old.
    """
    found = given or SparkSession.getActiveSession()
    try:
        session = found or _started()
        version = session.version
    except SPARK_ERRORS as error:
        raise EngineMissing(reason=first_line(error), fix=_FIX) from error
    ensure_supported(version)
    return session


_FIX = "Install Java 17 or later and let JAVA_HOME name it; WIDEN_DEBUG=1 shows all that Java says."


def _started() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:
        return builder.getOrCreate()
    builder = builder.master(os.environ.get("MASTER", "local[*]"))
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


FAST_DROP = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"


def has_fast_drop(spark: SparkSession | None) -> bool:
    """Tell whether features may be dropped while older versions that use them stay; no session is started for it.

    Args:
        spark: The session, by default the active one.

    Source: Delta Spark's setting of that name, true by default
    """
    active = spark or SparkSession.getActiveSession()
    return active is None or str(active.conf.get(FAST_DROP, "true")).lower() != "false"
