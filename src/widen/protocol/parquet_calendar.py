"""Calendars of Parquet files: which days and times their numbers are.

Parquet counts days in the proleptic Gregorian calendar. Spark can also write the hybrid calendar of Spark 2, which
differs before 1582-10-15 for days and before 1900 for times. Only keys of the footer tell which one a file has, and
only Spark knows these keys.

Source: the Parquet format; Spark's DataSourceUtils
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from types import MappingProxyType
from typing import Any

_VERSION, _LEGACY = "org.apache.spark.version", "org.apache.spark.legacyDateTime"

PROLEPTIC: Mapping[str, str] = MappingProxyType({_VERSION: "4.0.0"})
"""What a footer has to say so that Spark reads the calendar of Parquet, whatever the session says: a version of Spark
that writes it."""

_FIRST_PROLEPTIC = b"3.0.0"
"""The first version of Spark that writes it. Versions are compared as texts, as Spark does."""

_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=timezone.utc)
"""From here on both calendars are the same."""


def is_legacy(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Tell whether a file counts its days in the hybrid calendar of Spark 2.

    Args:
        metadata: The keys and values in its footer.

    Source: Spark's DataSourceUtils
    """
    found = metadata or {}
    return _LEGACY.encode() in found or found.get(_VERSION.encode(), _FIRST_PROLEPTIC) < _FIRST_PROLEPTIC


def is_ambiguous(value: Any) -> bool:
    """Tell whether a bound of a file in the hybrid calendar may be another day or time in that of Parquet.

    Args:
        value: As pyarrow gives it.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)) < _FIRST_TIME
    return isinstance(value, date) and value < _FIRST_DAY
