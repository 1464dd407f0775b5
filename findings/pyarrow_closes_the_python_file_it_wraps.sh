#!/bin/sh
# pyarrow 26.0.1. A Python file that is wrapped in pa.PythonFile is closed with the wrapper, a file that is handed to a writer is not.
# Expected: the caller's file stays open in both cases, or is closed in both: csv.write_csv, parquet.write_table and
# ipc.new_stream take the same Python file and leave it open.
# Seen: leaving `with pa.PythonFile(file, mode="w")` closes the file below. With sys.stdout.buffer that is the stdout of the
# process: the next print raises ValueError (I/O operation on closed file), after all rows have been written.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import io

import pyarrow as pa
from pyarrow import csv, parquet

assert pa.__version__ == "26.0.1"
rows = pa.table({"a": [1]})


def new_stream(rows, file):
    with pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)


handed = []
for write in (csv.write_csv, parquet.write_table, new_stream):
    file = io.BytesIO()
    write(rows, file)
    handed.append(file.closed)
wrapped = io.BytesIO()
with pa.PythonFile(wrapped, mode="w") as file:
    csv.write_csv(rows, file)
assert (handed, wrapped.closed) == ([False, False, False], True), (handed, wrapped.closed)
print("pyarrow 26.0.1: pa.PythonFile closes the file that it wraps, writers leave a file open")
END
