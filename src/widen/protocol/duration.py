"""Durations in table properties: ``interval 30 days``, ``2 weeks``, ``INTERVAL 1 day 12 hours``.

Source: Spark's calendar intervals; months and years are not supported, because their length varies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import whitespace

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
"""The properties that are durations, with their defaults."""

_UNITS_US: Mapping[str, int] = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+([a-z]+?)s?(?:\s+|$)", re.ASCII)
_WORD = re.compile(r"interval\s+", re.ASCII)
_LIMIT_US = 2**63
"""Delta Lake reads an interval as this many microseconds at most; a longer one would lock it out of the table."""


def parse_duration_ms(text: str) -> int | None:
    """Return an interval in milliseconds, or None if the text is not an interval of fixed length.

    Example:
        >>> parse_duration_ms("interval 1 day 12 hours")
        129600000
        >>> parse_duration_ms("interval 1 month") is None
        True
    """
    lower = text.strip(whitespace).lower()
    prefix = _WORD.match(lower)
    position, total_us = prefix.end() if prefix else 0, 0
    while part := _PART.match(lower, position):
        sign, whole, fraction, unit = part.groups()
        if unit not in _UNITS_US or (fraction and unit != "second"):
            return None
        part_us = int(whole) * _UNITS_US[unit] + int((fraction or "").ljust(6, "0")[:6])
        total_us += -part_us if sign == "-" else part_us
        position = part.end()
        if position == len(lower):
            return total_us // 1000 if 0 <= total_us < _LIMIT_US else None
    return None


def duration_text(properties: Mapping[str, str], key: str) -> str:
    """Return a duration for messages, e.g. ``30 days``.

    Args:
        key: A key of `DEFAULTS`.
    """
    return _WORD.sub("", properties.get(key, DEFAULTS[key]).strip().lower(), count=1)


def ensure_retention(properties: Mapping[str, str]) -> None:
    """Check that the log is kept at least as long as deleted files.

    Raises:
        InvalidOption: the log is kept for a shorter time, or a retention is not an interval.

    Source: Delta Lake's DeltaConfigs
    """
    if duration_ms(properties, DELETED_FILE_RETENTION) > duration_ms(properties, LOG_RETENTION):
        files, log = (duration_text(properties, key) for key in (DELETED_FILE_RETENTION, LOG_RETENTION))
        expected = f"Must not be longer than {LOG_RETENTION}, which is {log}."
        raise InvalidOption(option=DELETED_FILE_RETENTION, value=files, expected=expected)


def duration_ms(properties: Mapping[str, str], key: str) -> int:
    """Return a duration in milliseconds.

    Args:
        key: A key of `DEFAULTS`.

    Raises:
        InvalidOption: the value is not an interval of fixed length.
    """
    text = properties.get(key, DEFAULTS[key])
    duration = parse_duration_ms(text)
    if duration is None:
        expected = "Must be an interval of weeks, days, hours or shorter units, e.g. 'interval 30 days'."
        raise InvalidOption(option=key, value=text, expected=expected)
    return duration
