"""The Spark session to work in: the caller's, or a local one.

Source: house rule: Spark at the edge.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from widen.errors import EngineMissing
from widen.errors.foreign import first_line
from widen.spark.failure import FAILURES

_SETTINGS = {
    "spark.app.name": "widen",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
}
"""What a session of our own is set to, unless its environment says otherwise."""


def find_session() -> SparkSession:
    """Return the active session, or make one: local, or as ``SPARK_REMOTE`` and ``MASTER`` in the environment say.

    The executors of a session of our own run the interpreter that runs this one, so that they find the same packages.

    Raises:
        EngineMissing: Spark or Java does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    try:
        return _started()
    except FAILURES as error:
        raise EngineMissing(reason=first_line(error), fix=_FIX) from error


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
