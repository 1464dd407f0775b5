"""Settings of a session that jobs of Widen need, whatever the user has set.

Data files are read and written in Parquet's calendar, and a file that cannot be read is an error.

Source: Spark's settings of datetimeRebaseMode, int96RebaseMode, ignoreMissingFiles and ignoreCorruptFiles
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import SparkSession

from widen.spark.session import is_driver
from widen.spark.spark_errors import ignore_failed_cleanup


class PinnedSettings:
    """Settings that Spark reads only from the session, not from options of a job.

    Counts the jobs of each session that need them, so that the last one to end restores what the user has set.

    Args:
        values: The values that the jobs need.
        defaults: The values of Spark where they are not set.
    """

    def __init__(self, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        self._values = values
        self._defaults = defaults
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}

    @contextmanager
    def pin(self, spark: SparkSession) -> Iterator[None]:
        """Override the settings of a session while this is open."""
        self._begin(spark)
        try:
            yield
        finally:
            with ignore_failed_cleanup():
                self._end(spark)

    def _begin(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.get(id(spark), (0, {}))
            if not count:
                for key, needed in self._values.items():
                    value = spark.conf.get(key, self._defaults[key])
                    if value and value.upper() != needed.upper():
                        overridden[key] = value
                        spark.conf.set(key, needed)
            self._open[id(spark)] = (count + 1, overridden)

    def _end(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.pop(id(spark))
            if count > 1:
                self._open[id(spark)] = (count - 1, overridden)
                return
            for key, value in overridden.items():
                spark.conf.set(key, value)


_PLAN_CACHE = "spark.connect.session.planCache.enabled"
_uncached = PinnedSettings({_PLAN_CACHE: "false"}, {_PLAN_CACHE: "true"})


def observable_jobs(spark: SparkSession) -> AbstractContextManager[None]:
    """Make jobs return their observations while this is open.

    A server of Spark Connect 4.0 returns none for a frame whose columns a client has asked for: it runs the plan that
    it has analyzed for that and cached.
    """
    return nullcontext() if is_driver(spark) or not spark.version.startswith("4.0.") else _uncached.pin(spark)


SKIP_NO_FILE: Mapping[str, str] = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""The options of Spark's readers for which a missing or damaged file is an error, whatever the session says.

An ingestion that skipped a file would record it as loaded, and a change of a table would commit the loss of its rows.
"""

READ_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    **SKIP_NO_FILE,
}
"""The options of Spark's reader for data files. A footer that names another calendar takes precedence."""

_WRITE_SETTINGS = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
_proleptic = PinnedSettings(_WRITE_SETTINGS, _WRITE_SETTINGS)


def proleptic_writes(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark write files in Parquet's calendar while this is open."""
    return _proleptic.pin(spark)
