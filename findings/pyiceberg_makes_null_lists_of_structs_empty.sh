#!/bin/sh
# PyIceberg 0.12.0 with pyarrow 26.0.1. A null list of structs becomes an empty list, in what it reads and in what it writes.
# Expected: null, as in a list of integers beside it; the Parquet file that PyIceberg wrote has null or an empty list as given.
# Seen: rows with null in a list<struct> are appended; the file has an empty list there, and null in the list of integers.
# Of a file that another writer made with null there, to_arrow() returns an empty list, too. Both are known upstream
# (issue 3833 of iceberg-python); a comparison of readers that counts nulls of such columns through PyIceberg is wrong.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq, pyiceberg
from pyiceberg.catalog.sql import SqlCatalog

assert (pyiceberg.__version__, pa.__version__) == ("0.12.0", "26.0.1")
place = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}/warehouse")
catalog.create_namespace("n")
rows = pa.table(
    {"id": [1, 2], "structs": [None, [{"x": 1}]], "numbers": [None, [1]]},
    pa.schema([("id", pa.int64()), ("structs", pa.list_(pa.struct([("x", pa.int64())]))), ("numbers", pa.list_(pa.int64()))]),
)
table = catalog.create_table("n.t", rows.schema)
table.append(rows)
file = next(Path(place, "warehouse").rglob("*.parquet"))
written = pq.ParquetFile(file).read()
of_file = (written["structs"].to_pylist()[0], written["numbers"].to_pylist()[0])
# Another writer puts null there: the same file with the mask of the lists.
fixed = written.set_column(1, written.schema.field(1), rows["structs"].cast(written.schema.field(1).type))
pq.write_table(fixed, file)
assert pq.ParquetFile(file).read()["structs"].to_pylist()[0] is None
read = table.scan().to_arrow()
of_scan = (read["structs"].to_pylist()[0], read["numbers"].to_pylist()[0])
assert of_file == ([], None) and of_scan == ([], None), (of_file, of_scan)
print("PyIceberg 0.12.0: null in a list of structs is", of_file[0], "in the file it writes and", of_scan[0], "in a scan; null in a list of integers stays")
END
