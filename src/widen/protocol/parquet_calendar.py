"""The calendar of dates and timestamps in Parquet files.

Parquet counts days in the proleptic Gregorian calendar. Spark can also write the hybrid calendar of Spark 2, which
differs before 1582-10-15 for dates and before 1900 for timestamps. Only keys in the footer tell which calendar a file
uses, and only Spark knows these keys.

Source: the Parquet format; Spark's DataSourceUtils
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from typing import Any

_VERSION, _LEGACY = "org.apache.spark.version", "org.apache.spark.legacyDateTime"
_LEGACY_INT96 = "org.apache.spark.legacyINT96"

PROLEPTIC: Mapping[str, str] = {_VERSION: "4.0.0"}
"""Footer entries that make Spark read the calendar of Parquet, whatever the settings of the session."""

_FIRST_PROLEPTIC = b"3.0.0"
"""The first version of Spark that writes the calendar of Parquet. Versions are compared as strings, as Spark does."""

_FIRST_PROLEPTIC_INT96 = b"3.1.0"
"""The first version of Spark that writes INT96 timestamps in the calendar of Parquet."""

_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=timezone.utc)
"""From here on, both calendars are the same."""


def is_legacy(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Tell whether a file uses the hybrid calendar of Spark 2.

    Source: Spark's DataSourceUtils
    """
    entries = metadata or {}
    return _LEGACY.encode() in entries or entries.get(_VERSION.encode(), _FIRST_PROLEPTIC) < _FIRST_PROLEPTIC


def is_legacy_int96(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Tell whether the INT96 timestamps of a file are in the hybrid calendar of Spark 2.

    Source: Spark's DataSourceUtils
    """
    entries = metadata or {}
    version = entries.get(_VERSION.encode(), _FIRST_PROLEPTIC_INT96)
    return _LEGACY_INT96.encode() in entries or version < _FIRST_PROLEPTIC_INT96


def is_ambiguous(value: Any) -> bool:
    """Tell whether a bound from a file in the hybrid calendar may be another date or timestamp in that of Parquet.

    Args:
        value: The bound as pyarrow returns it.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)) < _FIRST_TIME
    return isinstance(value, date) and value < _FIRST_DAY
