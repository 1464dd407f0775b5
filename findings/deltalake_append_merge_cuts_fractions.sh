#!/bin/sh
# deltalake 1.6.6. An append with schema_mode="merge" of a double to a column of long cuts the fraction off.
# Expected: an error, as for a text, or a column that becomes double: "merge" is for schemas that differ.
# Seen: 0.5 is written as 0 and 2.75 as 2, without an error or a warning; without schema_mode, too.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==22.0.0
"$place/venv/bin/python" - "$place/t" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os
import sys
import warnings

import deltalake
import pyarrow as pa

warnings.simplefilter("error")
assert deltalake.__version__ == "1.6.6"
deltalake.write_deltalake(sys.argv[1], pa.table({"n": pa.array([1], pa.int64())}))
deltalake.write_deltalake(sys.argv[1], pa.table({"n": [0.5, 2.75]}), mode="append", schema_mode="merge")
deltalake.write_deltalake(sys.argv[1], pa.table({"n": [3.75]}), mode="append")
found = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()
assert found.schema.field("n").type == pa.int64(), found.schema
assert sorted(found["n"].to_pylist()) == [0, 1, 2, 3], found
print("deltalake 1.6.6: 0.5, 2.75 and 3.75 appended to a column of long are 0, 2 and 3", flush=True)
os._exit(0)  # do not wait for the threads of two libraries
END
