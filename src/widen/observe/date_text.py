"""Recognize and parse strings that are dates or timestamps.

A string is recognized only if a date or timestamp column keeps its full meaning: a day of the calendar, or an instant
in UTC with at most six digits after the second. Trailing zeros of the fraction and the spelling of UTC (``Z`` or
``+00:00``) do not matter. A string with another offset, or without one, has more or less information than an instant,
so it stays a string.

Source: docs/evolution-rules.md#d6; ISO 8601-1, extended format.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timezone

from widen.observe.json_document import DateText, TimestampText
from widen.observe.json_number import NO_FACTS, ValueFacts

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(?:Z|\+00:00)"
)
_DATE_CHARS, _MIN_INSTANT_CHARS, _MAX_INSTANT_CHARS = 10, 20, 32

_FINER_THAN_MILLISECONDS = NO_FACTS._replace(epoch_ms_exact=False)


def parse_temporal(text: str) -> str:
    """Return a string as a `DateText` or a `TimestampText` if it is one, otherwise unchanged.

    Example:
        >>> [type(parse_temporal(text)).__name__ for text in ("2024-05-01", "2024-05-01T10:00:00+02:00")]
        ['DateText', 'str']
    """
    try:
        if len(text) == _DATE_CHARS and _DATE.fullmatch(text):
            date.fromisoformat(text)
            return DateText(text)
        if _MIN_INSTANT_CHARS <= len(text) <= _MAX_INSTANT_CHARS and (match := _INSTANT.fullmatch(text)):
            datetime.fromisoformat(match[1])
            return TimestampText(text)
    except ValueError:
        pass
    return text


def parse_date(text: DateText) -> date:
    """Return the date of a `DateText`."""
    return date.fromisoformat(text)


def parse_instant(text: TimestampText) -> datetime:
    """Return the instant of a `TimestampText`, in UTC."""
    match = _INSTANT.fullmatch(text)
    assert match is not None
    micros = int((match[2] or "").ljust(6, "0"))
    return datetime.fromisoformat(match[1]).replace(microsecond=micros, tzinfo=timezone.utc)


def timestamp_facts(text: TimestampText) -> ValueFacts:
    """Return the facts of a timestamp: whether a whole number of milliseconds represents it exactly."""
    return _FINER_THAN_MILLISECONDS if parse_instant(text).microsecond % 1000 else NO_FACTS
