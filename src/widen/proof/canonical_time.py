"""Dates and timestamps in the forms of the proof: equal values have equal texts.

Source: docs/evolution-rules.md#d5, #d6
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any


def canonical_instant(text: str) -> str:
    """Return a timestamp with ``Z`` and without trailing zeros, so that equal timestamps have equal texts."""
    return canonical_time(text.removesuffix("Z").removesuffix("+00:00")) + "Z"


def canonical_time(text: str) -> str:
    """Return a timestamp without a time zone, without trailing zeros."""
    seconds, _, fraction = text.partition(".")
    return f"{seconds}.{fraction.rstrip('0')}".rstrip(".")


def is_same_timestamp(text: str, other: str) -> bool:
    """Tell whether one of two strings is the timestamp that the other one spells."""
    return _is_timestamp_of(text, other) or _is_timestamp_of(other, text)


def _is_timestamp_of(text: str, timestamp: str) -> bool:
    if timestamp.endswith("Z"):
        return timestamp in (canonical_instant(text), canonical_instant(f"{text}T00:00:00Z"))
    return timestamp[10:11] == "T" and timestamp in (canonical_time(text), f"{text}T00:00:00")


_UNIT_MICROS = (1, 10**3, 10**6, 86_400 * 10**6)


def is_epoch_count_of(text: str, number: Any) -> bool:
    """Tell whether a number counts the days, seconds or fractions of seconds from 1970 to a date or time."""
    micros = _to_micros(text)
    if micros is None or isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    return any(Decimal(number) * unit == micros for unit in _UNIT_MICROS) or Decimal(number) / 1000 == micros


def _to_micros(text: str) -> int | None:
    try:
        passed = datetime.fromisoformat(text.replace("Z", "").replace("+00:00", "")) - datetime(1970, 1, 1)
    except ValueError:
        return None
    return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
