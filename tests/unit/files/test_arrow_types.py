"""Arrow values between Spark and Python workers."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa

from widen.files.arrow_types import to_utc

YEAR_1 = -62_135_596_800_000_000


def test_timestamps_are_in_utc_at_every_depth() -> None:
    """Python supports every timestamp in UTC, but may not know the name of the session's zone."""

    def record(time: pa.DataType) -> pa.DataType:
        inner = pa.struct([("x", time)])
        parts = [("a", time), ("b", pa.list_(time)), ("c", pa.map_(pa.string(), inner)), ("d", pa.timestamp("us"))]
        return pa.struct(parts)

    plain = pa.array([{"a": YEAR_1, "b": [0, None], "c": [("k", {"x": 0})], "d": 0}, None], record(pa.int64()))
    found = to_utc(plain.cast(record(pa.timestamp("us", tz="GMT-08:00")))).to_pylist()
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    first = datetime(1, 1, 1, tzinfo=timezone.utc)
    assert found == [{"a": first, "b": [epoch, None], "c": [("k", {"x": epoch})], "d": datetime(1970, 1, 1)}, None]
