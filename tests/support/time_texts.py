"""Texts of times in many spellings, and texts that are nearly such times."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

ZONES = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "UTC"),
    *("America/Sao_Paulo", "Pacific/Apia", "Europe/Dublin", "America/St_Johns", "Antarctica/Troll", "Asia/Tehran"),
)
"""Zones with clocks that go forward by an hour, by half of one and by a day, at several times of the year."""

_DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def time_text(chance: random.Random) -> str:
    """Return a text of a time in one of the spellings, at any moment of the calendar, or a broken one."""
    text = chance.choice([_extended, _extended, _basic, _words])(chance, _moment(chance))
    return text if chance.random() < 0.75 else _broken(chance, text)


def local_text(chance: random.Random) -> str:
    """Return a text of a time without an offset; most are of years with changes of the clock."""
    moment = datetime(1, 1, 1) + timedelta(minutes=chance.randrange(5_258_000_000))
    if chance.random() < 0.9:
        # Sundays in spring and autumn, and the ends of months, at night.
        moment = datetime(chance.randint(1890, 2060), chance.choice([3, 4, 9, 10, 11, 12]), chance.randint(1, 30))
        moment += timedelta(minutes=chance.randrange(24 * 60 if chance.random() < 0.2 else 4 * 60))
    sign = chance.choice("T ")
    return f"{moment:%m-%d}".join([f"{moment.year:04}-", f"{sign}{moment:%H:%M:%S}"])


def _moment(chance: random.Random) -> datetime:
    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
    near = timedelta(seconds=chance.randrange(100_000))
    moment = chance.choice([first + near, last - near, *[datetime(1950, 1, 1) + near * chance.randrange(50_000)] * 8])
    return moment.replace(microsecond=chance.choice([0, chance.randrange(10**6)]))


def _fraction(chance: random.Random, moment: datetime) -> str:
    if not moment.microsecond and chance.random() < 0.7:
        return ""
    digits = f"{moment.microsecond:06}"[: chance.randint(1, 6)] + chance.choice(["", "0", "00", "000", "7"])
    return chance.choice(".,") + digits


def _offset(chance: random.Random, names: list[str]) -> str:
    hours, minutes = (
        chance.choice([0, chance.randint(0, 14), chance.randint(0, 25)]),
        chance.choice([0, 30, 45, 59, 60]),
    )
    sign = chance.choice("+-")
    return chance.choice(
        [*names, f"{sign}{hours:02}", f"{sign}{hours:02}{minutes:02}", f"{sign}{hours:02}:{minutes:02}"]
    )


def _extended(chance: random.Random, moment: datetime) -> str:
    day = f"{moment.year:04}-{moment:%m-%d}"
    clock = f"{moment:%H:%M:%S}{_fraction(chance, moment)}" if chance.random() < 0.9 else f"{moment:%H:%M}"
    offset = _offset(chance, ["", "Z", "UTC", "GMT", "EST", "z"])
    return f"{day}{chance.choice('T ')}{clock}{chance.choice(['', ' '])}{offset}"


def _basic(chance: random.Random, moment: datetime) -> str:
    clock = f"{moment:%H%M%S}{_fraction(chance, moment)}" if chance.random() < 0.9 else f"{moment:%H%M}"
    return f"{moment.year:04}{moment:%m%d}T{clock}{_offset(chance, ['', 'Z', 'UTC'])}"


def _words(chance: random.Random, moment: datetime) -> str:
    name = _DAYS[moment.weekday()] if chance.random() < 0.9 else chance.choice(_DAYS)
    head = chance.choice(["", f"{name}, "])
    day = chance.choice([f"{moment.day}", f"{moment.day:02}"])
    clock = chance.choice([f"{moment:%H:%M:%S}", f"{moment:%H:%M}"])
    offset = _offset(chance, ["GMT", "UT", "UTC", "Z", "EST", ""])
    return f"{head}{day} {_MONTHS[moment.month - 1]} {moment.year:04} {clock} {offset}"


def _broken(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text))
    other = chance.choice("0123456789-:.,TZ +/aUé٣")
    return chance.choice(
        [text[:at] + text[at + 1 :], text[:at] + other + text[at:], text[:at] + other + text[at + 1 :]]
    )
