#!/bin/sh
# duckdb 1.5.5 with its delta extension. A filter on a column that was widened from float to double loses rows of old files.
# Expected: the value 0.10000000149011612 (the float 0.1 as a double) fulfils v > 0.1, as in Delta Lake, if the bounds in the
# log are exact.
# Seen: the filter is pushed to the Parquet file and compared there as a float, so that 0.1 is not more than 0.1. The same
# condition on an expression (v + 0 > 0.1), or without filter_pushdown, finds the row. Exact bounds in the log do not help.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check duckdb==1.5.5 duckdb-extension-delta==1.5.5 pyarrow==22.0.0
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import glob
import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq

assert duckdb.__version__ == "1.5.5"
table = Path(sys.argv[1]) / "t"
(table / "_delta_log").mkdir(parents=True)
pq.write_table(pa.table({"v": pa.array([0.1, 0.5], pa.float32())}), table / "a.parquet")
change = {"fromType": "float", "toType": "double"}
field = {"name": "v", "type": "double", "nullable": True, "metadata": {"delta.typeChanges": [change]}}
low, high = (float(value) for value in pa.array([0.1, 0.5], pa.float32()).cast(pa.float64()).to_pylist())
stats = {"numRecords": 2, "minValues": {"v": low}, "maxValues": {"v": high}, "nullCount": {"v": 0}}
actions = (
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"],
                  "writerFeatures": ["typeWidening"]}},
    {"metaData": {"id": "1", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                  "schemaString": json.dumps({"type": "struct", "fields": [field]}),
                  "configuration": {"delta.enableTypeWidening": "true"}}},
    {"add": {"path": "a.parquet", "partitionValues": {}, "size": (table / "a.parquet").stat().st_size,
             "modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}},
)  # fmt: skip
(table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(extension,) = glob.glob(f"{Path(duckdb_extension_delta.__file__).parent}/**/*.duckdb_extension", recursive=True)
db.execute(f"LOAD '{extension}'")


def count(condition):
    return db.execute(f"SELECT count(*) FROM delta_scan('{table}') WHERE {condition}").fetchone()[0]


found = count("v > 0.1"), count("v + 0 > 0.1")
db.execute("SET disabled_optimizers = 'filter_pushdown'")
assert (found, count("v > 0.1")) == ((1, 2), 2), (found, count("v > 0.1"))
print("duckdb 1.5.5, delta: v > 0.1 finds 1 of 2 rows of a widened float, v + 0 > 0.1 finds both")
END
