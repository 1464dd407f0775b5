"""Values in words: nothing that comes from data may steer a terminal."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal

import pytest

from widen.report.build_report import CommitRecord, to_interval
from widen.report.stopped_field import VersionTime
from widen.report.text_format import interval_text, printable, share_text, size_text, value_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Česká 12", "Česká 12"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\r\nb", "a\\r\\nb"),
        ("safe\u202egnp.exe", "safe\\u202egnp.exe"),
        ("\u200bhidden", "\\u200bhidden"),
        ("\x9b31m", "\\x9b31m"),
    ],
)
def test_what_does_not_print_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (False, "False"),
        (9007199254740993, "9007199254740993"),
        (Decimal("1E+3"), "1000"),
        ("", "''"),
        ("x" * 32, "x" * 27 + "…"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2024-01-02 03:04:05Z"),
    ],
)
def test_bounds(value: object, expected: str) -> None:
    assert value_text(value) == expected  # type: ignore[arg-type]


def test_shares_never_round_to_none_or_all() -> None:
    assert [share_text(share) for share in (None, 0.0, 0.0001, 0.5, 0.9999, 1.0)] == [
        "–",
        "0 %",
        "< 1 %",
        "50 %",
        "> 99 %",
        "100 %",
    ]


def test_sizes() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 999_949_999, 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "999.9 MB",
        "1.0 PB",
    ]


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"numDeletedRows": "1", "numCopiedRows": "7", "numAddedFiles": "1"}, ["deleted 1 row"]),
        ({"numUpdatedRows": "2000", "numAddedFiles": "1"}, ["updated 2,000 rows"]),
        (
            {
                "numTargetRowsInserted": "1",
                "numTargetRowsUpdated": "0",
                "numTargetRowsDeleted": "3",
                "numOutputRows": "5",
                "numFiles": "2",
                "numOutputBytes": "10",
            },
            ["inserted 1 row, deleted 3 rows", "wrote 5 records in 2 files, 10 B"],
        ),
        ({"numAddedFiles": "2", "numAddedBytes": "10"}, ["wrote 2 files, 10 B"]),
        ({"numOutputRows": "5", "numFiles": "2", "numOutputBytes": "10"}, ["wrote 5 records in 2 files, 10 B"]),
    ],
)
def test_a_commit_says_which_rows_it_changed(metrics: dict[str, str], expected: list[str]) -> None:
    record = CommitRecord(VersionTime(1, 0), {"operationMetrics": metrics}, None, None)
    assert interval_text(to_interval(record)) == expected
