#!/bin/sh
# PyIceberg 0.12.0 with pyarrow 26.0.1. A condition that compares a column of floats with infinity.
# Expected: x >= inf and x = inf find the row whose value is infinite, as they do in a column of doubles.
# Seen: they find no row. The constant is a double, and PyIceberg takes it for one that is greater than the greatest float, so
# that a comparison with it is false for every row.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import sys
import pyarrow as pa, pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

assert (pyiceberg.__version__, pa.__version__) == ("0.12.0", "26.0.1")
place = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}/warehouse")
catalog.create_namespace("n")
table = catalog.create_table("n.t", Schema(NestedField(1, "x", FloatType()), NestedField(2, "y", DoubleType())))
values = [0.5, float("inf")]
table.append(pa.table({"x": pa.array(values, pa.float32()), "y": pa.array(values)}))


def count(condition):
    return len(table.scan(row_filter=condition).to_arrow())


found = {name: [count(kind(name, float("inf"))) for kind in (EqualTo, GreaterThanOrEqual)] for name in "xy"}
assert found == {"x": [0, 0], "y": [1, 1]}, found
print("PyIceberg 0.12.0: of two rows, one infinite, = inf and >= inf find", found["x"], "floats and", found["y"], "doubles")
END
