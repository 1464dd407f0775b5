"""Which texts are dates and instants, and what they say."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pytest

from widen.observe.document import Day, Instant
from widen.observe.moment import day, instant, instant_facts, taken

TEXTS = [
    ("2024-05-01", Day),
    ("0001-01-01", Day),
    ("9999-12-31", Day),
    ("2024-02-29", Day),
    ("2023-02-29", str),
    ("0000-01-01", str),
    ("2024-5-1", str),
    ("20240501", str),
    ("2024-W18", str),
    ("2024-W18-3", str),
    ("2024-05-01 ", str),
    ("２024-05-01", str),
    ("2024-05-01T10:00:00Z", Instant),
    ("2024-05-01T10:00:00.1Z", Instant),
    ("2024-05-01T10:00:00.123456Z", Instant),
    ("2024-05-01T10:00:00+00:00", Instant),
    ("2024-05-01T10:00:00.123+00:00", Instant),
    ("2024-05-01T10:00:00.1234567Z", str),
    ("2024-05-01T10:00:00.Z", str),
    ("2024-05-01T24:00:00Z", str),
    ("2024-05-01T23:59:60Z", str),
    ("2024-05-01T10:00:00", str),
    ("2024-05-01T10:00:00+02:00", str),
    ("2024-05-01T10:00:00-00:00", str),
    ("2024-05-01 10:00:00Z", str),
    ("2024-05-01t10:00:00z", str),
    ("2024-05-01T10:00Z", str),
    ("", str),
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_a_text_is_taken_only_if_it_comes_back(text: str, kind: type) -> None:
    found = taken(text)
    assert type(found) is kind
    assert found == text


def test_what_they_say() -> None:
    assert day(Day("2024-05-01")) == date(2024, 5, 1)
    assert instant(Instant("2024-05-01T10:00:00.5Z")) == datetime(2024, 5, 1, 10, 0, 0, 500_000, timezone.utc)
    assert instant(Instant("2024-05-01T10:00:00+00:00")) == datetime(2024, 5, 1, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "even"),
    [("2024-05-01T10:00:00Z", True), ("2024-05-01T10:00:00.123000Z", True), ("2024-05-01T10:00:00.1231Z", False)],
)
def test_an_instant_knows_whether_it_is_whole_milliseconds(text: str, even: bool) -> None:
    assert instant_facts(Instant(text)).epoch_ms_exact is even
