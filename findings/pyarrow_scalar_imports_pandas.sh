#!/bin/sh
# pyarrow 26.0.1 with pandas 3.1.1. The first conversion of a Python value imports pandas, also without anything of pandas.
# Expected: pandas is imported where a DataFrame is converted; pa.scalar(1, pa.int64()) and pa.array([1]) have plain values.
# Seen: after `import pyarrow` pandas is not imported, after pa.scalar(1, pa.int64()) it is, and so it is after pa.array([1]).
# The import takes many times the time of pyarrow's own; every process of a pool pays it.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.1.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import subprocess
import sys

program = """
import sys
import pyarrow as pa
before = "pandas" in sys.modules
{}
print(before, "pandas" in sys.modules)
"""
seen = {}
for call in ("pass", "pa.scalar(1, pa.int64())", "pa.array([1])", "pa.nulls(1)"):
    done = subprocess.run([sys.executable, "-c", program.format(call)], capture_output=True, text=True, check=True)
    seen[call] = done.stdout.strip()
expected = dict.fromkeys(seen, "False True") | dict.fromkeys(("pass", "pa.nulls(1)"), "False False")
assert seen == expected, seen
print("pyarrow 26.0.1: pa.scalar(1, pa.int64()) imports pandas")
END
