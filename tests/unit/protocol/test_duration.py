"""Durations in properties, as Spark writes intervals."""

from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.protocol.table_properties import (
    LOG_RETENTION,
    TRUNCATE_HISTORY_RETENTION,
    duration_ms,
    duration_text,
    parse_duration_ms,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("interval 30 days", 2_592_000_000),
        ("30 days", 2_592_000_000),
        ("1 day", 86_400_000),
        ("INTERVAL 1 WEEK", 604_800_000),
        ("interval 1 day 12 hours", 129_600_000),
        ("interval 2 minutes 3 seconds 4 milliseconds", 123_004),
        ("interval 1500 microseconds", 1),
        ("interval 1.5 seconds", 1_500),
        ("interval 1 day -1 hour", 82_800_000),
        ("interval +2 hours", 7_200_000),
        ("  interval   1   hour ", 3_600_000),
        ("interval 0 seconds", 0),
        ("106751991 days", 9_223_372_022_400_000),
    ],
)
def test_an_interval_of_fixed_length(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    ["", "interval", "30", "days", "interval 1 month", "1 year", "interval -1 day", "1.5 days", "1 day ago", "1 age"]
    # Delta Lake reads no other digits and spaces than those of ASCII, and no more microseconds than 63 bits hold.
    + ["\u0663 days", "3\u00a0days", "106751992 days", "interval 9999999999999999999 days"],
)
def test_what_is_no_interval_or_has_no_fixed_length(text: str) -> None:
    assert parse_duration_ms(text) is None


def test_a_duration_that_is_not_set_has_its_default() -> None:
    assert duration_ms({}, LOG_RETENTION) == 2_592_000_000
    assert duration_text({}, LOG_RETENTION) == "30 days"
    assert duration_ms({}, TRUNCATE_HISTORY_RETENTION) == 86_400_000
    assert duration_text({}, TRUNCATE_HISTORY_RETENTION) == "24 hours"


def test_a_duration_that_is_set() -> None:
    properties = {LOG_RETENTION: "INTERVAL 2 days"}
    assert duration_ms(properties, LOG_RETENTION) == 172_800_000
    assert duration_text(properties, LOG_RETENTION) == "2 days"


def test_a_duration_that_cannot_be_read_is_told() -> None:
    with pytest.raises(InvalidOption, match=r"delta\.logRetentionDuration cannot be 'soon'"):
        duration_ms({LOG_RETENTION: "soon"}, LOG_RETENTION)
