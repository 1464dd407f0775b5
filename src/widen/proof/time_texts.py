"""The proof's own reading of times in other spellings, and of times without a zone.

It reads a text from left to right, and counts days and seconds as integers; the writer matches patterns and uses the
calendar of Python.

Source: docs/guide/times.md#spellings
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo

_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_YEAR = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_SECONDS, _SECOND_MICROS = 86_400, 1_000_000
_LAST_DAY = 3_652_058
"""The number of 9999-12-31, where 0001-01-01 is 0."""


class _NotATimeError(Exception):
    """The text is something else."""


def read_time_text(text: str) -> tuple[int, int | None] | None:
    """Return the microseconds from 0001-01-01 to a local time, and its offset from UTC in seconds.

    The offset is None if the text names none. Returns None for other texts.
    """
    # Years have four digits; a day of the month has one or two, and a space after it.
    is_numeric = len(text) > 4 and text[0] in _DIGITS and " " not in text[:4]
    try:
        return _read_numeric(_Reader(text)) if is_numeric else _read_words(_Reader(text))
    except _NotATimeError:
        return None


def to_instant_form(micros: int, offset: int | None, zone: str) -> str | None:
    """Return the form of the instant of a local time, or None if it is not one instant between the years 1 and 9999."""
    instants = _instants_in(micros, zone) if offset is None else [micros - offset * _SECOND_MICROS]
    if len(instants) != 1 or not 0 <= instants[0] // (_DAY_SECONDS * _SECOND_MICROS) <= _LAST_DAY:
        return None
    return f"{to_local_form(instants[0])}Z"


def to_local_form(micros: int) -> str:
    """Return a time as ISO 8601 without a zone and without zeros at the end of its fraction."""
    seconds, fraction = divmod(micros, _SECOND_MICROS)
    day, second = divmod(seconds, _DAY_SECONDS)
    year, month, day_of_month = _date_of(day)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{year:04}-{month:02}-{day_of_month:02}T{clock}{digits}"


_DIGITS = "0123456789"


class _Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def digits(self, least: int, most: int = 0) -> str:
        end, limit = self.at, min(self.at + max(least, most), len(self.text))
        while end < limit and self.text[end] in _DIGITS:
            end += 1
        if end - self.at < least:
            raise _NotATimeError
        found, self.at = self.text[self.at : end], end
        return found

    def skip(self, *words: str) -> str:
        """Go past the first of some words that is next, and return it; empty if none is."""
        found = next((word for word in words if self.text.startswith(word, self.at)), "")
        self.at += len(found)
        return found

    def need(self, *words: str) -> str:
        found = self.skip(*words)
        if not found:
            raise _NotATimeError
        return found

    @property
    def is_done(self) -> bool:
        return self.at == len(self.text)

    def end(self) -> None:
        if not self.is_done:
            raise _NotATimeError


def _read_numeric(text: _Reader) -> tuple[int, int | None]:
    year = int(text.digits(4))
    is_spaced = bool(text.skip("-"))
    month = int(text.digits(2))
    if is_spaced:
        text.need("-")
    day = int(text.digits(2))
    text.need(*("T ") if is_spaced else "T")
    micros = _clock(text, ":" if is_spaced else "")
    offset = None
    if not text.is_done:
        names = ["Z"]
        if is_spaced:
            text.skip(" ")
            names += ["UTC", "GMT"]
        offset = _offset(text, names)
    text.end()
    return _day_number(year, month, day) * _DAY_SECONDS * _SECOND_MICROS + micros, offset


def _read_words(text: _Reader) -> tuple[int, int | None]:
    name = text.skip(*_WEEK)
    if name:
        text.need(", ")
    day = int(text.digits(1, 2))
    text.need(" ")
    month = _YEAR.index(text.need(*_YEAR)) + 1
    text.need(" ")
    year = int(text.digits(4))
    text.need(" ")
    micros = _clock(text, ":", has_fraction=False)
    text.need(" ")
    offset = _offset(text, ["Z", "UTC", "UT", "GMT"], is_short=False)
    text.end()
    number = _day_number(year, month, day)
    # 0001-01-01 was a Monday.
    if name and _WEEK[number % 7] != name:
        raise _NotATimeError
    return number * _DAY_SECONDS * _SECOND_MICROS + micros, offset


def _clock(text: _Reader, sign: str, *, has_fraction: bool = True) -> int:
    hour = int(text.digits(2))
    if sign:
        text.need(sign)
    minute, second, fraction = int(text.digits(2)), 0, ""
    is_longer = bool(text.skip(sign)) if sign else text.text[text.at : text.at + 1] in [*_DIGITS]
    if is_longer:
        second = int(text.digits(2))
        if has_fraction and text.skip(".", ","):
            fraction = text.digits(1, 9)
    if hour > 23 or minute > 59 or second > 59 or (len(fraction) > 6 and int(fraction[6:])):
        raise _NotATimeError
    micros = int(fraction[:6]) * 10 ** (6 - len(fraction[:6])) if fraction else 0
    return (hour * 3600 + minute * 60 + second) * _SECOND_MICROS + micros


def _offset(text: _Reader, names: list[str], *, is_short: bool = True) -> int:
    if text.skip(*names):
        return 0
    sign = -1 if text.need("+", "-") == "-" else 1
    hours, minutes = int(text.digits(2)), 0
    if not is_short or not text.is_done:
        if is_short:
            text.skip(":")
        minutes = int(text.digits(2))
    if hours > 23 or minutes > 59:
        raise _NotATimeError
    return sign * (hours * 3600 + minutes * 60)


# ---- days ------------------------------------------------------------------------------------------


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_before(year: int) -> int:
    """Return the number of days before a year, from 0001-01-01."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


def _lengths(year: int) -> list[int]:
    return [length + (month == 1 and _is_leap(year)) for month, length in enumerate(_LENGTHS)]


def _day_number(year: int, month: int, day: int) -> int:
    if not (year and 1 <= month <= 12 and 1 <= day <= _lengths(year)[month - 1]):
        raise _NotATimeError
    return _days_before(year) + sum(_lengths(year)[: month - 1]) + day - 1


def _date_of(number: int) -> tuple[int, int, int]:
    year = number // 366 + 1
    while _days_before(year + 1) <= number:
        year += 1
    rest, month, lengths = number - _days_before(year), 0, _lengths(year)
    while rest >= lengths[month]:
        rest -= lengths[month]
        month += 1
    return year, month + 1, rest + 1


# ---- zones -----------------------------------------------------------------------------------------


_FIRST = datetime(1, 1, 1, tzinfo=timezone.utc)
_REACH_SECONDS = 26 * 3600
"""No zone is further from UTC, so that the offset that holds at a local time also holds within this time of it."""


def _instants_in(micros: int, zone: str) -> list[int]:
    """Return the instants with a local time in a zone: mostly one, none in a gap, and two where clocks go back."""
    seconds, fraction = divmod(micros, _SECOND_MICROS)
    near = {_offset_at(seconds + shift, zone) for shift in (-_REACH_SECONDS, 0, _REACH_SECONDS)}
    found = {seconds - offset for offset in near if _offset_at(seconds - offset, zone) == offset}
    return [each * _SECOND_MICROS + fraction for each in sorted(found)]


def _offset_at(seconds: int, zone: str) -> int:
    """Return the offset of a zone at an instant, in seconds."""
    limited = min(max(seconds, _DAY_SECONDS), _LAST_DAY * _DAY_SECONDS)
    offset = (_FIRST + timedelta(seconds=limited)).astimezone(_zone(zone)).utcoffset()
    assert offset is not None
    return offset.days * _DAY_SECONDS + offset.seconds


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
