#!/bin/sh
# pyarrow 26.0.1. Times of nanoseconds become microseconds by rounding towards 1970, not towards the past.
# Expected: as Spark and Python's datetime cut: the microsecond that the time lies in, so that the order of times stays and
# 1 ns before 1970 is in the last microsecond of 1969.
# Seen: timestamp[ns].cast(timestamp[us], safe=False) and an integer division by 1000 give 0 for -1 and for 1, so that two
# microseconds become one around 1970; floor_temporal rounds down.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import pyarrow as pa
import pyarrow.compute as pc

assert pa.__version__ == "26.0.1"
counts = pa.array([-1001, -1, 1, 1001], pa.int64())
times = counts.cast(pa.timestamp("ns"))
cut = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
divided = pc.divide(counts, 1000).to_pylist()
floor = pc.floor_temporal(times, unit="microsecond").cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
assert (cut, divided, floor) == ([-1, 0, 0, 1], [-1, 0, 0, 1], [-2, -1, 0, 1]), (cut, divided, floor)
print("pyarrow 26.0.1: a cast from ns to us makes 0 of -1 ns; floor_temporal makes -1 us of it")
END
