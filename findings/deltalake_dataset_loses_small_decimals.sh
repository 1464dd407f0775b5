#!/bin/sh
# deltalake 1.6.6. A filter on the Arrow dataset of a table loses rows with small decimals, which it wrote itself.
# Expected: the filter finds the row with 0.0000001.
# Seen: the log has the bounds as "1E-7" or 1e-7; the dataset takes such a bound of a decimal for null, and leaves the
# file out for every comparison, while the table without a filter, and its query engine, have the row.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==22.0.0
"$place/venv/bin/python" - "$place/t" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os
import sys
from decimal import Decimal

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

assert deltalake.__version__ == "1.6.6"
small = Decimal("0.0000001")
deltalake.write_deltalake(sys.argv[1], pa.table({"d": pa.array([small], pa.decimal128(9, 7))}))
table = deltalake.DeltaTable(sys.argv[1])
column = pc.field("d")
value = pa.scalar(small, pa.decimal128(9, 7))
asked = [column == value, column > pa.scalar(Decimal("-1.0000000"), pa.decimal128(9, 7))]
found = [table.to_pyarrow_dataset().to_table(filter=each).num_rows for each in asked]
assert found == [0, 0], found
assert table.to_pyarrow_table()["d"].to_pylist() == [small]
engine = deltalake.QueryBuilder().register("t", table)
rows = engine.execute("SELECT d FROM t WHERE d > 0").read_all()
assert rows.num_rows == 1, rows
print("deltalake 1.6.6: its Arrow dataset finds a decimal of 0.0000001 by no filter; its query engine does", flush=True)
os._exit(0)  # do not wait for the threads of two libraries
END
