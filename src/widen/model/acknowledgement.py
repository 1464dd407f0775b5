"""Decisions of a report that a person has made: each is a property of its table, so that all users share it."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from widen.errors import CorruptMetadata
from widen.model.value_classes import dataclass

PREFIX = "widen.acknowledged."
"""The beginning of the property of a decision; the rest is its subject."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A decision that was acknowledged.

    Args:
        subject: What it is about, as the report names it.
        by: Who acknowledged it.
        until_ms: The time of the commit that the table had then: what happens later is not acknowledged.
    """

    subject: str
    by: str
    time_ms: int
    until_ms: int

    def covers(self, time_ms: int) -> bool:
        """Return whether what a commit of that time did is acknowledged."""
        return time_ms <= self.until_ms

    def to_value(self) -> dict[str, Any]:
        """Return the acknowledgement as a JSON object."""
        moment = datetime.fromtimestamp(self.time_ms / 1000, timezone.utc)
        return {
            "subject": self.subject,
            "by": self.by,
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    by: str
    time_ms: int
    until_ms: int


def acknowledgement_properties(subjects: Iterable[str], by: str | None, until_ms: int) -> dict[str, str]:
    """Return the table properties that record that decisions are acknowledged now.

    Args:
        by: Who acknowledges them; by default the user of this process.
    """
    stored = _Stored(by or _user(), time.time_ns() // 1_000_000, until_ms)
    return {f"{PREFIX}{subject}": msgspec.json.encode(stored).decode() for subject in subjects}


def read_acknowledgements(properties: Mapping[str, str], location: str) -> tuple[Acknowledgement, ...]:
    """Return the acknowledgements in the properties of a table."""
    return tuple(_read(key, text, location) for key, text in sorted(properties.items()) if key.startswith(PREFIX))


def _read(key: str, text: str, location: str) -> Acknowledgement:
    try:
        stored = msgspec.json.decode(text, type=_Stored)
    except msgspec.MsgspecError as error:
        fix = "Remove the property; the report then asks again."
        raise CorruptMetadata(name=key, location=location, reason=str(error), fix=fix) from error
    return Acknowledgement(key.removeprefix(PREFIX), stored.by, stored.time_ms, stored.until_ms)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        return "unknown"
