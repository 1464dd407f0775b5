#!/bin/sh
# pyarrow 26.0.1. pyarrow.compute.binary_slice without `stop` fails for an array of more than one value.
# Expected: as documented, "If not given, slicing will stop at the end": each value without its first bytes.
# Seen: for one value it works; for ten values of 7 bytes from byte 5 on, ArrowInvalid: Negative buffer resize: -60. An
# explicit stop beyond the end of all values works, and so does binary_replace_slice with an empty replacement.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import pyarrow as pa
import pyarrow.compute as pc

assert pa.__version__ == "26.0.1"
one, ten = pa.array([b"file:/a"]), pa.array([b"file:/a"] * 10)
assert pc.binary_slice(one, 5).to_pylist() == [b"/a"]
assert pc.binary_slice(ten, 5, 1000).to_pylist() == [b"/a"] * 10
assert pc.binary_replace_slice(ten, 0, 5, b"").to_pylist() == [b"/a"] * 10
assert pc.utf8_slice_codeunits(ten.cast(pa.string()), 5).to_pylist() == ["/a"] * 10
try:
    pc.binary_slice(ten, 5)
except pa.ArrowInvalid as error:
    seen = str(error)
assert seen == "Negative buffer resize: -60", seen
print("pyarrow 26.0.1: binary_slice of ten values from byte 5 on raises", seen)
END
