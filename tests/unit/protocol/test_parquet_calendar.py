from __future__ import annotations

from datetime import date, datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.files.footers import footer_of
from widen.protocol.parquet_files import PROLEPTIC, is_ambiguous, is_legacy, is_legacy_int96


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, False),
        ({b"org.apache.spark.version": b"4.2.1"}, False),
        ({b"org.apache.spark.version": b"3.0.0"}, False),
        ({b"org.apache.spark.version": b"2.4.8"}, True),
        ({b"org.apache.spark.version": b"4.2.1", b"org.apache.spark.legacyDateTime": b""}, True),
        ({b"org.apache.spark.version": b"4.2.1", b"org.apache.spark.legacyINT96": b""}, False),
        ({key.encode(): value.encode() for key, value in PROLEPTIC.items()}, False),
    ],
)
def test_the_footer_says_the_calendar(metadata: dict[bytes, bytes] | None, expected: bool) -> None:
    assert is_legacy(metadata) is expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, False),
        ({b"org.apache.spark.version": b"4.2.1"}, False),
        ({b"org.apache.spark.version": b"3.1.0"}, False),
        ({b"org.apache.spark.version": b"3.0.3"}, True),
        ({b"org.apache.spark.version": b"4.2.1", b"org.apache.spark.legacyINT96": b""}, True),
    ],
)
def test_the_footer_says_the_calendar_of_int96_timestamps(metadata: dict[bytes, bytes] | None, expected: bool) -> None:
    assert is_legacy_int96(metadata) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(1582, 10, 14), True),
        (date(1582, 10, 15), False),
        (datetime(1899, 12, 31, 23, 59, tzinfo=timezone.utc), True),
        (datetime(1900, 1, 1, tzinfo=timezone.utc), False),
        (datetime(1899, 12, 31), True),
        (7, False),
        (None, False),
    ],
)
def test_the_calendars_differ_up_to_a_day(value: object, expected: bool) -> None:
    assert is_ambiguous(value) is expected


@pytest.mark.parametrize(("legacy", "has_bounds"), [(True, False), (False, True)])
def test_bounds_in_the_old_calendar_are_not_taken(legacy: bool, has_bounds: bool) -> None:
    rows = pa.table({"old": [date(1200, 1, 8), None], "new": [date(2000, 1, 1), date(2001, 1, 1)]})
    metadata = {"org.apache.spark.legacyDateTime": ""} if legacy else dict(PROLEPTIC)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema) as writer:
        writer.add_key_value_metadata(metadata)
        writer.write_table(rows)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    stats = footer_of(footer, frozenset({("old",), ("new",)})).stats
    assert ('"old":"1200-01-08"' in stats) is has_bounds
    assert '"nullCount":{"old":1,"new":0}' in stats
    assert '"minValues":{' in stats
    assert '"new":"2000-01-01"' in stats
