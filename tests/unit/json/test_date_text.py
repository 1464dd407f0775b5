"""Which strings are dates and timestamps, and what they mean."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pytest

from widen.json.document import DateText, LocalTimeText, TimestampText
from widen.json.kinds import parse_date, parse_instant, parse_local_time, parse_temporal, timestamp_facts

TEXTS = [
    ("2024-05-01", DateText),
    ("0001-01-01", DateText),
    ("9999-12-31", DateText),
    ("2024-02-29", DateText),
    ("2023-02-29", str),
    ("0000-01-01", str),
    ("2024-5-1", str),
    ("20240501", str),
    ("2024-W18", str),
    ("2024-W18-3", str),
    ("2024-05-01 ", str),
    ("２024-05-01", str),
    ("2024-05-01T10:00:00Z", TimestampText),
    ("2024-05-01T10:00:00.1Z", TimestampText),
    ("2024-05-01T10:00:00.123456Z", TimestampText),
    ("2024-05-01T10:00:00+00:00", TimestampText),
    ("2024-05-01T10:00:00.123+00:00", TimestampText),
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
def test_a_string_is_recognized_only_if_its_meaning_is_kept(text: str, kind: type) -> None:
    parsed = parse_temporal(text)
    assert type(parsed) is kind
    assert parsed == text


LOCAL_TEXTS = [
    ("2024-05-01", DateText),
    ("2024-05-01T10:00:00", LocalTimeText),
    ("2024-05-01T10:00:00.1", LocalTimeText),
    ("2024-05-01T10:00:00.123456", LocalTimeText),
    ("0001-01-01T00:00:00", LocalTimeText),
    ("2024-05-01T10:00:00Z", str),
    ("2024-05-01T10:00:00+00:00", str),
    ("2024-05-01T10:00:00+02:00", str),
    ("2024-05-01T10:00:00.1234567", str),
    ("2024-05-01T10:00:00.", str),
    ("2024-05-01T23:59:60", str),
    ("2024-02-30T10:00:00", str),
    ("0000-01-01T00:00:00", str),
    ("2024-05-01 10:00:00", str),
    ("2024-05-01T10:00", str),
]


@pytest.mark.parametrize(("text", "kind"), LOCAL_TEXTS)
def test_a_string_without_a_zone_is_a_local_time(text: str, kind: type) -> None:
    parsed = parse_temporal(text, has_instants=False, has_local_times=True)
    assert type(parsed) is kind
    assert parsed == text


def test_dates_and_timestamps_are_parsed() -> None:
    assert parse_date(DateText("2024-05-01")) == date(2024, 5, 1)
    assert parse_instant(TimestampText("2024-05-01T10:00:00.5Z")) == datetime(
        2024, 5, 1, 10, 0, 0, 500_000, timezone.utc
    )
    assert parse_instant(TimestampText("2024-05-01T10:00:00+00:00")) == datetime(2024, 5, 1, 10, tzinfo=timezone.utc)
    assert parse_local_time("2024-05-01T10:00:00.000010") == datetime(2024, 5, 1, 10, 0, 0, 10)


@pytest.mark.parametrize(
    ("text", "even"),
    [("2024-05-01T10:00:00Z", True), ("2024-05-01T10:00:00.123000Z", True), ("2024-05-01T10:00:00.1231Z", False)],
)
def test_the_facts_of_a_timestamp_say_whether_milliseconds_are_exact(text: str, even: bool) -> None:
    assert timestamp_facts(TimestampText(text)).epoch_ms_exact is even
