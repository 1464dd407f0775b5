"""Texts that are dates and points in time: which of them are, and what they say.

Only a text that comes back is taken: one day of the calendar, or one instant of UTC with no more digits than a
microsecond has. An instant is the same however many zeros end its fraction, and whether UTC is spelled ``Z`` or
``+00:00``, as a number is. A text with another offset, or with none, says more or less than an instant, and stays a
text.

Source: docs/evolution-rules.md#d6; ISO 8601-1, extended format.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timezone

from widen.observe.json_document import DateText, TimestampText
from widen.observe.json_number import NO_FACTS, ValueFacts

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(?:Z|\+00:00)"
)
_DAY_CHARS, _LEAST_CHARS, _MOST_CHARS = 10, 20, 32

_UNEVEN = NO_FACTS._replace(epoch_ms_exact=False)


def parse_temporal(text: str) -> str:
    """Return a text as a `Day` or an `Instant` if it is one and comes back, else as it is.

    Example:
        >>> type(taken("2024-05-01")).__name__, type(taken("2024-05-01T10:00:00+02:00")).__name__
        ('Day', 'str')
    """
    try:
        if len(text) == _DAY_CHARS and _DAY.fullmatch(text):
            date.fromisoformat(text)
            return DateText(text)
        if _LEAST_CHARS <= len(text) <= _MOST_CHARS and (found := _INSTANT.fullmatch(text)):
            datetime.fromisoformat(found[1])
            return TimestampText(text)
    except ValueError:
        pass
    return text


def parse_date(text: DateText) -> date:
    """Return the date that a text says."""
    return date.fromisoformat(text)


def parse_instant(text: TimestampText) -> datetime:
    """Return the point in time that a text says, in UTC."""
    found = _INSTANT.fullmatch(text)
    assert found is not None
    micros = int((found[2] or "").ljust(6, "0"))
    return datetime.fromisoformat(found[1]).replace(microsecond=micros, tzinfo=timezone.utc)


def timestamp_facts(text: TimestampText) -> ValueFacts:
    """Return the facts of a point in time: whether it is a whole number of milliseconds."""
    return _UNEVEN if parse_instant(text).microsecond % 1000 else NO_FACTS
