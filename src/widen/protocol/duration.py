"""Durations in properties: ``interval 30 days``, ``2 weeks``, ``INTERVAL 1 day 12 hours``.

Source: Spark's calendar intervals, without months and years, whose length is not fixed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from widen.errors import InvalidOption

LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
TRUNCATE_HISTORY_RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"

DEFAULTS: Mapping[str, str] = {
    LOG_RETENTION: "interval 30 days",
    DELETED_FILE_RETENTION: "interval 7 days",
    TRUNCATE_HISTORY_RETENTION: "interval 24 hours",
    "delta.checkpointRetentionDuration": "interval 2 days",
    "delta.sampleRetentionDuration": "interval 7 days",
    "delta.setTransactionRetentionDuration": "interval 36500 days",
}
"""The properties that are durations, with what holds where they are not set."""

_UNITS_US: Mapping[str, int] = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+([a-z]+?)s?(?:\s+|$)")
_WORD = re.compile(r"interval\s+")


def parse_duration_ms(text: str) -> int | None:
    """Return how many milliseconds an interval has, or None if it is none or has no fixed length.

    Example:
        >>> interval_ms("interval 1 day 12 hours")
        129600000
        >>> interval_ms("interval 1 month") is None
        True
    """
    lower = text.strip().lower()
    begun = _WORD.match(lower)
    at, total_us = begun.end() if begun else 0, 0
    while found := _PART.match(lower, at):
        sign, whole, fraction, unit = found.groups()
        if unit not in _UNITS_US or (fraction and unit != "second"):
            return None
        part_us = int(whole) * _UNITS_US[unit] + int((fraction or "").ljust(6, "0")[:6])
        total_us += -part_us if sign == "-" else part_us
        at = found.end()
        if at == len(lower):
            return None if total_us < 0 else total_us // 1000
    return None


def duration_text(properties: Mapping[str, str], key: str) -> str:
    """Return a duration as people write it, e.g. ``30 days``.

    Args:
        properties: Of the table.
        key: One of `DEFAULTS`.
    """
    return _WORD.sub("", properties.get(key, DEFAULTS[key]).strip().lower(), count=1)


def ensure_retention(properties: Mapping[str, str]) -> None:
    """Check that the log is kept at least as long as files that were deleted.

    Args:
        properties: Of the table, as they will be.

    Raises:
        InvalidOption: It is not, or one of the two is not an interval.

    Source: Delta Lake's DeltaConfigs
    """
    if duration_ms(properties, DELETED_FILE_RETENTION) > duration_ms(properties, LOG_RETENTION):
        kept, log = (duration_text(properties, key) for key in (DELETED_FILE_RETENTION, LOG_RETENTION))
        expected = f"Must not be longer than {LOG_RETENTION}, which is {log}."
        raise InvalidOption(option=DELETED_FILE_RETENTION, value=kept, expected=expected)


def duration_ms(properties: Mapping[str, str], key: str) -> int:
    """Return a duration in milliseconds.

    Args:
        properties: Of the table.
        key: One of `DEFAULTS`.

    Raises:
        InvalidOption: the table has something else there.
    """
    text = properties.get(key, DEFAULTS[key])
    found = parse_duration_ms(text)
    if found is None:
        expected = "It is an interval of weeks, days, hours and shorter units, e.g. 'interval 30 days'."
        raise InvalidOption(option=key, value=text, expected=expected)
    return found
