"""Times in other spellings than ISO 8601 in UTC, and times without a zone that the user has named.

A text is a time here only if it says which instant it means, in one way: a day of the calendar, at most six digits
after the second beside zeros, and an offset or a known zone. A local time that a zone does not have, or has twice, is
not one. Neither is a text with another order of its parts, such as ``01/02/2024``.

Source: docs/guide/times.md#spellings; ISO 8601-1; RFC 3339; RFC 2822 section 3.3
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from widen.errors import InvalidOption
from widen.model.display import did_you_mean
from widen.model.value_classes import dataclass


@dataclass(frozen=True, slots=True)
class TimeSpelling:
    """Which texts are times, beside ISO 8601 in UTC.

    Args:
        is_any: Whether other spellings are read as well.
        zone: The IANA name of the zone of times that name none; empty if they have none.
    """

    is_any: bool = False
    zone: str = ""


ISO = TimeSpelling()


def parse_zone(place: str, value: object) -> str:
    """Parse the name of a time zone."""
    try:
        return ZoneInfo(value).key if isinstance(value, str) and value else _refuse_zone(place, value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return _refuse_zone(place, value)


def _refuse_zone(place: str, value: object) -> NoReturn:
    known = available_timezones()
    if not known:
        raise InvalidOption(option=place, value=value, expected=_NO_DATABASE)
    near = did_you_mean(value, known) if isinstance(value, str) else ""
    raise InvalidOption(option=place, value=value, expected=f"{near}{_ZONE}")


_ZONE = "Must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC."
_NO_DATABASE = f"{_ZONE} This machine has no such database: pip install tzdata."

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_FRACTION = r"(?:[.,]([0-9]{1,6})0{0,3})?"
_TIME = rf"([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}}){_FRACTION})?"
_SHORT_TIME = rf"([0-9]{{2}})([0-9]{{2}})(?:([0-9]{{2}}){_FRACTION})?"
_OFFSET = r"[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
_FORMS = (
    re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})[T ]{_TIME}(?: ?(Z|UTC|GMT|{_OFFSET}))?"),
    re.compile(rf"([0-9]{{4}})([0-9]{{2}})([0-9]{{2}})T{_SHORT_TIME}(Z|{_OFFSET})?"),
)
_RFC_2822 = re.compile(
    rf"(?:({'|'.join(_DAYS)}), )?([0-9]{{1,2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) "
    r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))? (Z|UT|UTC|GMT|[+-](?:[01][0-9]|2[0-3])[0-5][0-9])"
)
_MIN_CHARS, _MAX_CHARS = 13, 41


def read_time(text: str) -> tuple[datetime, timedelta | None] | None:
    """Return the local time of a text and its offset from UTC, or None for a text that is not a time.

    The offset is None if the text names none.

    Example:
        >>> read_time("20240102T030405+02"), read_time("01/02/2024 03:04:05")
        ((datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.timedelta(seconds=7200)), None)
    """
    if not _MIN_CHARS <= len(text) <= _MAX_CHARS:
        return None
    try:
        for form in _FORMS:
            if match := form.fullmatch(text):
                *numbers, fraction, offset = match.groups()
                return _read(numbers, fraction or "", offset)
        if match := _RFC_2822.fullmatch(text):
            day_name, day, month, year, *clock, offset = match.groups()
            found = _read([year, str(_MONTHS.index(month) + 1), day, *clock], "", offset)
            return None if day_name and _DAYS[found[0].weekday()] != day_name else found
    except ValueError:  # a day that the calendar lacks
        pass
    return None


def _read(numbers: list[str | None], fraction: str, offset: str | None) -> tuple[datetime, timedelta | None]:
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    local = datetime(year, month, day, hour, minute, second, int(fraction.ljust(6, "0")))
    return local, None if offset is None else _offset(offset)


def _offset(text: str) -> timedelta:
    if text[0] not in "+-":
        return timedelta()
    size = timedelta(hours=int(text[1:3]), minutes=int(text[3:].removeprefix(":") or 0))
    return -size if text[0] == "-" else size


def to_moment(local: datetime, offset: timedelta | None, zone: str) -> datetime | None:
    """Return the time in UTC, without a time zone; None if it is not one instant between the years 1 and 9999.

    Args:
        offset: The offset from UTC; None to take the one that the zone had then.
        zone: An IANA name. A local time that the zone does not have, or has twice, is not one instant.
    """
    try:
        if offset is None:
            first, second = (local.replace(tzinfo=_zone(zone), fold=fold).utcoffset() for fold in (0, 1))
            if first is None or first != second:
                return None
            offset = first
        return local - offset
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
