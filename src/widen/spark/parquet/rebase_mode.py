"""The calendar of our jobs: files are written and read in the one of Parquet, whatever the session says.

Source: Spark's settings of datetimeRebaseMode and int96RebaseMode
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import SparkSession

READ_OPTIONS: Mapping[str, str] = MappingProxyType({"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"})
"""The options of Spark's reader for the files of a table. Footers that say another calendar still count more."""

_WRITE_SETTINGS = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
_CORRECTED = "CORRECTED"


class _Pins:
    """Counts the writes of each session that need the settings, so that the last one to end restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}

    def begin(self, spark: SparkSession) -> None:
        """Set what a session says aside, if it says another calendar."""
        with self._lock:
            count, before = self._open.get(id(spark), (0, {}))
            if not count:
                said = {key: spark.conf.get(key, _CORRECTED) for key in _WRITE_SETTINGS}
                before = {key: value for key, value in said.items() if value and value.upper() != _CORRECTED}
                for key in before:
                    spark.conf.set(key, _CORRECTED)
            self._open[id(spark)] = (count + 1, before)

    def end(self, spark: SparkSession) -> None:
        """Restore what the session said, if no other write needs it."""
        with self._lock:
            count, before = self._open.pop(id(spark))
            if count > 1:
                self._open[id(spark)] = (count - 1, before)
                return
            for key, value in before.items():
                spark.conf.set(key, value)


_pins = _Pins()


@contextmanager
def proleptic_writes(spark: SparkSession) -> Iterator[None]:
    """Let Spark write files in the calendar of Parquet as long as this is open.

    Spark takes this from the session alone, and from no option of a writer. A session that says nothing else is not
    touched; what another one says is set aside meanwhile and restored at the end.

    Args:
        spark: The session, classic or Connect.
    """
    _pins.begin(spark)
    try:
        yield
    finally:
        _pins.end(spark)
