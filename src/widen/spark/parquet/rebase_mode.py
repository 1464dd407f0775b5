"""The calendar of Widen's jobs: files are read and written in Parquet's calendar, whatever the session's settings.

Source: Spark's settings of datetimeRebaseMode and int96RebaseMode
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import SparkSession

READ_OPTIONS: Mapping[str, str] = MappingProxyType({"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"})
"""The options of Spark's reader for data files. A footer that names another calendar takes precedence."""

_WRITE_SETTINGS = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
_CORRECTED = "CORRECTED"


class _Pins:
    """Counts the writes of each session that need the settings, so that the last one to end restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}

    def begin(self, spark: SparkSession) -> None:
        """Override the session's settings if they name another calendar."""
        with self._lock:
            count, overridden = self._open.get(id(spark), (0, {}))
            if not count:
                settings = {key: spark.conf.get(key, _CORRECTED) for key in _WRITE_SETTINGS}
                overridden = {key: value for key, value in settings.items() if value and value.upper() != _CORRECTED}
                for key in overridden:
                    spark.conf.set(key, _CORRECTED)
            self._open[id(spark)] = (count + 1, overridden)

    def end(self, spark: SparkSession) -> None:
        """Restore the session's settings if no other write needs the override."""
        with self._lock:
            count, overridden = self._open.pop(id(spark))
            if count > 1:
                self._open[id(spark)] = (count - 1, overridden)
                return
            for key, value in overridden.items():
                spark.conf.set(key, value)


_pins = _Pins()


@contextmanager
def proleptic_writes(spark: SparkSession) -> Iterator[None]:
    """Make Spark write files in Parquet's calendar while this is open.

    Spark reads this only from the session, not from options of a writer. So settings of the session for another
    calendar are overridden and restored at the end.
    """
    _pins.begin(spark)
    try:
        yield
    finally:
        _pins.end(spark)
