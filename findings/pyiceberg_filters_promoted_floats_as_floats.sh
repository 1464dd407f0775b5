#!/bin/sh
# PyIceberg 0.12.0 with pyarrow 26.0.1. A column promoted from float to double is filtered in old files as a column of floats.
# Expected: the value of the old file is 0.10000000149011612, as a scan without a filter says, so that x > 0.1 finds it, and of
# x > 0.1 and x <= 0.1 exactly one is true for each row.
# Seen: neither finds the row. For x <= 0.1 the bounds of the file exclude it, rightly; for x > 0.1 the constant is cut to the
# float nearest to 0.1, which is the value. x != 0.1 loses the row, too. Two scans that split a table by such a condition lose rows.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import sys
import pyarrow as pa, pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

assert (pyiceberg.__version__, pa.__version__) == ("0.12.0", "26.0.1")
place = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}/warehouse")
catalog.create_namespace("n")
table = catalog.create_table("n.t", Schema(NestedField(1, "x", FloatType())))
table.append(pa.table({"x": pa.array([0.1, 0.5], pa.float32())}))
with table.update_schema() as update:
    update.update_column("x", DoubleType())
every = table.scan().to_arrow()["x"].to_pylist()
found = {text: table.scan(row_filter=text).to_arrow()["x"].to_pylist() for text in ("x > 0.1", "x <= 0.1", "x != 0.1")}
assert every == [0.10000000149011612, 0.5] and every[0] > 0.1, every
assert found == {"x > 0.1": [0.5], "x <= 0.1": [], "x != 0.1": [0.5]}, found
print("PyIceberg 0.12.0: of", every, "x > 0.1 finds", found["x > 0.1"], "and x <= 0.1 finds", found["x <= 0.1"])
END
