#!/bin/sh
# pyarrow 26.0.1. A number with a fraction given for an integer type is cut where a value is made, and refused where it is cast.
# Expected: one of both everywhere.
# Seen: pa.scalar(Decimal("5.5"), pa.int32()) and pa.scalar(5.5, pa.int32()) are 5, pa.array likewise; the cast of the scalar
# or array to int32 raises ArrowInvalid. A filter that makes its constant in the type of the column compares with 5, so
# that `qty < 5.5` loses the rows with 5, without an error.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
from decimal import Decimal
import pyarrow as pa

assert pa.__version__ == "26.0.1"
made = [pa.scalar(each, pa.int32()).as_py() for each in (Decimal("5.5"), 5.5)]
made += [pa.array([each], pa.int32())[0].as_py() for each in (Decimal("5.5"), 5.5)]
refused = 0
for value in (Decimal("5.5"), 5.5):
    try:
        pa.scalar(value).cast(pa.int32())
    except pa.ArrowInvalid:
        refused += 1
assert (made, refused) == ([5, 5, 5, 5], 2), (made, refused)
print("pyarrow 26.0.1: pa.scalar(Decimal('5.5'), pa.int32()) is", made[0], "and the cast is refused")
END
