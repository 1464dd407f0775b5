"""The calendar of Widen's jobs: files are read and written in Parquet's calendar, whatever the session's settings.

Source: Spark's settings of datetimeRebaseMode and int96RebaseMode
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType

from pyspark.sql import SparkSession

from widen.spark.pinned_settings import PinnedSettings

READ_OPTIONS: Mapping[str, str] = MappingProxyType({"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"})
"""The options of Spark's reader for data files. A footer that names another calendar takes precedence."""

_WRITE_SETTINGS = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
_proleptic = PinnedSettings(_WRITE_SETTINGS, _WRITE_SETTINGS)


def proleptic_writes(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark write files in Parquet's calendar while this is open."""
    return _proleptic.pin(spark)
