"""Recognize and parse strings that are dates or timestamps.

A string is recognized only if a date or timestamp column keeps its full meaning: a day of the calendar, or a time with
at most six digits after the second. A timestamp column takes instants in UTC. A column of timestamps without a time
zone takes local times, which name no zone. Trailing zeros of the fraction and the spelling of UTC (``Z`` or ``+00:00``)
do not matter. A string with another offset has more information than either, so it stays a string.

Source: docs/evolution-rules.md#d6; ISO 8601-1, extended format.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timezone

from widen.observe.json_document import DateText, LocalTimeText, TimestampText
from widen.observe.json_number import NO_FACTS, ValueFacts

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(Z|\+00:00)?"
)
_DATE_CHARS, _MIN_TIME_CHARS, _MAX_TIME_CHARS = 10, 19, 32

_FINER_THAN_MILLISECONDS = NO_FACTS._replace(epoch_ms_exact=False)


def parse_temporal(text: str, *, has_instants: bool = True, has_local_times: bool = False) -> str:
    """Return a string as a `DateText`, a `TimestampText` or a `LocalTimeText` if it is one, otherwise unchanged.

    Args:
        has_local_times: Whether timestamps without a time zone are recognized.

    Example:
        >>> [type(parse_temporal(text)).__name__ for text in ("2024-05-01", "2024-05-01T10:00:00+02:00")]
        ['DateText', 'str']
    """
    try:
        if len(text) == _DATE_CHARS and _DATE.fullmatch(text):
            date.fromisoformat(text)
            return DateText(text)
        match = _TIME.fullmatch(text) if _MIN_TIME_CHARS <= len(text) <= _MAX_TIME_CHARS else None
        if match is not None and (has_instants if match[3] else has_local_times):
            datetime.fromisoformat(match[1])
            return TimestampText(text) if match[3] else LocalTimeText(text)
    except ValueError:
        pass
    return text


def parse_date(text: DateText) -> date:
    """Return the date of a `DateText`."""
    return date.fromisoformat(text)


def parse_instant(text: TimestampText) -> datetime:
    """Return the instant of a `TimestampText`, in UTC."""
    return parse_local_time(text).replace(tzinfo=timezone.utc)


def parse_local_time(text: str) -> datetime:
    """Return the date and time of a `LocalTimeText` or a `TimestampText`, without a time zone."""
    match = _TIME.fullmatch(text)
    assert match is not None
    return datetime.fromisoformat(match[1]).replace(microsecond=int((match[2] or "").ljust(6, "0")))


def timestamp_facts(text: TimestampText) -> ValueFacts:
    """Return the facts of a timestamp: whether a whole number of milliseconds represents it exactly."""
    return _FINER_THAN_MILLISECONDS if parse_instant(text).microsecond % 1000 else NO_FACTS
